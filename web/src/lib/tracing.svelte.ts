import type { Api } from "./api";
import { Asking } from "./asking.svelte";
import { page } from "./page.svelte";
import { Tensor } from "./tensor";
import type { Head, Model, Query, Token, Trace } from "./types";

/** The text that is looked at: what was typed, or the model's own example. */
export function wording(model: Model): string {
  return page.text ?? model.sample;
}

/** What is asked of the server when a text is to be traced, on this page, now. */
export function question(model: Model): Record<string, unknown> {
  const pair = model.parts.includes("cross");
  return {
    model: model.id,
    checkpoint: page.checkpoint || model.default_checkpoint,
    text: wording(model),
    ...(pair ? { target: page.target ?? model.sample_target ?? "" } : {}),
    mask: page.mask,
    positions: page.positions,
    ...(page.pad ? { pad_to: page.pad } : {}),
  };
}

/** A trace that follows the page: asked again when, and only when, its question changes. */
export function followed(api: Api, asked: () => Record<string, unknown> | null): Asking<Trace> {
  const tracing = new Asking<Trace>();
  let before = "";
  $effect(() => {
    const body = asked();
    if (!body) return;
    const now = JSON.stringify(body);
    if (now === before) return;
    before = now;
    void tracing.ask((signal) => api.send<Trace>("/api/traces", body, signal));
  });
  return tracing;
}

/** The tokens of the whole text: of a model with a memory the rows of a trace are its last segment alone. */
export function spelled(trace: Trace | undefined): Token[] {
  return trace?.text_tokens ?? trace?.tokens ?? [];
}

/** One query of a head: its row of every matrix, and the products that lead to and from them. */
export function queryOf(head: Head, i: number): Query {
  const q = head.q.at(i);
  const times = (of: Tensor, by: (j: number, d: number) => number) =>
    new Tensor(of.shape, Float32Array.from(of.data, (x, n) => x * by(Math.floor(n / of.shape[1]), n % of.shape[1])));
  const weights = head.weights.at(i);
  return {
    q,
    k: head.k,
    v: head.v,
    products: times(head.k, (_, d) => q.data[d]),
    contributions: times(head.v, (j) => weights.data[j]),
    scores_raw: head.scores_raw.at(i),
    scores_scaled: head.scores_scaled.at(i),
    bias: head.bias?.at(i),
    scores_masked: head.scores_masked.at(i),
    weights,
    output: head.output.at(i),
    scale: head.scale,
    group: head.group,
  };
}

/** A token in the middle of a text that says something: the last one of a sentence is often a full stop. */
export function amid(tokens: Token[]): number {
  const middle = Math.floor(tokens.length / 2);
  const words = tokens.map((token, n) => ({ n, far: Math.abs(n - middle), plain: !token.special && /[\p{L}\p{N}]/u.test(token.text) })).filter((each) => each.plain);
  return words.sort((a, b) => a.far - b.far)[0]?.n ?? middle;
}
