import steps from "../lessons/course.json";
import { remembered } from "./strings";

/** The whole state of the page, which is also its address: what is not here is not remembered. */
const start = {
  view: "home",
  sub: "model",
  theme: "",
  lang: "",
  model: "",
  checkpoint: "",
  text: null as string | null,
  target: null as string | null,
  mask: "model",
  positions: true,
  pad: 0,
  part: "",
  layer: 0,
  head: 0,
  i: -1,
  j: -1,
  stage: "",
  which: "q",
  d: 0,
  map: "weights",
  sort: "layer",
  hide: false,
  between: "",
  join: false,
  log: false,
  step: "", // the place in the course: see lib/course.svelte.ts
  quiz: true, // whether the steps of the course ask first
  guess: "", // what was answered: see lib/guesses.svelte.ts
  guide: true,
  present: false,
  drawer: false, // the code, while presenting
  // home, norm, mlp
  open: 0,
  norm: "attention",
  unit: -1,
  // changes: "part.layer.head,..." ("m" for the MLP), and "part.layer.head.i.j.weight,..."
  off: "",
  set: "",
  other: "",
  patch: "resid_pre", // the stage of the other text that is put in
  everywhere: true, // at every token
  // without parameters
  words: "",
  x: "",
  // order
  order: "",
  ordermask: "none",
  placed: false,
  // generate
  prompt: null as string | null,
  written: "", // what was generated: see lib/written.ts
  temperature: 1,
  topk: 0,
  topp: 1,
  seed: 1,
  length: 40,
  beam: 3,
  beamlength: 8,
  // training
  run: "",
  logy: false,
  smooth: 0.6,
  // stream, tasks
  row: -1,
  task: "",
  method: "ig",
  masked: "",
  // why the root
  width: 64,
  draw: 1,
  // reach
  pattern: "strided",
  n: 64,
  stride: 8,
  layers: 2,
  position: 63,
  reach: "patterns",
  segment: 16,
  memory: 16,
  // embeddings
  space: "tokens",
  texts: null as string | null,
  axes: "",
  point: -1,
  // architectures: a model of each kind, and one layer and head of all
  encoder: "",
  decoder: "",
  pair: "",
  archlayer: 0,
  archhead: 0,
  // compare
  b: "",
  bcheckpoint: "",
};
export type State = typeof start;

/** Names of pages and parts in addresses, besides their ids. */
const aliases: Record<string, string> = { positions: "order", layers: "stream", context: "reach", compression: "compress", embeddings: "space" };

export const page = $state<State>({ ...start });

const nullable = new Set(["text", "target", "prompt", "texts"]);

/** Only what differs from the start, so that an address stays short. */
export function address(): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(page))
    if (value !== start[name as keyof State] && value !== null) found.set(name, String(value));
  return "#" + found.toString();
}

/** The state that an address or a saved page names; of the language, else the last that was chosen. */
export function restore(from: Record<string, unknown>): void {
  for (const name of Object.keys(start) as (keyof State)[]) {
    const given = from[name];
    const table = page as Record<string, unknown>;
    if (given === undefined || given === null) table[name] = start[name];
    else if (nullable.has(name)) table[name] = String(given);
    else if (typeof start[name] === "number") table[name] = Number.isFinite(Number(given)) ? Number(given) : start[name];
    else if (typeof start[name] === "boolean") table[name] = String(given) === "true";
    else table[name] = String(given);
  }
  page.lang ||= remembered();
}

export function restoreHash(hash: string): void {
  const given = Object.fromEntries(new URLSearchParams(hash.replace(/^#/, "")));
  // A step of the course names its page; what else the address says comes after it.
  const step: { view: string; where?: object; set?: object } | undefined = given.view ? undefined : steps.find((each) => each.id === given.step);
  restore({ ...(step && { view: step.view, ...step.where, ...step.set }), ...given });
  page.view = aliases[page.view] ?? page.view;
  // A run and its model have one name.
  if (page.run && !page.model) page.model = page.run;
  page.run = "";
  reader.chose = page.model !== "";
  borrowed.before = undefined;
}

/** Whether the reader named a model, in the list or in an address. */
export const reader = $state({ chose: false });

/** What the reader had chosen before a page needed another model: given back on leaving it. */
export const borrowed: { before: Partial<State> | undefined } = $state({ before: undefined });

export function borrow(needed: Partial<State>): void {
  const { model, checkpoint, part, text, target, prompt, written, layer, head, i, j, stage } = page;
  borrowed.before ??= { model, checkpoint, part, text, target, prompt, written, layer, head, i, j, stage };
  forgetPlace();
  Object.assign(page, needed);
}

/** Open a page, with the reader's own model and text. */
export function open(view: string, more: Partial<State> = {}): void {
  if (view !== page.view && borrowed.before) {
    Object.assign(page, borrowed.before);
    borrowed.before = undefined;
  }
  Object.assign(page, { view, ...more });
}

/** A place in the text that means its last token. */
export const last = -2;

/** Places in the text that a change of text makes meaningless. */
export function forgetPlace(): void {
  Object.assign(page, { i: -1, j: -1, order: "", masked: "", row: -1 });
}

/** Whether the page is dark: as chosen, else as the system is. */
export const dark = (): boolean => (page.theme ? page.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);

export const motion = {
  get reduced(): boolean {
    return matchMedia("(prefers-reduced-motion: reduce)").matches;
  },
};
