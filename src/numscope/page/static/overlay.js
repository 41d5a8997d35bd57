import { axisOf, boundsFor, chart, crosses, cursor, lineSeries, swatch, valueAxis } from "./charts.js";
import { LINES, lineColor } from "./colors.js";
import { el, fill, keeping, visible } from "./dom.js";
import { UNITS, digits, steps } from "./numbers.js";
import { set, state } from "./state.js";
import { inSight } from "./zoom.js";

// The tensors that are compared, as the address has them.
function pinned() {
  return state.pins.split("\n").filter(Boolean).map((one) => one.split("\t")).filter((one) => one.length === 2);
}

export function isPinned({ layer, tensor }) {
  return pinned().some(([a, b]) => a === layer && b === tensor);
}

// Of two runs each tensor has two lines.
function mostPins(run) {
  return Math.floor(LINES.length / (run.beside ? 2 : 1));
}

export function hasRoom(run) {
  return pinned().length < mostPins(run);
}

// Takes a tensor into the comparison, or out of it.
export function togglePin(run, { layer, tensor }) {
  const others = pinned().filter(([a, b]) => a !== layer || b !== tensor);
  const pins = isPinned({ layer, tensor }) ? others : [...others, [layer, tensor]].slice(0, mostPins(run));
  set({ pins: pins.map((one) => one.join("\t")).join("\n") });
}

// Several tensors in one chart, of both runs where two are compared: the statistic that the map shows.
export class Overlay {
  constructor(run) {
    this.run = run;
    this.plot = el("div", { class: "plot history", role: "img", "aria-label": "the compared tensors over the steps" });
    this.legend = el("ul", { class: "lines" });
    this.caption = el("h3", {});
    this.element = el("div", { class: "overlay" }, this.caption, this.legend, this.plot);
  }

  async draw() {
    const { run } = this;
    const turn = (this.turn = (this.turn ?? 0) + 1);
    const kind = run.kindOf.get(state.stat) ?? run.kinds[0];
    const chosen = pinned();
    const shown = (chosen.length ? chosen : run.beside ? [[state.layer, state.tensor]] : []).slice(0, mostPins(run));
    const runs = [run, ...(run.beside ? [run.beside.run] : [])];
    const lines = [];
    for (const [layer, tensor] of shown) {
      for (const [i, one] of runs.entries()) {
        const row = one.rowOf(layer, tensor);
        const [all, bad] = row < 0 ? [] : [await one.cells(kind.name), await one.cells("num_nonfinite", "max")];
        if (!all) continue;
        const own = (cells) => cells.subarray(row * one.width, (row + 1) * one.width);
        const here = (cells, worst) => (one === run ? own(cells) : one.onColumnsOf(run, own(cells), worst));
        lines.push({ layer, tensor, name: `${run.beside ? `${run.beside.names[i]}: ` : ""}${visible(layer, 80)} ${visible(tensor, 40)}`, cells: here(all, kind.worst), bad: bad && here(bad, "max") });
      }
    }
    if (turn !== this.turn) return;
    this.element.hidden = !lines.length;
    if (!lines.length) return;
    this.chart ??= chart(this.plot, (column) => set({ step: run.last[column] }), run);
    fill(this.caption, `Compared: ${kind.label} [${UNITS[kind.unit]}]`);
    keeping(this.legend, () => fill(this.legend, lines.map((line, i) => el("li", {}, swatch(lineColor(i)), el("button", { class: "label", title: "show this tensor", onclick: () => set({ layer: line.layer, tensor: line.tensor }) }, line.name),
      chosen.length ? el("button", { class: "unpin", "aria-label": `compare ${line.name} no longer`, title: "compare no longer", onclick: () => togglePin(run, line) }, "✕") : null))));
    this._draw(lines, kind);
  }

  _draw(lines, kind) {
    const { run } = this;
    const [from, to] = inSight(run);
    const isLog = state.scale ? state.scale !== "linear" : kind.unit !== "dB";
    const bounds = boundsFor(lines.flatMap(({ cells }) => [...cells.subarray(from, to + 1)]), isLog);
    const series = lines.flatMap(({ name, cells, bad }, i) => [...lineSeries(run, name, cells, { ...lineColor(i), width: 2, isLog, bad }), crosses(bad, bounds[1], `${name} nan or inf`)]);
    series[0].markLine = cursor(run);
    this.chart.setOption({
      animation: false,
      grid: { left: 62, right: 12, top: 12, bottom: 34 },
      xAxis: axisOf(run, true),
      yAxis: valueAxis(isLog, bounds, UNITS[kind.unit], 48, { axisLabel: { formatter: (x) => digits(x) }, splitNumber: 5 }),
      tooltip: { trigger: "axis", renderMode: "richText", formatter: (at) => {
        const column = Math.round(at[0].axisValue);
        return [steps(run.first[column], run.last[column]), ...lines.map(({ name, cells, bad }) => `${name} ${digits(cells[column])}${bad?.[column] > 0 ? `, ${digits(bad[column])} nan or inf` : ""}`)].join("\n");
      } },
      series,
    }, { replaceMerge: ["series", "yAxis"] });
  }
}
