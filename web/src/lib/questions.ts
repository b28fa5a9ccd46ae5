import { softmax, sum } from "./mathematics";
import { screen } from "./screen.svelte";
import { exact, rough, whole, type Sourced } from "./sourced";
import { s } from "./strings";

/** A question about what is on the screen: its answer is computed from the numbers shown there. */
export interface Question {
  place: string; // with which numbers it is asked: elsewhere it is another question
  about: Record<string, string | number>; // for its sentence
  choices: { id: string; label: string }[];
  right: string[]; // several if they are equal; none as long as it is being computed
  found: Record<string, string | number | Sourced>; // for the sentence that tells the answer
  start?: () => void; // what has to be done first
}

interface Kind {
  hides: string[]; // the panels that hold the answer
  ask: () => Question | undefined; // none if the page or the model does not have what it asks about
}


const named = (...ids: string[]) => ids.map((id) => ({ id, label: (s.questions.choices as Record<string, string>)[id] }));

/** Of many places some: those that are wanted, and their neighbours in the text, in order. */
function some(all: number[], wanted: number[], many = 8): number[] {
  if (all.length <= many) return all;
  const at = wanted[0];
  const near = all.filter((n) => !wanted.includes(n)).sort((a, b) => Math.abs(a - at) - Math.abs(b - at));
  return [...wanted.slice(0, many), ...near.slice(0, Math.max(0, many - wanted.length))].sort((a, b) => a - b);
}

const largest = (values: number[]) => {
  const top = Math.max(...values.filter((x) => !Number.isNaN(x)));
  return values.flatMap((x, n) => (x === top ? [n] : []));
};

/** Of some numbers the one that a measured number is nearest to, by their ratio. */
const nearest = (x: number, of: number[]) => of.reduce((best, each) => (Math.abs(Math.log(each / x)) < Math.abs(Math.log(best / x)) ? each : best));

const length = (x: ArrayLike<number>) => Math.sqrt(sum(Array.from(x, (each) => each * each)));
const numbers = (of: number[]) => [...new Set(of)].sort((a, b) => a - b).map((n) => ({ id: String(n), label: String(n) }));

export const questions: Record<string, Kind> = {
  "row-sum": {
    hides: ["weights", "outputs"],
    ask() {
      const found = screen.plain;
      if (!found) return;
      const row = sum(found.weights[found.i]);
      const right = Math.abs(row - 1) < 1e-6 ? "one" : "depends";
      return { place: String(found.i), about: { word: found.words[found.i] }, choices: named("one", "words", "depends"), right: [right], found: { sum: exact(row, 3, `sum(shares[${found.i}])`) } };
    },
  },
  strongest: {
    hides: ["ladder", "cell", "heads", "change", "numbers"],
    ask() {
      const found = screen.head;
      if (!found) return;
      const weights = Array.from(found.query.weights.data);
      const top = largest(weights);
      const row = `weights.${found.at}[${found.i}]`;
      const places = some(found.keys.map((_, n) => n), top);
      return {
        place: `${found.at}[${found.i}]`,
        about: { token: found.queries[found.i].display, layer: found.layer, head: found.head },
        choices: places.map((n) => ({ id: String(n), label: `${found.keys[n].i} ${found.keys[n].display}` })),
        right: top.map(String),
        found: { key: found.keys[top[0]].display, weight: exact(weights[top[0]], 3, `${row}[${top[0]}]`) },
      };
    },
  },
  spread: {
    hides: ["root"],
    ask() {
      const found = screen.spread;
      if (!found || found.d < 4) return;
      const root = Math.round(Math.sqrt(found.d) * 10) / 10;
      return {
        place: String(found.d),
        about: { d: found.d },
        choices: numbers([1, root, found.d]),
        right: [String(nearest(found.raw, [1, root, found.d]))],
        found: { raw: exact(found.raw, 2, "sampled.raw.sd"), scaled: exact(found.scaled, 2, "sampled.scaled.sd") },
      };
    },
  },
  normalized: {
    hides: ["norm"],
    ask() {
      const found = screen.norm;
      if (!found) return;
      const after = length(found.normalized) / Math.sqrt(found.normalized.length);
      const right = nearest(after, [1, found.root]) === 1 ? "one" : "same";
      return { place: found.place, about: { token: found.token }, choices: named("same", "one", "zero"), right: [right], found: { root: exact(found.root, 3, `${found.source}.root`), after: exact(after, 3, `sqrt(mean(${found.source}.normalized ** 2))`) } };
    },
  },
  above: {
    hides: ["units", "unit"],
    ask() {
      const found = screen.units;
      if (!found) return;
      const above = Array.from(found.pre).filter((x) => x > 0).length;
      const share = above / found.pre.length;
      const right = share < 1 / 3 ? "few" : share > 2 / 3 ? "most" : "half";
      return { place: found.place, about: { token: found.token, hidden: found.pre.length }, choices: named("few", "half", "most"), right: [right], found: { above: whole(above, `sum(${found.source}.pre > 0)`), hidden: whole(found.pre.length, `len(${found.source}.pre)`) } };
    },
  },
  added: {
    hides: ["norms", "vectors"],
    ask() {
      const found = screen.added;
      if (!found) return;
      const [attn, mlp] = [length(found.attn), length(found.mlp)];
      const at = `${found.part}[${found.layer}][${found.i}]`;
      return { place: at, about: { token: found.token, layer: found.layer }, choices: named("attention", "mlp"), right: [attn > mlp ? "attention" : "mlp"], found: { attn: exact(attn, 2, `norm(attn_out.${at})`), mlp: exact(mlp, 2, `norm(mlp_out.${at})`) } };
    },
  },
  shuffle: {
    hides: ["shuffle"],
    ask() {
      const found = screen.shuffled;
      if (found?.off === undefined) return;
      return { place: found.order, about: {}, choices: named("moved", "other", "equal"), right: [found.off < 1e-3 ? "moved" : "other"], found: { error: rough(found.off, "max(moved.off)") } };
    },
  },
  positions: {
    hides: ["shuffle"],
    ask() {
      const found = screen.shuffled;
      if (found?.on === undefined) return;
      return { place: found.order, about: {}, choices: named("moved", "other", "equal"), right: [found.on < 1e-3 ? "moved" : "other"], found: { error: rough(found.on, "max(moved.on)") } };
    },
  },
  future: {
    hides: ["probe"],
    ask() {
      const found = screen.probe;
      if (!found || found.i < 1) return;
      const before = found.delta ? Array.from(found.delta.data).slice(0, found.i) : [];
      const moved = before.filter((x) => x !== 0).length;
      return {
        place: String(found.i),
        about: { token: found.token },
        choices: named("none", "some", "all"),
        right: found.delta ? [moved === 0 ? "none" : moved === found.i ? "all" : "some"] : [],
        found: {
          moved: whole(moved, `len([each for each in delta[:${found.i}] if each != 0])`),
          before: whole(found.i, `${found.i}`),
          most: rough(Math.max(0, ...before), `max(delta[:${found.i}])`),
        },
        start: found.run,
      };
    },
  },
  next: {
    hides: ["next"],
    ask() {
      const found = screen.next;
      if (!found) return;
      const top = found.order[0];
      // The four most probable tokens, in an order that tells nothing.
      const ids = Array.from(found.order).slice(0, 4).sort((a, b) => a - b);
      return { place: `${found.order[0]}.${found.order[1]}.${found.order[2]}`, about: {}, choices: ids.map((id) => ({ id: String(id), label: found.name(id) })), right: [String(top)], found: { token: found.name(top), p: exact(found.p[top], 4, `${found.source}[${top}]`) } };
    },
  },
  cooler: {
    hides: ["next"],
    ask() {
      const found = screen.next;
      if (!found) return;
      const top = found.order[0];
      const [now, cooler] = [1, 0.5].map((t) => softmax(Array.from(found.logits, (x) => x / t))[top]);
      return { place: String(top), about: { token: found.name(top) }, choices: named("larger", "smaller", "unchanged"), right: [cooler > now ? "larger" : cooler < now ? "smaller" : "unchanged"], found: { now: exact(now, 4, `softmax(next_logits)[${top}]`), cooler: exact(cooler, 4, `softmax(next_logits / 0.5)[${top}]`) } };
    },
  },
  surprise: {
    hides: ["surprise"],
    ask() {
      const found = screen.bits;
      if (!found || found.bits.filter((x) => !Number.isNaN(x)).length < 2) return;
      const top = largest(found.bits);
      const known = found.bits.flatMap((x, n) => (Number.isNaN(x) ? [] : [n]));
      return {
        place: "text",
        about: {},
        choices: some(known, top).map((n) => ({ id: String(n), label: `${found.tokens[n].i} ${found.tokens[n].display}` })),
        right: top.map(String),
        found: { token: found.tokens[top[0]].display, bits: exact(found.bits[top[0]], 2, `bits[${top[0]}]`) },
      };
    },
  },
  lens: {
    hides: ["lens"],
    ask() {
      const found = screen.lens;
      if (!found) return;
      return { place: found.place, about: { token: found.token }, choices: named("already", "later"), right: [found.first.id === found.last.id ? "already" : "later"], found: { first: found.first.display, last: found.last.display } };
    },
  },
  reach: {
    hides: ["pattern"],
    ask() {
      const found = screen.reached;
      if (!found) return;
      const last = found.counts.at(-1)?.[found.at] ?? 0;
      const layers = found.counts.length;
      return {
        place: `${found.pattern}.${found.n}.${found.stride}.${found.at}.${layers}`,
        about: { at: found.at, layers, stride: found.stride, all: found.at + 1, one: found.counts[0][found.at] },
        choices: numbers([found.counts[0][found.at], Math.ceil((found.at + 1) / 2), found.at + 1, last]),
        right: [String(last)],
        found: { reached: whole(last, `sum(reach[${layers}][${found.at}])`), all: found.at + 1 },
      };
    },
  },
  memory: {
    hides: ["memory"],
    ask() {
      const found = screen.remembered;
      if (!found || !found.memory) return;
      const layers = found.reach.length;
      const far = found.reach[layers - 1];
      return { place: `${found.memory}.${layers}`, about: { memory: found.memory, layers }, choices: numbers([0, found.memory, layers * found.memory, found.memory * found.memory, far]), right: [String(far)], found: { far: whole(far, `far[${layers - 1}]`) } };
    },
  },
};
