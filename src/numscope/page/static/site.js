import { el, fill, keeping, save, saveImage, visible } from "./dom.js";
import { chartTools } from "./charts.js";
import { formatsView } from "./formats.js";
import { History } from "./history.js";
import { csv } from "./map.js";
import { UNITS, count, digits, steps } from "./numbers.js";
import { Overlay, hasRoom, isPinned, togglePin } from "./overlay.js";
import { ranksView } from "./ranks.js";
import { set, state } from "./state.js";
import { MARKS } from "./tree.js";

const OPPOSITE = { output: "gradient", gradient: "output", activation: "dgrad", dgrad: "activation", weight: "wgrad", wgrad: "weight" };
const BACKWARD = ["gradient", "dgrad", "wgrad"];

// A tensor: how it grew, which format would hold it, all its numbers at the step; its gradient beside it.
export class SitePane {
  constructor(pane, run) {
    this.cares = ["step", "layer", "tensor", "theme", "from", "to", "scale", "smooth", "pins", "stat"];
    this.pane = pane;
    this.run = run;
    [this.charts, this.overlay] = [[new History(run), new History(run)], new Overlay(run)];
    this.body = el("div", {});
    fill(pane, el("h2", {}, "Tensor"), this.body);
  }

  // The second chart, before a click needs it: the first drawing of a chart takes the longest.
  start() {
    const [row] = this.run.sites.keys();
    const warm = () => this.charts[1].turn ?? this.charts[1].draw(row);
    if (row !== undefined) (window.requestIdleCallback ?? setTimeout)(warm);
  }

  async update(changed) {
    if (changed.every((name) => name === "stat")) return this.overlay.draw(); // nothing else depends on it
    const { run } = this;
    const row = run.rowOf(state.layer, state.tensor);
    if (row < 0) {
      fill(this.body, el("p", { class: "explain" }, run.sites.length
        ? "Choose a tensor in the map."
        : run.isLive ? "No statistics of tensors so far: they come half a minute after a scheduled step, without a configuration at the tenth step."
        : "This run has no statistics of its tensors: it was watched for bad numbers only. numscope run --log-dir DIR with pyarrow installed keeps a short history by itself; --config FILE keeps more."));
      return;
    }
    const turn = (this.turn = (this.turn ?? 0) + 1);
    const site = run.sites[row];
    const column = run.columnOf(state.step);
    const numbers = await this._numbers(row, column);
    const histogram = await run.histogram(row, state.step);
    const ranks = await ranksView(run, row, state.step);
    if (turn !== this.turn) return; // another tensor was chosen meanwhile
    const other = this._opposite(site);
    const shown = other < 0 ? [row] : BACKWARD.includes(site.tensor.split("[")[0]) ? [other, row] : [row, other];
    const value = (name) => numbers.find((one) => one.kind.name === name)?.value ?? NaN;
    keeping(this.body, () => fill(this.body,
      el("h3", { class: "site-name", title: site.layer.slice(0, 2000) }, visible(site.layer, 120), " ", el("small", {}, visible(site.cls, 60))),
      el("div", { class: "chips" }, run.tensorsOf(site.layer).map((one) => el("button", { class: one === row ? "chip selected" : "chip", "aria-pressed": String(one === row), onclick: () => set({ tensor: run.sites[one].tensor }) }, visible(run.sites[one].tensor, 40)))),
      el("p", {}, `${site.dtype}, ${count(site.numel, "element")}${site.ranks > 1 ? `, ${count(site.ranks, "rank")}` : ""}. `, site.why ? el("b", { class: site.health }, `${MARKS[site.health]} `, site.why, site.health === "spoiled" ? " Something else went bad first." : "") : null),
      el("p", { class: "explain" }, other < 0 ? "" : "Forward and backward. ", el("span", { class: "key largest" }), " largest magnitude ", run.kindOf.has("rms") ? [el("span", { class: "key rms" }), " root mean square "] : null,
        el("span", { class: "key smallest" }), " smallest non-zero magnitude ", el("span", { class: "key limit" }), " limit of the dtype ", el("b", { class: "bad" }, "✖"), " nan or inf"),
      el("div", { class: "tools" }, chartTools("scale", "log"), el("button", { id: "pin", "aria-pressed": String(isPinned(site)), disabled: !isPinned(site) && !hasRoom(run), title: "several tensors in one chart (c)", onclick: () => togglePin(run, site) }, isPinned(site) ? "✕ compare no longer" : "+ compare this tensor")),
      el("div", { class: "pair" }, shown.map((one, i) => el("figure", {}, el("figcaption", {}, visible(run.sites[one].tensor, 40), el("small", {}, ` ${run.sites[one].dtype}`)), this.charts[i].plot))),
      this.overlay.element,
      formatsView(run, histogram, [value("abs_min"), value("amax")], site, value("num_nonfinite")),
      ranks,
      el("h3", {}, `Numbers, ${steps(run.first[column], run.last[column])}`),
      el("table", { class: "numbers" }, numbers.map(({ kind, value: x }) => el("tr", {}, el("td", {}, kind.label), el("td", { class: "num" }, digits(x)), el("td", { class: "quiet" }, UNITS[kind.unit])))),
      el("p", { class: "hint" }, "What else the run recorded, such as means and norms: numscope stats."),
      el("div", { class: "tools" }, el("button", { onclick: () => this._save(row, "csv") }, "CSV"), el("button", { onclick: () => this._save(row, "json") }, "JSON"),
        el("button", { onclick: () => saveImage("numscope-tensor.png", this.charts[shown.indexOf(row)].image()) }, "PNG")),
    ));
    await Promise.all([...shown.map((one, i) => this.charts[i].draw(one)), this.overlay.draw()]);
  }

  // The same tensor's gradient, or what a gradient is of.
  _opposite(site) {
    const [name, ...rest] = site.tensor.split("[");
    const suffix = rest.length ? `[${rest.join("[")}` : "";
    return OPPOSITE[name] ? this.run.rowOf(site.layer, OPPOSITE[name] + suffix) : -1;
  }

  async _numbers(row, column) {
    const { run } = this;
    return Promise.all(run.kinds.map(async (kind) => ({ kind, value: (await run.cells(kind.name))[row * run.width + column] })));
  }

  async _save(row, type) {
    const { run } = this;
    const all = await Promise.all(run.kinds.map(async (kind) => [kind, (await run.cells(kind.name)).subarray(row * run.width, (row + 1) * run.width)]));
    if (type === "csv") {
      const rows = run.first.map((first, i) => [first, run.last[i], ...all.map(([, cells]) => (Number.isNaN(cells[i]) ? "" : cells[i]))]);
      save("numscope-tensor.csv", "text/csv", csv([["first_step", "last_step", ...all.map(([kind]) => `${kind.name} [${UNITS[kind.unit]}]`)], ...rows]));
    } else {
      const plain = (cells) => Array.from(cells, (x) => (Number.isNaN(x) ? null : x));
      const { layer, tensor, dtype } = run.sites[row];
      const statistics = Object.fromEntries(all.map(([kind, cells]) => [kind.name, { unit: UNITS[kind.unit], values: plain(cells) }]));
      save("numscope-tensor.json", "application/json", JSON.stringify({ layer, tensor, dtype, first_step: run.first, last_step: run.last, statistics }, null, 1));
    }
  }
}
