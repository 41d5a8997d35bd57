import { el } from "./dom.js";
import { digits, power, steps, withUnit } from "./numbers.js";

// What part of a tensor's numbers a format can hold: its exponents, or without a histogram its extremes, over the formats' ranges.

// Counts below, within and above a format's range. A bin holds magnitudes from 2^e to 2^(e+1); the lowest bin of float32 also zeros.
export function shares(histogram, format) {
  const lowest = Math.round(Math.log2(format.minSubnormal));
  const normal = Math.round(Math.log2(format.minNormal));
  const highest = Math.floor(Math.log2(format.max));
  const sum = { zeros: 0, flushed: 0, subnormal: 0, normal: 0, over: 0, all: 0 };
  histogram.counts.forEach((num, i) => {
    const biased = histogram.lowest + i;
    const e = biased - 127;
    sum.all += num;
    if (biased === 0) sum.zeros += num;
    else if (e < lowest - 1) sum.flushed += num;
    else if (e < normal) sum.subnormal += num;
    else if (e <= highest) sum.normal += num;
    else sum.over += num;
  });
  return sum;
}

// ``bad``: how many of its elements are nan or inf at this step, which no magnitude shows.
export function formatsView(run, histogram, extremes, site, bad) {
  const bounds = boundsOf(run, histogram, extremes);
  if (!bounds) return el("p", { class: "hint" }, "No numbers at this step.");
  const [low, high] = bounds;
  const at = (exponent) => `${(100 * (Math.min(high, Math.max(low, exponent)) - low)) / (high - low)}%`;
  const rows = Object.values(run.formats).map((format) => formatRow(format, histogram, extremes, at, bad > 0));
  const ticks = [];
  const every = Math.max(1, Math.ceil((high - low) / 8));
  for (let e = Math.ceil((low + 3) / every) * every; e <= high - 2; e += every) ticks.push(el("span", { class: "tick", style: { left: at(e) } }, power(e)));
  const what = histogram ? `Elements by magnitude, ${steps(histogram.first, histogram.last)}` : "From the smallest to the largest magnitude at this step";
  return el("div", { class: "formats" },
    el("h3", {}, "Which format holds it"),
    el("p", { class: "explain" }, `${what}${histogram ? " (bars: share of elements)" : "; the run has no exponent histograms (statistic exponent_histogram)"}. `,
      "Below: each format's range. ", el("span", { class: "zone normal key" }), " full precision, ", el("span", { class: "zone subnormal key" }), " subnormal: loses digits; left of it zero, right of it overflow."),
    el("div", { class: "format-line" }, el("span", { class: "format-name" }, site.dtype), histogram ? bars(histogram, low, high, at) : band(extremes, at), el("span", { class: "verdict" }, zerosOf(histogram))),
    rows,
    el("div", { class: "format-line" }, el("span", { class: "format-name" }, "magnitude"), el("div", { class: "range ticks" }, ticks), el("span", { class: "verdict" })));
}

function boundsOf(run, histogram, extremes) {
  const exponents = [];
  if (histogram) histogram.counts.forEach((num, i) => num > 0 && histogram.lowest + i > 0 && exponents.push(histogram.lowest + i - 127));
  for (const x of extremes) if (x > 0) exponents.push(Math.floor(Math.log2(x)));
  if (!exponents.length) return null;
  return [Math.max(-150, Math.min(-26, ...exponents) - 2), Math.min(129, Math.max(18, ...exponents) + 3)];
}

function bars(histogram, low, high, at) {
  const most = Math.max(...histogram.counts.subarray(histogram.lowest === 0 ? 1 : 0), 1);
  const all = histogram.counts.reduce((a, b) => a + b, 0) || 1;
  const made = [];
  histogram.counts.forEach((num, i) => {
    const biased = histogram.lowest + i;
    if (!num || biased === 0) return;
    const e = biased - 127;
    made.push(el("span", { class: "bar", title: `${power(e)} to ${power(e + 1)}: ${withUnit((100 * num) / all, "%")} of the elements`,
      style: { left: at(e), width: `calc(${100 / (high - low)}% - 1px)`, height: `${Math.max(2, (100 * num) / most)}%` } }));
  });
  return el("div", { class: "range bars" }, made);
}

function zerosOf(histogram) {
  if (!histogram || histogram.lowest > 0) return "";
  const all = histogram.counts.reduce((a, b) => a + b, 0) || 1;
  return `zeros, or below ${power(-126)}: ${withUnit((100 * histogram.counts[0]) / all, "%")}`;
}

function band([least, largest], at) {
  const [from, to] = [Math.log2(least > 0 ? least : largest), Math.log2(largest)];
  return el("div", { class: "range" }, el("span", { class: "band", title: `${digits(least)} to ${digits(largest)}`, style: { left: at(from), width: `max(3px, calc(${at(to)} - ${at(from)}))` } }));
}

function formatRow(format, histogram, extremes, at, isBad) {
  const [sub, normal, top] = [format.minSubnormal, format.minNormal, format.max].map(Math.log2);
  const zone = (kind, from, to, title) => el("span", { class: `zone ${kind}`, title, style: { left: at(from), width: `calc(${at(to)} - ${at(from)})` } });
  const verdict = histogram ? shareText(shares(histogram, format), format) : extremeText(extremes, format);
  const text = verdict === "fits" && isBad ? "what is finite fits" : verdict;
  return el("div", { class: "format-line" }, el("span", { class: "format-name" }, format.label),
    el("div", { class: "range" }, zone("subnormal", sub, normal, `${format.label} subnormal: ${digits(format.minSubnormal)} to ${digits(format.minNormal)}`),
      zone("normal", normal, top, `${format.label} normal: ${digits(format.minNormal)} to ${digits(format.max)}`)),
    el("span", { class: text === "fits" ? "verdict fits" : "verdict" }, text));
}

function shareText(sum, format) {
  const parts = [];
  const share = (num) => withUnit((100 * num) / (sum.all || 1), "%");
  if (sum.over) parts.push(`${share(sum.over)} ${format.hasInf ? "overflow" : "saturate"}`);
  if (sum.flushed) parts.push(`${share(sum.flushed)} become zero`);
  if (sum.subnormal) parts.push(`${share(sum.subnormal)} subnormal`);
  return parts.join(", ") || "fits";
}

function extremeText([least, largest], format) {
  const parts = [];
  if (largest > format.max) parts.push(format.hasInf ? "the largest overflows" : "the largest saturates");
  if (least > 0 && least < format.minSubnormal / 2) parts.push("the smallest become zero");
  else if (least > 0 && least < format.minNormal) parts.push("the smallest are subnormal");
  return parts.join(", ") || "fits";
}
