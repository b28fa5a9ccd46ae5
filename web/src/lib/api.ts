import type { Site } from "./filed";
import { s } from "./strings";
import { opened } from "./tensor";

/** The server's one shape of error, and ours for what never reached it. */
export class Refusal extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly hint = "",
    readonly status = 0,
    readonly limit?: number,
  ) {
    super(message);
  }
}

export type Parameters = Record<string, string | number | boolean | undefined>;
export interface Event {
  event: string;
  id: string;
  data: any;
}

/** What the views ask; answered by the server, or by the answers a saved page carries. */
export interface Api {
  live: boolean;
  /** Whether all pages can be opened: of a saved page only one can. */
  pages: boolean;
  /** The texts to choose from, where no others can be typed. */
  texts?: string[];
  read<A = any>(path: string, parameters?: Parameters, signal?: AbortSignal): Promise<A>;
  send<A = any>(path: string, body: unknown, signal?: AbortSignal, tag?: string): Promise<A>;
  stream(path: string, body: unknown, signal: AbortSignal, each: (event: Event) => void): Promise<void>;
  save(view: string, state: unknown): Promise<Blob>;
  /** Whether a question can be answered: always by a server, from a saved page only what it holds. */
  holds(path: string, parameters?: Parameters): boolean;
  /** Streams that a saved page shall hold, in place of those before. */
  remember(path: string, streams: { body: unknown; events: Event[] }[]): void;
}

/** "GET /api/x?a=1&b=2", names sorted: how answers are named in a saved page. */
export function key(method: string, path: string, parameters: Parameters = {}): string {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined);
  const query = given.sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`);
  return `${method} ${path}${query.length ? "?" + query.join("&") : ""}`;
}

/** A question with a body is another question with another body. */
function sent(path: string, body: unknown, tag = ""): string {
  return `${key("POST", path)}${tag} ${JSON.stringify(body)}`;
}

async function answer(response: Response): Promise<any> {
  if (response.ok) return response.json();
  let error: any = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // Not ours: the status is all there is.
  }
  throw new Refusal(error.code ?? "http", error.message ?? `the server answered ${response.status}`, error.hint ?? "", response.status, error.limit);
}

async function asked(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(path, init);
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    throw new Refusal("offline", s.errors.offline, s.errors.offlineHint);
  }
}

export class Live implements Api {
  live = true;
  pages = true;
  /** The latest answers as they came, oldest first: what a saved page is made of. */
  private heard = new Map<string, { raw: unknown; path: string; body?: unknown }>();
  /** The generated text that is shown, token by token. */
  private streamed: Record<string, Event[]> = {};
  /** Told when the server no longer has a checkpoint that was asked for. */
  gone: (() => void) | undefined;

  holds(): boolean {
    return true;
  }

  remember(path: string, streams: { body: unknown; events: Event[] }[]): void {
    this.streamed = Object.fromEntries(streams.map(({ body, events }) => [sent(path, body), events]));
  }

  private keep(name: string, raw: unknown, path: string, body?: unknown): void {
    this.heard.delete(name);
    this.heard.set(name, { raw, path, body });
    if (this.heard.size > 80) this.heard.delete(this.heard.keys().next().value as string);
  }

  async read<A>(path: string, parameters: Parameters = {}, signal?: AbortSignal): Promise<A> {
    const name = key("GET", path, parameters);
    // Answers about a trace never change; all else is asked anew.
    const known = path.startsWith("/api/traces/") || path.startsWith("/api/source") ? this.heard.get(name)?.raw : undefined;
    const raw = known ?? (await this.answered(await asked(name.slice(4), { signal })));
    this.keep(name, raw, name.slice(4));
    return opened<A>(raw);
  }

  async send<A>(path: string, body: unknown, signal?: AbortSignal, tag = ""): Promise<A> {
    const headers = { "Content-Type": "application/json" };
    const raw = await this.answered(await asked(path, { method: "POST", headers, body: JSON.stringify(body), signal }));
    this.keep(sent(path, body, tag), raw, path, body);
    return opened<A>(raw);
  }

  private async answered(response: Response): Promise<unknown> {
    try {
      return await answer(response);
    } catch (error) {
      if (error instanceof Refusal && error.code === "unknown_checkpoint") this.gone?.();
      throw error;
    }
  }

  async stream(path: string, body: unknown, signal: AbortSignal, each: (event: Event) => void): Promise<void> {
    const headers = { "Content-Type": "application/json" };
    const response = await asked(path, { method: "POST", headers, body: JSON.stringify(body), signal });
    if (!response.ok || !response.body) return answer(response);
    // Chromium calls a body that only a reader has read "aborted" as soon as requests are watched: read it once more.
    const whole = response.clone().text().catch(() => "");
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return void (await whole);
      const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
      rest = blocks.pop() as string;
      for (const block of blocks) {
        const found: Event = { event: "message", id: "", data: null };
        for (const line of block.split("\n")) {
          const [name, ...after] = line.split(": ");
          if (name === "event") found.event = after.join(": ");
          if (name === "id") found.id = after.join(": ");
          if (name === "data") found.data = JSON.parse(after.join(": "));
        }
        if (found.data !== null) each(found);
      }
    }
  }

  /** The page says what it shows; the server asks itself and puts the answers into the file. */
  async save(view: string, state: unknown): Promise<Blob> {
    const all = [...this.heard];
    // Of each kind of question with a body the latest few: those before were about other texts.
    const kind = ([name, each]: (typeof all)[number]) => (each.body === undefined ? name : each.path);
    // The architectures are three models, one of them with a hidden token.
    const several = view === "architectures";
    const heard = all.filter((each, n) => each[1].body === undefined || all.slice(n + 1).filter((later) => kind(later) === kind(each)).length < (several ? 4 : 3));
    const named = heard.filter(([, each]) => each.path === "/api/traces");
    const traces = new Map(named.map(([name, each]) => [(each.raw as Traced).id, name]));
    // Of each trace what is shown now: the latest head, the latest row; all other heads as far as they fit.
    const latest = (id: string, part: string) => heard.filter(([, each]) => each.path.startsWith(`/api/traces/${id}${part}`)).at(-1)?.[0];
    const kept = new Set([...traces.keys()].flatMap((id) => ["/head?", "/query?", "/attention?"].map((part) => latest(id, part))));
    const requests: unknown[] = [...traces].map(([id, key]) => ({ path: `/api/traces/${id}`, key }));
    for (const [name, { path, body }] of heard) {
      // A saved page holds the model as it is, without changes to it.
      if (path === "/api/traces" || path.endsWith("/stop") || path.endsWith("/edit")) continue;
      if (body !== undefined) requests.push({ path, body, key: name });
      else if (!path.startsWith("/api/traces/")) requests.push(path);
      else if (traces.has(path.split("/")[3]) && (several || kept.has(name) || !/\/(head|query|attention)\?/.test(path))) requests.push(path);
    }
    const taken = new Set(requests.map((each) => (typeof each === "string" ? each : "")));
    for (const other of others(named.map(([, each]) => each.raw as Traced), taken)) requests.push({ path: other, optional: true });
    const responses = view === "generate" ? this.streamed : {};
    const body = JSON.stringify({ view, state, requests: requests.slice(0, 1000), responses });
    const response = await asked("/api/export", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    if (!response.ok) await answer(response);
    return response.blob();
  }
}

interface Traced {
  id: string;
  n_heads: number;
  parts: { part: string; n_layers: number }[];
}

/** The other heads of the latest trace, or for a comparison the maps of both, a layer after the other. */
function others(traced: Traced[], taken: Set<string>): string[] {
  const shown = [...taken].filter((path) => /\/(head|attention)\?/.test(path));
  const ids = new Set(shown.map((path) => path.split("/")[3]));
  const kinds = new Set(shown.map((path) => (path.includes("/head?") ? "head" : "attention")));
  const found: string[] = [];
  const chosen = traced.filter((each) => ids.has(each.id)).slice(-2);
  const { parts, n_heads } = chosen.at(-1) ?? { parts: [], n_heads: 0 };
  for (const { part, n_layers } of parts)
    for (let layer = 0; layer < n_layers; layer++)
      for (let head = 0; head < n_heads; head++)
        for (const { id } of kinds.has("head") ? chosen.slice(-1) : chosen)
          for (const kind of kinds) {
            if (kind === "attention" && kinds.has("head")) continue;
            const stage = kind === "attention" ? { stage: "weights" } : {};
            const path = key("GET", `/api/traces/${id}/${kind}`, { layer, head, part, ...stage }).slice(4);
            if (!taken.has(path)) found.push(path);
          }
  return found;
}

export interface Payload {
  view: string;
  state: Record<string, unknown>;
  responses: Record<string, unknown>;
  only_query?: boolean;
  made?: string;
  site?: Site;
}

/** A saved page: it answers the questions that it holds the answers to, and no others. */
export class Frozen implements Api {
  live = false;
  pages = false;
  /** A notebook's page does not know the body of its one question: it is the first that is asked. */
  private first = new Map<string, string>();
  constructor(private payload: Payload) {}

  private find<A>(name: string): Promise<A> {
    const raw = this.payload.responses[name];
    if (raw === undefined) return Promise.reject(new Refusal("saved", s.shell.notSaved));
    return Promise.resolve(opened<A>(raw));
  }

  holds(path: string, parameters: Parameters = {}): boolean {
    return key("GET", path, parameters) in this.payload.responses;
  }

  read<A>(path: string, parameters: Parameters = {}): Promise<A> {
    return this.find(key("GET", path, parameters));
  }

  send<A>(path: string, body: unknown, _signal?: AbortSignal, tag = ""): Promise<A> {
    const [whole, bare] = [sent(path, body, tag), key("POST", path) + tag];
    if (whole in this.payload.responses) return this.find(whole);
    if (!this.first.has(bare)) this.first.set(bare, whole);
    return this.find(this.first.get(bare) === whole ? bare : whole);
  }

  async stream(path: string, body: unknown, _signal: AbortSignal, each: (event: Event) => void): Promise<void> {
    (await this.find<Event[]>(sent(path, body))).forEach(each);
  }

  remember(): void {}

  save(): Promise<Blob> {
    return this.find("save");
  }
}
