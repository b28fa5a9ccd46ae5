import ramps from "virtual:ramps";

/** 256 colours, each the four bytes of a pixel: what a heat map looks up for every cell. */
export type Ramp = Uint32Array<ArrayBuffer>;

function ramp(base64: string): Ramp {
  const bytes = atob(base64);
  const table = new Uint8Array(256 * 4).fill(255);
  for (let i = 0; i < 256; i++) for (let c = 0; c < 3; c++) table[4 * i + c] = bytes.charCodeAt(3 * i + c);
  return new Uint32Array(table.buffer);
}

export const viridis = ramp(ramps.viridis);
export const diverging = ramp(ramps.diverging);

/** The same around a dark middle: on a dark page a pale one would be the brightest thing. */
export const divergingDark = ((low: number[], middle: number[], high: number[]): Ramp => {
  const table = new Uint8Array(256 * 4).fill(255);
  for (let i = 0; i < 256; i++) {
    const far = Math.abs(i - 127.5) / 127.5;
    for (let c = 0; c < 3; c++) table[4 * i + c] = middle[c] + far * ((i < 128 ? low : high)[c] - middle[c]);
  }
  return new Uint32Array(table.buffer);
})([130, 184, 248], [34, 39, 48], [250, 140, 128]);

export type Kind = "weights" | "scores";

/** [low, high] of the colours: from nought for weights, the same both ways for scores. */
export function limits(kind: Kind, min: number, max: number): [number, number] {
  if (kind === "weights") return [0, max > 0 ? max : 1];
  const most = Math.max(Math.abs(min), Math.abs(max)) || 1;
  return [-most, most];
}

/** The place of t in [0, 1] among the 256. */
export function place(t: number): number {
  return Math.round(255 * Math.min(1, Math.max(0, t)));
}

export function css(table: Ramp, t: number): string {
  const bytes = new Uint8Array(table.buffer, 4 * place(t), 3);
  return `rgb(${bytes[0]} ${bytes[1]} ${bytes[2]})`;
}

export function gradient(table: Ramp): string {
  return `linear-gradient(90deg, ${Array.from({ length: 9 }, (_, i) => css(table, i / 8)).join(", ")})`;
}

/** Where a weight stands between 0 and the greatest, or its logarithm over three decades. */
export function logarithmic(t: number): number {
  return t <= 0 ? 0 : Math.max(0, 1 + Math.log10(t) / 3);
}
