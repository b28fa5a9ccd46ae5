/** The pages in the order of the post: from the whole model to what it is used for. */
export const order = ["home", "attention", "norm", "mlp", "order", "space", "stream", "generate", "training", "tasks", "reach", "compress", "compare"];

/** The pages before and after one, of those that have lessons. */
export function course(view: string, known: string[]): { before?: string; after?: string } {
  const pages = order.filter((each) => known.includes(each));
  const at = pages.indexOf(view);
  return at < 0 ? {} : { before: pages[at - 1], after: pages[at + 1] };
}
