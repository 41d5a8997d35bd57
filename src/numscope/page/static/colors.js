// Colors: from light to dark blue (the other way round on dark ground) for size, orange for what is not finite. This pair is told apart
// with every kind of color blindness; what is bad also has a mark.

const LIGHT = [[237, 243, 250], [189, 211, 233], [125, 172, 212], [58, 127, 187], [18, 83, 147], [6, 38, 88]];
const DARK = [[22, 32, 46], [24, 62, 105], [36, 100, 162], [84, 150, 205], [156, 200, 233], [232, 243, 252]];

export function theme(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// Lines that are told apart by color, with every kind of color blindness, and by their dashes.
export const LINES = ["solid", "dashed", "dotted", [9, 3, 2, 3], [14, 4], [2, 2, 7, 2]];

export function lineColor(i) {
  return { color: theme(`line${(i % LINES.length) + 1}`), type: LINES[i % LINES.length] };
}

export function isDark() {
  return getComputedStyle(document.documentElement).colorScheme === "dark";
}

// 256 colors as "rgb(…)".
export function ramp() {
  const stops = isDark() ? DARK : LIGHT;
  return Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    const mixed = stops[low].map((c, k) => Math.round(c + (stops[low + 1][k] - c) * (at - low)));
    return `rgb(${mixed.join(",")})`;
  });
}

// Where a value stands between the least and the largest of all cells, from 0 to 1; logarithmic but for decibels.
export class Scale {
  constructor(cells, kind) {
    this.isLog = kind.unit !== "dB";
    let low = Infinity;
    let high = -Infinity;
    for (const x of cells) {
      if ((this.isLog && x <= 0) || !Number.isFinite(x)) continue;
      if (x < low) low = x;
      if (x > high) high = x;
    }
    if (low > high) low = high = 1;
    if (kind.unit === "%") [low, high] = [Math.max(low, 1e-3), Math.max(high, 1)];
    if (kind.least) low = Math.max(low, kind.least);
    this.low = low;
    this.high = high > low ? high : this.isLog ? low * 2 : low + 1;
  }

  place(x) {
    if (this.isLog && x <= 0) return 0;
    const at = this.isLog ? Math.log(x / this.low) / Math.log(this.high / this.low) : (x - this.low) / (this.high - this.low);
    return Math.min(1, Math.max(0, at));
  }
}
