import type { Api } from "./api";
import type { Asking } from "./asking.svelte";
import { page } from "./page.svelte";
import { amid, followed, question } from "./tracing.svelte";
import type { Model, Token, Trace } from "./types";

/** A trace of the page's text, and the chosen layer and token of one of the model's stacks. */
export class InStack {
  readonly tracing: Asking<Trace>;

  constructor(
    api: Api,
    private model: () => Model,
  ) {
    this.tracing = followed(api, () => question(model()));
  }

  get trace(): Trace | undefined {
    const found = this.tracing.current;
    return found?.model === this.model().id ? found : undefined;
  }

  get part(): string {
    const parts = this.model().parts;
    if (!parts.includes("cross")) return parts[0];
    return page.part === "encoder" ? "encoder" : "decoder";
  }

  get tokens(): Token[] {
    return this.trace?.query_tokens[this.part] ?? [];
  }

  get layers(): number {
    return this.trace?.parts.find((each) => each.part === this.part)?.n_layers ?? 1;
  }

  get layer(): number {
    return Math.min(Math.max(0, page.layer), this.layers - 1);
  }

  get i(): number {
    return page.i >= 0 && page.i < this.tokens.length ? page.i : amid(this.tokens);
  }
}
