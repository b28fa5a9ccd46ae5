/** The little arithmetic that the page does itself; all else comes from the model. */

export function dot(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

export function sum(a: ArrayLike<number>): number {
  let total = 0;
  for (let i = 0; i < a.length; i++) total += a[i];
  return total;
}

export function softmax(scores: ArrayLike<number>): Float64Array {
  let top = -Infinity;
  for (let i = 0; i < scores.length; i++) if (scores[i] > top) top = scores[i];
  const out = new Float64Array(scores.length);
  if (top === -Infinity) return out;
  let total = 0;
  for (let i = 0; i < scores.length; i++) total += out[i] = Math.exp(scores[i] - top);
  for (let i = 0; i < scores.length; i++) out[i] /= total;
  return out;
}

export function entropy(p: ArrayLike<number>): number {
  let bits = 0;
  for (let i = 0; i < p.length; i++) if (p[i] > 0) bits -= p[i] * Math.log2(p[i]);
  return bits;
}

/** y = softmax(X Xᵀ) X, with all that leads to it. */
export function plainAttention(x: number[][]) {
  const scores = x.map((a) => x.map((b) => dot(a, b)));
  const weights = scores.map((row) => Array.from(softmax(row)));
  const outputs = weights.map((w) => x[0].map((_, d) => sum(w.map((share, j) => share * x[j][d]))));
  return { scores, weights, outputs };
}

export interface Kept {
  ids: Int32Array; // kept tokens, most probable first, ties by id
  p: Float64Array; // their probabilities after keeping, sum 1
  full: Float64Array; // probability of every token before keeping, at this temperature
}

/** Every token by falling logit, ties by id: the same at every temperature, so sorted once. */
export function falling(logits: ArrayLike<number>): Int32Array {
  return Int32Array.from({ length: logits.length }, (_, i) => i).sort((a, b) => logits[b] - logits[a] || a - b);
}

/** The distribution a token is drawn from: temperature, then the k best, then the smallest set that holds top-p. */
export function kept(logits: ArrayLike<number>, order: Int32Array, temperature: number, topK: number | null, topP: number): Kept {
  const scaled = Float64Array.from(logits as ArrayLike<number>, (x) => (temperature > 0 ? x / temperature : x));
  if (temperature === 0) {
    const full = new Float64Array(scaled.length);
    full[order[0]] = 1;
    return { ids: order.slice(0, 1), p: Float64Array.of(1), full };
  }
  const full = softmax(scaled);
  let many = topK === null ? order.length : Math.min(topK, order.length);
  if (topP < 1) {
    // As the sampler does: top-p counts within what top-k has kept.
    let within = 0;
    for (let n = 0; n < many; n++) within += full[order[n]];
    let reached = 0;
    for (let n = 0; n < many; n++) {
      reached += full[order[n]] / within;
      if (reached >= topP) {
        many = n + 1;
        break;
      }
    }
  }
  const ids = order.slice(0, many);
  let total = 0;
  for (const id of ids) total += full[id];
  return { ids, p: Float64Array.from(ids, (id) => full[id] / total), full };
}

/** The place in `kept` whose stretch of the cumulative sum holds u. */
export function drawn(p: Float64Array, u: number): { place: number; low: number; high: number } {
  let low = 0;
  for (let n = 0; n < p.length; n++) {
    const high = low + p[n];
    if (u < high || n === p.length - 1) return { place: n, low, high };
    low = high;
  }
  return { place: 0, low: 0, high: 1 };
}

/** A shuffle that the same seed always repeats. */
export function shuffled(n: number, seed: number): number[] {
  const order = Array.from({ length: n }, (_, i) => i);
  let state = (seed * 2654435761 + 12345) >>> 0;
  for (let i = n - 1; i > 0; i--) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const j = Math.floor((state / 4294967296) * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}
