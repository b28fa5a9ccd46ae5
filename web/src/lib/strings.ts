import words from "../strings.en.json";

/** Every sentence of the page stands in one file; another language is another such file. */
export const s = words;

/** "{n} tokens" with n = 6 → "6 tokens" */
export function fill(sentence: string, values: Record<string, string | number>): string {
  return sentence.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}
