import { Tensor } from "./tensor";
import type { Token } from "./types";

/** Tokens that are pieces of one word, as one. */
export interface Word {
  i: number;
  display: string;
  from: number;
  to: number;
}

export function wordsOf(tokens: Token[]): Word[] {
  const found: Word[] = [];
  tokens.forEach((token, n) => {
    const last = found.at(-1);
    if (token.joined && last) Object.assign(last, { display: last.display + token.display.replace(/^##/, ""), to: n + 1 });
    else found.push({ i: token.i, display: token.display, from: n, to: n + 1 });
  });
  return found;
}

/** Weights from word to word: a word asks as its pieces do on average, and is given what all of them are given. */
export function byWord(values: Tensor, rows: Word[], cols: Word[]): Tensor {
  const width = values.shape[1];
  const out = new Float32Array(rows.length * cols.length);
  rows.forEach((row, r) =>
    cols.forEach((col, c) => {
      let sum = 0;
      for (let i = row.from; i < row.to; i++) for (let j = col.from; j < col.to; j++) sum += values.data[i * width + j];
      out[r * cols.length + c] = sum / (row.to - row.from);
    }),
  );
  return new Tensor([rows.length, cols.length], out);
}

export const wordAt = (words: Word[], n: number): number => words.findIndex((word) => n >= word.from && n < word.to);
