/** A generated text in an address: "0.8/40/0.9:12,7;1/0/1:9!,3".
 *
 * Stretches of tokens by their ids, each with the temperature, top-k and top-p that it was drawn
 * with; an exclamation mark follows a token that the reader chose. The rest (probabilities, random
 * numbers, alternatives) follows from these and is asked for again.
 */
export interface Stretch {
  temperature: number;
  topk: number;
  topp: number;
  ids: number[];
  chosen: boolean[];
}

export interface Drawing {
  temperature: number;
  topk: number;
  topp: number;
}

const same = (a: Drawing, b: Drawing) => a.temperature === b.temperature && a.topk === b.topk && a.topp === b.topp;

export function written(tokens: { id: number; chosen?: boolean; how: Drawing }[]): string {
  const stretches: Stretch[] = [];
  for (const { id, chosen, how } of tokens) {
    let last = stretches.at(-1);
    if (!last || !same(last, how)) stretches.push((last = { ...how, ids: [], chosen: [] }));
    last.ids.push(id);
    last.chosen.push(chosen ?? false);
  }
  return stretches.map((each) => `${each.temperature}/${each.topk}/${each.topp}:${each.ids.map((id, n) => `${id}${each.chosen[n] ? "!" : ""}`).join(",")}`).join(";");
}

/** What an address says; nothing of it if a part makes no sense. */
export function stretches(text: string): Stretch[] {
  const found = text.split(";").filter(Boolean).map((part) => {
    const [how, list = ""] = part.split(":");
    const [temperature, topk, topp] = how.split("/").map(Number);
    const items = list.split(",").filter(Boolean);
    return { temperature, topk, topp, ids: items.map((each) => parseInt(each, 10)), chosen: items.map((each) => each.endsWith("!")) };
  });
  const numbers = found.flatMap((each) => [each.temperature, each.topk, each.topp, ...each.ids]);
  return numbers.every((x) => Number.isFinite(x) && x >= 0) ? found.filter((each) => each.ids.length) : [];
}
