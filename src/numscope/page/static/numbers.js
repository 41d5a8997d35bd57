// Numbers for people: four digits at most, always with a unit.

export const UNITS = { "%": "%", count: "elements", dB: "dB", log2: "powers of two", nats: "nats", ratio: "ratio", value: "the tensor's unit" };

// A number as the findings file has it: "nan", "inf" and "-inf" are strings there.
export function number(value) {
  if (value === "inf") return Infinity;
  if (value === "-inf") return -Infinity;
  return typeof value === "number" ? value : NaN;
}

export function digits(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return value.toLocaleString("en-US");
  if (size >= 1e6 || size < 1e-3) return value.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e");
  return Number(value.toPrecision(4)).toLocaleString("en-US", { maximumFractionDigits: 20 });
}

export function withUnit(value, unit) {
  const text = digits(value);
  if (text === "–") return text;
  if (unit === "count") return `${text} ${value === 1 ? "element" : "elements"}`;
  return unit === "%" || unit === "dB" || unit === "nats" ? `${text} ${unit}` : unit === "log2" ? `${text} powers of two` : text;
}

export function count(number, what) {
  return `${number.toLocaleString("en-US")} ${what}${number === 1 ? "" : "s"}`;
}

export function steps(first, last) {
  return first === last ? `step ${first.toLocaleString("en-US")}` : `steps ${first.toLocaleString("en-US")}–${last.toLocaleString("en-US")}`;
}

export function ago(seconds) {
  const [size, unit] = seconds < 90 ? [1, "s"] : seconds < 5400 ? [60, "min"] : seconds < 129600 ? [3600, "h"] : [86400, "days"];
  return `${Math.round(seconds / size).toLocaleString("en-US")} ${unit} ago`;
}

export function power(exponent) {
  const signs = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  return `2${exponent < 0 ? "⁻" : ""}${[...String(Math.abs(exponent))].map((digit) => signs[digit]).join("")}`;
}
