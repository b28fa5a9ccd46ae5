import { open, page, type State } from "./page.svelte";
import type { Tensor } from "./tensor";
import type { Token } from "./types";

/** The plan of a model, as `explore/blueprint.py` reads it from the config. */
export interface Step {
  kind: "norm" | "attention" | "mlp" | "add";
  which?: "attention" | "cross" | "mlp" | null;
  norm?: string | null;
  part?: string | null;
  heads?: number;
  key_heads?: number;
  head_width?: number;
  pattern?: string | null;
  hidden?: number;
  gated?: boolean;
  activation?: string;
}

export interface Stack {
  part: string;
  embedding: { shape: [number, number]; position: string; added: boolean; segments: number | null; pairs: number | null; norm: string | null };
  blocks: { layer: number; steps: Step[] }[];
  norm: string | null;
}

export interface Blueprint {
  family: string;
  residual: "pre" | "post";
  width: number;
  memory: number | null;
  length: number;
  stacks: Stack[];
  head: { task: string; outputs: number; tied: boolean };
}

/** Some components of every vector after every step. */
export interface StackFlow {
  part: string;
  tokens: Token[];
  summed: Tensor | null; // before the norm of the embedding, if it has one
  embedding: Tensor;
  blocks: Tensor[][];
  norm: Tensor;
}

export interface Flow {
  components: number;
  stacks: StackFlow[];
  predictions: { id?: number | null; display: string; p: number }[] | null;
}

export type Target = Partial<State>;

/** The page that explains a part of the model. */
export function pageOf(step: Step, layer: number, part: string): Target {
  if (step.kind === "norm") return { view: "norm", layer, norm: step.which ?? "attention", part };
  if (step.kind === "attention") return { view: "attention", sub: "model", layer, part: step.part ?? part };
  if (step.kind === "mlp") return { view: "mlp", layer, part };
  return { view: "stream", part, row: -1 };
}

export function headPage(plan: Blueprint): Target {
  if (plan.head.task === "generate") return { view: "generate" };
  if (plan.head.task === "embed") return { view: "stream" };
  return { view: "tasks", task: plan.head.task };
}

/** The address of a target, with the model and the text of this page. */
export function href(target: Target): string {
  const carried = { model: page.model, checkpoint: page.checkpoint, text: page.text, target: page.target, lang: page.lang };
  const found = Object.entries({ ...carried, ...target }).filter(([, value]) => value !== null && value !== "");
  return "#" + new URLSearchParams(found.map(([name, value]) => [name, String(value)])).toString();
}

/** Whether a link is followed inside the page; another tab or window is left to the browser. */
export function follows(event: MouseEvent): boolean {
  if (event.metaKey || event.ctrlKey || event.shiftKey) return false;
  event.preventDefault();
  return true;
}

export function follow(event: MouseEvent, target: Target): void {
  if (!follows(event)) return;
  if (target.view && target.view !== page.view) open(target.view, target);
  else Object.assign(page, target);
}
