/** Numbers as they are read: a true minus sign, −∞ by its own sign, not-a-number by its name. */
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export function shown(value: number | string | null | undefined, digits = 2): string {
  const x = scalar(value);
  if (x === null) return "";
  if (Number.isNaN(x)) return "NaN";
  if (x === Infinity) return "∞";
  if (x === -Infinity) return "−∞";
  if (x === 0) return "0";
  return x.toFixed(digits).replace(/^-(0(\.0*)?)$/, "$1").replace("-", "−");
}

/** Three digits for one of several sizes, so that a column of them reads alike: 12,345 · 12.0 · 0.0123 · 1.2e−7 */
export function short(value: number | string | null | undefined): string {
  const x = scalar(value);
  if (x === null) return "";
  if (!Number.isFinite(x) || x === 0) return shown(x);
  const size = Math.abs(x);
  if (size >= 1e6 || size < 1e-4) return x.toExponential(1).replace("+", "").replaceAll("-", "−");
  return (size >= 1000 || Number.isInteger(x) ? whole.format(x) : x.toPrecision(3)).replaceAll("-", "−");
}

/** A number at an axis: no digits that say nothing. */
export function mark(value: number): string {
  return Math.abs(value) >= 1000 || (value !== 0 && Math.abs(value) < 1e-4) ? short(value) : String(Number(value.toPrecision(3))).replace("-", "−");
}

export function count(value: number): string {
  return whole.format(value);
}

/** Numbers outside envelopes may be the names of what JSON cannot write. */
export function scalar(value: number | string | null | undefined): number | null {
  if (value === null || value === undefined) return null;
  if (typeof value === "number") return value;
  return { nan: NaN, inf: Infinity, "-inf": -Infinity }[value] ?? Number(value);
}

export function clock(seconds: number): string {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

/** [least, greatest] of the finite numbers, and how many are not numbers. */
export function extent(data: ArrayLike<number>): { min: number; max: number; nan: number; infinite: number } {
  let min = Infinity;
  let max = -Infinity;
  let nan = 0;
  let infinite = 0;
  for (let i = 0; i < data.length; i++) {
    const x = data[i];
    if (Number.isNaN(x)) nan++;
    else if (x === Infinity) infinite++;
    else if (x !== -Infinity) {
      if (x < min) min = x;
      if (x > max) max = x;
    }
  }
  return min > max ? { min: 0, max: 0, nan, infinite } : { min, max, nan, infinite };
}
