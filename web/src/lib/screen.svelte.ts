import type { Tensor } from "./tensor";
import type { Query, Token } from "./types";

/** What the page shows now, as its views tell it: what the questions of the course are about. */
export class Screen {
  plain = $state.raw<{ words: string[]; i: number; weights: number[][] }>();
  head = $state.raw<{ at: string; layer: number; head: number; i: number; query: Query; queries: Token[]; keys: Token[] }>();
  spread = $state.raw<{ d: number; raw: number; scaled: number }>();
  norm = $state.raw<{ token: string; place: string; root: number; normalized: ArrayLike<number>; source: string }>();
  units = $state.raw<{ token: string; place: string; pre: ArrayLike<number>; source: string }>();
  added = $state.raw<{ token: string; part: string; layer: number; i: number; attn: ArrayLike<number>; mlp: ArrayLike<number> }>();
  lens = $state.raw<{ token: string; place: string; first: { id: number; display: string }; last: { id: number; display: string } }>();
  shuffled = $state.raw<{ off?: number; on?: number; order: string }>();
  /** `run` makes the experiment; what it found is there a moment later. */
  probe = $state.raw<{ i: number; token: string; run: () => void; delta?: Tensor; before?: number }>();
  next = $state.raw<{ p: ArrayLike<number>; logits: ArrayLike<number>; order: ArrayLike<number>; name: (id: number) => string; source: string }>();
  bits = $state.raw<{ tokens: Token[]; bits: number[] }>();
  reached = $state.raw<{ at: number; n: number; stride: number; pattern: string; counts: number[][] }>();
  remembered = $state.raw<{ memory: number; reach: number[] }>();
}

export const screen = new Screen();

/** Tell what is on the screen as long as the view stands; to be called while it is made. */
export function tell<K extends keyof Screen>(name: K, value: () => Screen[K]): void {
  $effect(() => {
    screen[name] = value();
    return () => void (screen[name] = undefined as Screen[K]);
  });
}
