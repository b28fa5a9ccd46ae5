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
  read<A = any>(path: string, parameters?: Parameters, signal?: AbortSignal): Promise<A>;
  send<A = any>(path: string, body: unknown, signal?: AbortSignal, tag?: string): Promise<A>;
  stream(path: string, body: unknown, signal: AbortSignal, each: (event: Event) => void): Promise<void>;
  save(view: string, state: unknown): Promise<Blob>;
}

/** "GET /api/x?a=1&b=2", names sorted: how answers are named in a saved page. */
export function key(method: string, path: string, parameters: Parameters = {}): string {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined);
  const query = given.sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`);
  return `${method} ${path}${query.length ? "?" + query.join("&") : ""}`;
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
    throw new Refusal("offline", "the server does not answer", "start it again with: clearformer explore");
  }
}

export class Live implements Api {
  live = true;
  /** The latest answers as they came, oldest first: what a saved page is made of. */
  private heard = new Map<string, { raw: unknown; path: string; body?: unknown }>();

  private keep(name: string, raw: unknown, path: string, body?: unknown): void {
    this.heard.delete(name);
    this.heard.set(name, { raw, path, body });
    if (this.heard.size > 80) this.heard.delete(this.heard.keys().next().value as string);
  }

  async read<A>(path: string, parameters: Parameters = {}, signal?: AbortSignal): Promise<A> {
    const name = key("GET", path, parameters);
    // Answers about a trace never change; all else is asked anew.
    const known = path.startsWith("/api/traces/") || path.startsWith("/api/source") ? this.heard.get(name)?.raw : undefined;
    const raw = known ?? (await answer(await asked(name.slice(4), { signal })));
    this.keep(name, raw, name.slice(4));
    return opened<A>(raw);
  }

  async send<A>(path: string, body: unknown, signal?: AbortSignal, tag = ""): Promise<A> {
    const headers = { "Content-Type": "application/json" };
    const raw = await answer(await asked(path, { method: "POST", headers, body: JSON.stringify(body), signal }));
    this.keep(key("POST", path) + tag, raw, path, body);
    return opened<A>(raw);
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
    const heard = [...this.heard];
    const traces = new Map(heard.filter(([, each]) => each.path === "/api/traces").map(([name, each]) => [(each.raw as { id: string }).id, name]));
    // Of a trace only what is shown now: the latest head, the latest row.
    const latest = (part: string) => heard.filter(([, each]) => each.path.includes(part)).at(-1)?.[0];
    const kept = new Set(["/head?", "/query?", "/attention?"].map(latest));
    const requests: unknown[] = [...traces].map(([id, key]) => ({ path: `/api/traces/${id}`, key }));
    for (const [name, { path, body }] of heard) {
      if (path === "/api/traces" || path.endsWith("/stop")) continue;
      if (body !== undefined) requests.push({ path, body, key: name });
      else if (!path.startsWith("/api/traces/")) requests.push(path);
      else if (traces.has(path.split("/")[3]) && (kept.has(name) || !/\/(head|query|attention)\?/.test(path))) requests.push(path);
    }
    const body = JSON.stringify({ view, state, requests });
    const response = await asked("/api/export", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    if (!response.ok) await answer(response);
    return response.blob();
  }
}

export interface Payload {
  view: string;
  state: Record<string, unknown>;
  responses: Record<string, unknown>;
  only_query?: boolean;
  made?: string;
}

export class Frozen implements Api {
  live = false;
  constructor(private payload: Payload) {}

  private find<A>(name: string): Promise<A> {
    const raw = this.payload.responses[name];
    if (raw === undefined) return Promise.reject(new Refusal("saved", "this part is not in the saved page", "open it with: clearformer explore"));
    return Promise.resolve(opened<A>(raw));
  }

  read<A>(path: string, parameters: Parameters = {}): Promise<A> {
    return this.find(key("GET", path, parameters));
  }

  send<A>(path: string, _body: unknown, _signal?: AbortSignal, tag = ""): Promise<A> {
    return this.find(key("POST", path) + tag);
  }

  stream(): Promise<void> {
    return this.find("stream");
  }

  save(): Promise<Blob> {
    return this.find("save");
  }
}
