import { Scale, ramp, theme } from "./colors.js";
import { el } from "./dom.js";
import { digits, steps } from "./numbers.js";
import { set } from "./state.js";

const RANK_LINE = 14; // pixels
const MOST_TALL = 16; // ranks; lines of more are thinner
const ODD = 2; // times the median, or its half

// One tensor on all ranks: a line each, and which of them stands apart at the step.
export async function ranksView(run, row, step) {
  const given = run.ranks;
  const place = given ? given.sites.indexOf(row) : -1;
  if (place < 0) return null;
  const all = await run.rankCells();
  const [lines, width] = [given.ranks.length, given.first.length];
  const cells = all.subarray(place * lines * width, (place + 1) * lines * width);
  let stretch = 0;
  while (stretch + 1 < width && given.first[stretch + 1] <= step) stretch++;
  const values = given.ranks.map((rank, i) => ({ rank, value: cells[i * width + stretch] })).filter(({ value }) => !Number.isNaN(value));
  const canvas = paintRanks(cells, lines, width, stretch);
  canvas.addEventListener("click", (event) => {
    const box = canvas.getBoundingClientRect();
    set({ step: given.last[Math.min(width - 1, Math.floor(((event.clientX - box.left) / box.width) * width))] });
  });
  return el("div", { class: "ranks" }, el("h3", {}, given.num_ranks > lines ? `${lines} of ${given.num_ranks.toLocaleString("en-US")} ranks, those that stand apart most` : `${lines} ranks`),
    el("p", { class: "explain" }, "Largest magnitude (the tensor's unit), light to dark, log scale: a line for each rank, a column for each step or few; ", el("b", { class: "bad" }, "orange"), " is nan or inf."),
    el("p", { id: "odd-rank" }, `${steps(given.first[stretch], given.last[stretch])}: ${oddOneOut(values)}`),
    el("div", { class: "rank-lines" }, el("div", { class: "rank-names" }, namesOf(given.ranks).map((name) => el("span", {}, name))), canvas,
      el("div", { class: "rank-steps" }, [given.first[0], given.last[width - 1]].map((at) => el("span", {}, `step ${at.toLocaleString("en-US")}`)))));
}

// Each rank's where lines are tall enough to be read, else the first and the last.
function namesOf(ranks) {
  const [first, last] = [ranks[0], ranks[ranks.length - 1]];
  return ranks.length <= MOST_TALL ? ranks.map((rank) => `rank ${rank}`) : [`rank ${first}`, "", `rank ${last}`];
}

export function oddOneOut(values) {
  const bad = values.filter(({ value }) => value === Infinity);
  if (bad.length) return `not finite on ${bad.length === values.length ? "all ranks" : `rank ${bad.slice(0, 8).map(({ rank }) => rank).join(", ")}${bad.length > 8 ? " and more" : ""}`}.`;
  const sorted = values.map(({ value }) => value).sort((a, b) => a - b);
  if (!sorted.length) return "nothing recorded.";
  const median = sorted[sorted.length >> 1];
  if (sorted.length < 3 || !median) return `the median of the ranks is ${digits(median)}.`; // the one that differs may be the one in order
  const apart = ({ value }) => (value > 0 ? Math.abs(Math.log(value / median)) : Infinity);
  const odd = values.reduce((a, b) => (apart(b) > apart(a) ? b : a));
  if (apart(odd) < Math.log(ODD)) return `the ranks agree within a factor of ${ODD}; the median is ${digits(median)}.`;
  return `rank ${odd.rank} stands apart: ${digits(odd.value)}, where the median of the ranks is ${digits(median)}.`;
}

function paintRanks(cells, lines, width, stretch) {
  const tall = lines <= MOST_TALL ? RANK_LINE : Math.max(1, Math.floor((MOST_TALL * RANK_LINE) / lines));
  const canvas = el("canvas", { width: width * 8, height: lines * tall, class: "rank-cells", style: { height: `${lines * tall}px` }, role: "img", "aria-label": "largest magnitude by rank and step" });
  const pen = canvas.getContext("2d");
  const [scale, colors] = [new Scale(cells, { unit: "value" }), ramp()];
  cells.forEach((x, i) => {
    if (Number.isNaN(x)) return;
    pen.fillStyle = x === Infinity ? theme("orange") : colors[Math.round(255 * scale.place(x))];
    pen.fillRect((i % width) * 8, Math.floor(i / width) * tall, 8, tall > 2 ? tall - 1 : tall);
  });
  pen.strokeStyle = theme("text");
  pen.strokeRect(stretch * 8 + 0.5, 0.5, 7, lines * tall - 1);
  return canvas;
}
