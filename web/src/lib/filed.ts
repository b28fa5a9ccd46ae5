import { key, Refusal, type Api, type Event, type Parameters } from "./api";
import { s } from "./strings";
import { opened } from "./tensor";

/** The list of answers in the files beside the page: the key of a request, and the number of its file. */
export interface Site {
  index: Record<string, number>;
  texts: string[];
}

const defaults: Record<string, unknown> = { mask: "model", positions: true };

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).filter(([, each]) => each !== null && each !== undefined).sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, each]) => [name, sorted(each)]));
}

/** A body as `explore/static_site.py` names it: sorted, without defaults. */
function canonical(body: unknown): string {
  const given = Object.entries(body as Record<string, unknown>).filter(([name, each]) => defaults[name] !== each);
  return JSON.stringify(sorted(Object.fromEntries(given)));
}

/** All pages, answered by files: a script each, since a page from a disk may load scripts and nothing else. */
export class Filed implements Api {
  live = false;
  pages = true;
  texts: string[];
  private loading = new Map<number, Promise<Record<string, unknown>>>();
  private arrived = new Map<number, (answers: Record<string, unknown>) => void>();

  constructor(private site: Site) {
    this.texts = site.texts;
    (window as unknown as { clearformerAnswers: unknown }).clearformerAnswers = (n: number, answers: Record<string, unknown>) => this.arrived.get(n)?.(answers);
  }

  private file(n: number): Promise<Record<string, unknown>> {
    let found = this.loading.get(n);
    if (!found) {
      found = new Promise((resolve, reject) => {
        const script = document.createElement("script");
        this.arrived.set(n, resolve);
        script.onerror = () => {
          this.loading.delete(n);
          reject(new Refusal("file", s.shell.noFile));
        };
        script.src = `data/${n}.js`;
        document.head.append(script);
      });
      this.loading.set(n, found);
    }
    return found;
  }

  private async find<A>(name: string): Promise<A> {
    const at = Object.hasOwn(this.site.index, name) ? this.site.index[name] : undefined;
    if (at === undefined) throw new Refusal("saved", s.shell.notInFiles);
    return opened<A>((await this.file(at))[name]);
  }

  holds(path: string, parameters: Parameters = {}): boolean {
    return Object.hasOwn(this.site.index, key("GET", path, parameters));
  }

  read<A>(path: string, parameters: Parameters = {}): Promise<A> {
    return this.find(key("GET", path, parameters));
  }

  send<A>(path: string, body: unknown): Promise<A> {
    return this.find(`POST ${path} ${canonical(body)}`);
  }

  async stream(path: string, body: unknown, _signal: AbortSignal, each: (event: Event) => void): Promise<void> {
    (await this.find<Event[]>(`POST ${path} ${canonical(body)}`)).forEach(each);
  }

  remember(): void {}

  save(): Promise<Blob> {
    return this.find("save");
  }
}
