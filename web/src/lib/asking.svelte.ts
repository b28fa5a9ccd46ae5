import { Refusal } from "./api";

/** One question at a time: its answer, its error, and since when we wait. A new question ends the old one. */
export class Asking<A> {
  answer = $state.raw<A | undefined>();
  error = $state.raw<Refusal | undefined>();
  since = $state<number | undefined>();
  private controller: AbortController | undefined;
  private again: (() => void) | undefined;

  /** The answer to the question that is asked now, or was before it; none if this one was refused. */
  get current(): A | undefined {
    return this.error ? undefined : this.answer;
  }

  async ask(question: (signal: AbortSignal) => Promise<A>): Promise<A | undefined> {
    this.controller?.abort();
    const controller = (this.controller = new AbortController());
    this.again = () => void this.ask(question);
    this.since = performance.now();
    try {
      const answer = await patiently(question, controller.signal);
      if (controller !== this.controller) return undefined;
      this.answer = answer;
      this.error = undefined;
      return answer;
    } catch (error) {
      if (controller !== this.controller || controller.signal.aborted) return undefined;
      this.error = error instanceof Refusal ? error : new Refusal("page", String(error));
    } finally {
      if (controller === this.controller) this.since = undefined;
    }
    return undefined;
  }

  /** The same, when what is asked for rests: a slider passes many values. The first is asked at once. */
  soon(question: (signal: AbortSignal) => Promise<A>): () => void {
    const timer = setTimeout(() => void this.ask(question), this.controller ? 100 : 0);
    return () => clearTimeout(timer);
  }

  cancel(): void {
    this.controller?.abort();
    this.controller = undefined;
    this.since = undefined;
  }

  forget(): void {
    this.cancel();
    this.answer = undefined;
    this.error = undefined;
  }

  retry(): void {
    this.again?.();
  }
}

/** A full queue or a model still loading is no answer yet: ask again, a little later each time. */
async function patiently<A>(question: (signal: AbortSignal) => Promise<A>, signal: AbortSignal): Promise<A> {
  for (let wait = 200; ; wait *= 1.6) {
    try {
      return await question(signal);
    } catch (error) {
      const busy = error instanceof Refusal && (error.status === 429 || error.status === 503);
      if (!busy || wait > 6000) throw error;
      await new Promise((resolve) => setTimeout(resolve, wait));
      signal.throwIfAborted();
    }
  }
}
