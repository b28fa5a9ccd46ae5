import { count, short, shown } from "./numbers";

/** A displayed number and where it comes from: an expression over the trace, such as
 * `weights.self[0][1][5][2]`, which a test computes again in Python. */
export interface Sourced {
  shown: string;
  from: string;
}

export const exact = (value: number | string | null | undefined, digits: number, from: string): Sourced => ({ shown: shown(value, digits), from });
export const rough = (value: number | string | null | undefined, from: string): Sourced => ({ shown: short(value), from });
export const whole = (value: number, from: string): Sourced => ({ shown: count(value), from });
/** What the reader typed or chose. */
export const typed = (value: string | number): Sourced => ({ shown: String(value), from: "input" });
