import english from "../strings.en.json";

/** Every sentence of the page stands in one file a language. English is part of the bundle; the
 * others are files beside it, or parts of a saved page, and are read when they are chosen. */
export const languages = { en: "English", de: "Deutsch", es: "Español", fr: "Français", zh: "中文" };
export type Language = keyof typeof languages;

/** The sentences in the language that is shown. Components read them when they are drawn. */
export let s = english;

/** "{n} tokens" with n = 6 → "6 tokens" */
export function fill(sentence: string, values: Record<string, string | number>): string {
  return sentence.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/** How long a command trains: what it says itself. */
export const lasts = (command: string): string => fill(s.tasks.how, { minutes: /--minutes (\d+)/.exec(command)?.[1] ?? "" });

/** What a file leaves out (commands) or does not have yet is as in English. */
function merged<T>(own: T, other: unknown): T {
  if (typeof own === "string") return (typeof other === "string" ? other : own) as T;
  if (Array.isArray(own)) return own.map((each, n) => merged(each, (other as unknown[] | undefined)?.[n])) as T;
  if (typeof own !== "object" || own === null) return own;
  return Object.fromEntries(Object.entries(own).map(([name, each]) => [name, merged(each, (other as Record<string, unknown> | undefined)?.[name])])) as T;
}

/** A saved page asks nobody: it carries the files, compressed. */
async function file(language: Language): Promise<unknown> {
  const carried = document.getElementById("languages");
  if (!carried) {
    const response = await fetch(`/static/strings.${language}.json`);
    if (!response.ok) throw new Error(`${response.status}`);
    return response.json();
  }
  const packed = (JSON.parse(carried.textContent ?? "{}") as Record<string, string>)[language];
  const bytes = Uint8Array.from(atob(packed), (each) => each.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

const known = new Map<Language, typeof english>([["en", english]]);
let latest: Language = "en";

/** Show the page in a language; English if its file cannot be read. */
export async function speak(language: Language): Promise<void> {
  latest = language;
  if (!known.has(language)) {
    try {
      known.set(language, merged(english, await file(language)));
    } catch {
      // As it was: a page in English is better than none.
    }
  }
  if (latest !== language) return; // another was chosen meanwhile
  s = known.get(language) ?? english;
  document.documentElement.lang = !known.has(language) ? "en" : language === "zh" ? "zh-Hans" : language;
}

const place = "clearformer-language";

/** The reader's last choice. A cookie is seen on every port of this machine; files have no cookies. */
export function remembered(): string {
  try {
    const cookie = new RegExp(`(?:^|; )${place}=(\\w+)`).exec(document.cookie)?.[1];
    return cookie ?? localStorage.getItem(place) ?? "";
  } catch {
    return ""; // a sandboxed frame keeps nothing
  }
}

export function remember(language: Language): void {
  try {
    document.cookie = `${place}=${language}; path=/; max-age=31536000; samesite=strict`;
    localStorage.setItem(place, language);
  } catch {
    // The choice holds as long as the page.
  }
}

/** The language that was asked for, or else the first that the browser wants and the page has. */
export function preferred(asked: string): Language {
  const wanted = [asked, ...navigator.languages].map((each) => each.toLowerCase().split("-")[0]);
  return (wanted.find((each) => Object.hasOwn(languages, each)) ?? "en") as Language;
}
