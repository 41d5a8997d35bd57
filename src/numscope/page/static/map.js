import { Scale, ramp, theme } from "./colors.js";
import { el, fill, save, saveImage, visible } from "./dom.js";
import { UNITS, steps, withUnit } from "./numbers.js";
import { set, state } from "./state.js";
import { MARKS, buildTree, linesOf, matcher, openSome, openTo, sameOpen, setAll } from "./tree.js";
import { draggable, inSight } from "./zoom.js";

const LINE = 18; // pixels
const MOST_VISIBLE = 26; // lines; more are scrolled
const SHOWN = { all: () => true, origin: (health) => health === "bad", rising: (health) => health === "bad" || health === "warn" };

// Sites by steps: the module tree on the left, a statistic's history as colors beside it. What several steps or sites share is their worst.
export class HeatMap {
  constructor(pane, run, most = MOST_VISIBLE) {
    this.cares = ["step", "layer", "tensor", "stat", "search", "theme", "from", "to"];
    this.pane = pane;
    this.run = run;
    this.most = most;
    this.root = buildTree(run.sites);
    openSome(this.root, most);
    this.merged = new Map(); // of modules: by statistic and path
    this.lines = [];
    this.first = 0;
    this._build();
    this._tell();
  }

  // The run has changed: the same modules stay open, and the same line stays on top.
  renew() {
    const root = buildTree(this.run.sites);
    sameOpen(root, this.root);
    const top = this.lines[this.first];
    const below = this.view.scrollTop - LINE * this.first;
    [this.root, this.cells] = [root, null]; // nothing is drawn until its numbers are there
    this.merged.clear();
    this._tell();
    this._lay();
    const nameOf = (line) => (line ? `${line.node.path}\n${line.name}` : "");
    const at = this.lines.findIndex((line) => nameOf(line) === nameOf(top));
    if (at >= 0 && at !== this.first) this.view.scrollTop = LINE * at + below;
  }

  _tell() {
    const { run } = this;
    const names = run.kinds.map((kind) => kind.name).join();
    if (this.select.dataset.of !== names) {
      this.select.dataset.of = names;
      fill(this.select, run.kinds.map((kind) => el("option", { value: kind.name }, `${kind.label} [${UNITS[kind.unit]}]`)));
    }
    const several = run.first.length < run.numSteps;
    fill(this.explained, "Each line is a tensor of a layer, or all tensors of a folded module; each column a step",
      several ? " or several steps, of which the worst is shown; near findings each step has its own. " : ". ",
      el("b", { class: "bad" }, "✖ orange"), " holds nan or inf; cells without a color were not recorded. Beside a name: ", el("b", { class: "bad" }, "✖"), " went bad first, ",
      el("b", { class: "spoiled" }, MARKS.spoiled), " was spoiled by that, ", el("b", { class: "warn" }, "▲"), " is close to it.");
  }

  _build() {
    this.select = el("select", { id: "statistic", title: "the statistic that the colors show", onchange: () => set({ stat: this.select.value }) });
    this.explained = el("p", { class: "explain" });
    this.search = el("input", {
      type: "search", id: "search", placeholder: "search: name or /regex/", "aria-label": "search modules by name or regular expression",
      oninput: () => set({ search: this.search.value }),
    });
    this.shown = el("select", { id: "shown", "aria-label": "which tensors are listed", onchange: () => (this._lay(), this.draw()) },
      el("option", { value: "all" }, "all tensors"), el("option", { value: "rising" }, "origin and rising"),
      el("option", { value: "origin" }, "origin"));
    this.nothing = el("p", { class: "problem", "aria-live": "polite" });
    this.legend = el("div", { class: "legend" });
    this.own = el("input", { type: "checkbox", id: "own", onchange: () => this.draw() });
    this.info = el("div", { class: "hint", "aria-live": "polite" });
    this.labels = el("div", { class: "labels" });
    this.canvas = el("canvas", { class: "cells", tabindex: "0", role: "img", "aria-label": "map of sites by steps; arrow keys move" });
    const box = el("div", { class: "cells-box" }, this.canvas);
    draggable(box, (x) => this._columnAt(x / box.clientWidth), this.run);
    this.space = el("div", { class: "space" });
    this.view = el("div", { class: "view", onscroll: () => this.draw() }, el("div", { class: "sticky" }, this.labels, box), this.space);
    this.axis = el("div", { class: "axis" });
    fill(this.pane, this._head(), this.nothing, this.view, this.axis, this.info);
    this.canvas.addEventListener("mousemove", (event) => this._hover(event));
    this.canvas.addEventListener("mouseleave", () => fill(this.info, this._hint()));
    this.canvas.addEventListener("click", (event) => this._click(event));
    fill(this.info, this._hint());
  }

  _head() {
    return [
      el("h2", {}, "Map"),
      this.explained,
      el("div", { class: "tools" }, el("label", {}, "Statistic ", this.select), this.legend,
        el("label", { title: "each line from light, its own smallest value, to dark, its own largest: shows how it moves" }, this.own, " each line by itself"), this.shown, this.search,
        el("button", { onclick: () => this._fold(true) }, "unfold all"), el("button", { onclick: () => this._fold(false) }, "fold all"),
        el("button", { onclick: () => this._saveCsv(), title: "all sites and columns of this statistic" }, "CSV"),
        el("button", { onclick: () => saveImage("numscope-map.png", this.canvas.toDataURL()) }, "PNG")),
    ];
  }

  _hint() {
    return "Click a cell for its tensor and step; drag over steps to zoom. Keys: ← → steps, ↑ ↓ lines, + − zoom, Esc all steps, c compare, n p findings, a A alerts, / search, t theme.";
  }

  async update(changed) {
    if (changed.includes("stat")) {
      this.kind = this.run.kindOf.get(state.stat) ?? this.run.kinds[0];
      this.select.value = this.kind.name;
      const [cells, bad] = [await this.run.cells(this.kind.name), await this.run.cells("num_nonfinite", "max")];
      [this.cells, this.bad] = [cells, bad];
      this.scale = new Scale(this.cells, this.kind);
    }
    if (changed.includes("theme") || changed.includes("stat")) {
      this.colors = ramp();
      this._legend();
    }
    if (changed.includes("layer")) openTo(this.root, state.layer);
    if (changed.includes("search")) this.search.value = state.search;
    if (changed.some((name) => ["search", "layer", "tensor"].includes(name))) this._lay();
    if (changed.some((name) => ["layer", "tensor"].includes(name))) this._show();
    this.draw();
  }

  _legend() {
    const bar = el("canvas", { width: 128, height: 12, class: "ramp" });
    const pen = bar.getContext("2d");
    this.colors.forEach((color, i) => {
      pen.fillStyle = color;
      pen.fillRect(i / 2, 0, 1, 12);
    });
    const { low, high, isLog } = this.scale;
    this.legend.dataset.of = this.kind.name;
    fill(this.legend, withUnit(low, this.kind.unit), bar, withUnit(high, this.kind.unit), el("small", {}, isLog ? " log scale" : ""));
  }

  _fold(open) {
    setAll(this.root, open);
    this._lay();
    this.draw();
  }

  _lay() {
    const { test, error } = matcher(state.search, this.run.sites);
    this.search.setCustomValidity(error);
    this.search.title = error;
    const isShown = SHOWN[this.shown.value];
    const matches = this.shown.value === "all" ? test : (row) => isShown(this.run.sites[row].health) && (!test || test(row));
    this.lines = linesOf(this.root, matches).map((line) => ({ ...line, name: this.run.sites[line.row]?.tensor ?? "" }));
    fill(this.nothing, error ? `The search is no regular expression: ${visible(error, 200)}` : this.lines.length || !matches ? "" : `No tensor matches${state.search.trim() ? ` “${visible(state.search.trim(), 80)}”` : ""}${this.shown.value === "all" ? "" : " among those that are listed"}.`);
    this.view.style.height = `${LINE * Math.max(1, Math.min(this.most, this.lines.length))}px`;
    this.space.style.height = `${LINE * this.lines.length}px`;
    this.top = this.view.scrollTop;
  }

  // Scrolls to the selected line.
  _show() {
    const at = this.lines.findIndex((line) => this._isSelected(line));
    const num = Math.min(this.most, this.lines.length);
    const first = this.view.scrollTop / LINE;
    if (at >= 0 && (at < first || at >= first + num - 1)) this.view.scrollTop = LINE * Math.max(0, at - (num >> 1));
  }

  _isSelected(line) {
    const site = this.run.sites[line.row];
    return site !== undefined && site.layer === state.layer && site.tensor === state.tensor;
  }

  // The cells of a line and whether they are finite: a tensor's, or the worst of a module's.
  _row(line) {
    const { width } = this.run;
    const part = (row) => [this.cells.subarray(row * width, (row + 1) * width), this.bad.subarray(row * width, (row + 1) * width)];
    if (line.row >= 0) return part(line.row);
    const key = `${this.kind.name} ${line.node.path}`;
    if (!this.merged.has(key)) {
      const worst = new Float32Array(width).fill(NaN);
      const bad = new Float32Array(width).fill(NaN);
      for (const row of line.node.below) {
        const [cells, nonfinite] = part(row);
        for (let i = 0; i < width; i++) {
          if (isWorse(cells[i], worst[i], this.kind)) worst[i] = cells[i];
          if (!(nonfinite[i] <= bad[i])) bad[i] = nonfinite[i] >= 0 ? nonfinite[i] : bad[i];
        }
      }
      this.merged.set(key, [worst, bad]);
    }
    return this.merged.get(key);
  }

  draw() {
    if (!this.cells || !this.lines) return;
    const num = Math.min(this.most, this.lines.length);
    const first = Math.max(0, Math.min(this.lines.length - num, Math.round(this.view.scrollTop / LINE)));
    this.first = first;
    const shown = this.lines.slice(first, first + num);
    fill(this.labels, shown.map((line) => this._label(line)));
    const ratio = window.devicePixelRatio || 1;
    this.view.style.marginRight = `${this.view.clientWidth - this.view.offsetWidth}px`; // its scrollbar takes no room: columns stand below the timeline's
    const wide = this.canvas.clientWidth;
    this.canvas.style.height = `${num * LINE}px`;
    [this.canvas.width, this.canvas.height] = [Math.round(wide * ratio), Math.round(num * LINE * ratio)];
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const mark = theme("orange");
    shown.forEach((line, i) => this._paint(pen, this._row(line), i * LINE, wide, mark));
    this._cursor(pen, wide, num * LINE, shown);
    this._ticks(wide);
  }

  // A pixel shows the worst of its columns, a column that is wider than a pixel all of it.
  _paint(pen, [cells, bad], y, wide, mark) {
    const [begin, end] = inSight(this.run);
    const width = end - begin + 1;
    const num = Math.min(width, Math.floor(wide));
    const scale = this.own.checked ? new Scale(cells, this.kind) : this.scale;
    for (let k = 0; k < num; k++) {
      const [from, to] = [begin + Math.floor((k * width) / num), begin + Math.floor(((k + 1) * width) / num)];
      let worst = NaN;
      let isBad = false;
      for (let i = from; i < to; i++) {
        if (isWorse(cells[i], worst, this.kind)) worst = cells[i];
        isBad ||= bad[i] > 0;
      }
      if (!isBad && Number.isNaN(worst)) continue;
      const [x, right] = [Math.round((k * wide) / num), Math.round(((k + 1) * wide) / num)];
      pen.fillStyle = isBad ? mark : this.colors[Math.round(255 * scale.place(worst))];
      pen.fillRect(x, y, right - x, LINE - 1);
      if (isBad && right - x >= 9) {
        pen.fillStyle = theme("ground");
        pen.font = "11px sans-serif";
        pen.textAlign = "center";
        pen.fillText("✖", (x + right) / 2, y + LINE - 6);
      }
    }
  }

  _cursor(pen, wide, tall, shown) {
    const column = this.run.columnOf(state.step);
    const [from, to] = inSight(this.run);
    const each = wide / (to - from + 1);
    pen.strokeStyle = theme("text");
    pen.lineWidth = 1.5;
    pen.strokeRect((column - from) * each, 0, Math.max(2, each), tall - 1);
    const at = shown.findIndex((line) => this._isSelected(line));
    if (at >= 0) pen.strokeRect(0.5, at * LINE, wide - 1, LINE - 1);
  }

  _ticks(wide) {
    const [from, last] = inSight(this.run);
    const every = Math.max(1, Math.ceil((last - from) / Math.max(1, Math.floor(wide / 90) - 1)));
    const columns = this.run.first.map((_, column) => column).filter((column) => column === last || (column >= from && (column - from) % every === 0 && last - column >= every));
    fill(this.axis, el("span", { class: "axis-name" }, "step"), columns.map((column) =>
      el("span", { class: "tick", style: { left: `calc(var(--label) + (100% - var(--label)) * ${(column - from + 0.5) / (last - from + 1)})` } },
        this.run.first[column].toLocaleString("en-US"))));
  }

  _label(line) {
    const { node } = line;
    const site = this.run.sites[line.row];
    const health = site ? site.health : node.health;
    const name = site ? site.tensor : node.name;
    const hasMore = !site && (node.children.size || node.rows.length);
    const why = site ? site.why ?? "" : health ? "a tensor below is not well" : "";
    return el("button", {
      class: `label${this._isSelected(line) ? " selected" : ""}${site ? " tensor" : ""}`,
      style: { paddingLeft: `calc(4px + var(--indent) * ${line.depth})`, height: `${LINE}px` },
      title: `${visible(site ? `${site.layer} ${site.tensor}` : node.path)}${why ? `\n${why}` : ""}`,
      "aria-expanded": hasMore ? String(node.open) : null,
      onclick: () => (site ? set({ layer: site.layer, tensor: site.tensor }) : this._toggle(node)),
    }, el("span", { class: "fold" }, hasMore ? (node.open || state.search.trim() || this.shown.value !== "all" ? "▾" : "▸") : ""), el("span", { class: "name" }, visible(name || "(no name)", 60)),
    health ? el("span", { class: health }, MARKS[health]) : null);
  }

  _toggle(node) {
    node.open = !node.open;
    this._lay();
    this.draw();
  }

  _at(event) {
    if (!this.cells) return null;
    const box = this.canvas.getBoundingClientRect();
    const line = this.lines[this.first + Math.floor((event.clientY - box.top) / LINE)];
    return line ? { line, column: this._columnAt((event.clientX - box.left) / box.width) } : null;
  }

  _columnAt(share) {
    const [from, to] = inSight(this.run);
    return Math.max(from, Math.min(to, from + Math.floor(share * (to - from + 1))));
  }

  _hover(event) {
    const at = this._at(event);
    if (!at) return;
    const [cells, bad] = this._row(at.line);
    const site = this.run.sites[at.line.row];
    const name = site ? `${site.layer} ${site.tensor}` : `${at.line.node.path} (worst tensor)`;
    fill(this.info, `${visible(name, 120)}, ${steps(this.run.first[at.column], this.run.last[at.column])}: ${this._told(cells[at.column], bad[at.column], at)}`);
  }

  _told(value, bad) {
    const worse = bad > 0 ? `, ${withUnit(bad, "count")} nan or inf` : "";
    return `${this.kind.label} ${Number.isNaN(value) ? "not recorded" : withUnit(value, this.kind.unit)}${worse}`;
  }

  // A cell of a module leads to the tensor that is worst in it.
  _click(event) {
    const at = this._at(event);
    if (!at) return;
    const rows = at.line.row >= 0 ? [at.line.row] : at.line.node.below;
    const cell = (cells, row) => cells[row * this.run.width + at.column];
    const worst = rows.reduce((a, b) => {
      if (cell(this.bad, a) > 0 !== cell(this.bad, b) > 0) return cell(this.bad, a) > 0 ? a : b;
      return cell(this.bad, a) > 0 || !isWorse(cell(this.cells, b), cell(this.cells, a), this.kind) ? a : b;
    });
    const { layer, tensor } = this.run.sites[worst];
    set({ step: this.run.last[at.column], layer, tensor });
  }

  // The next line of a tensor, up or down.
  move(by) {
    const rows = this.lines.filter((line) => line.row >= 0);
    const at = rows.findIndex((line) => this._isSelected(line));
    const next = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
    if (next) set({ layer: this.run.sites[next.row].layer, tensor: this.run.sites[next.row].tensor });
  }

  _saveCsv() {
    const { run } = this;
    const head = ["layer", "tensor", "unit", ...run.first.map((first, i) => (first === run.last[i] ? first : `${first}-${run.last[i]}`))];
    const rows = run.sites.map((site, row) => [site.layer, site.tensor, UNITS[this.kind.unit],
      ...[...this.cells.subarray(row * run.width, (row + 1) * run.width)].map((x) => (Number.isNaN(x) ? "" : x))]);
    save(`numscope-${this.kind.name}.csv`, "text/csv", csv([head, ...rows]));
  }
}

function isWorse(x, than, kind) {
  if (Number.isNaN(x)) return false;
  return Number.isNaN(than) || (kind.worst === "max" ? x > than : x < than);
}

// Text that begins like a formula gets an apostrophe: spreadsheets run those of files that they open.
export function csv(rows) {
  const cell = (x) => {
    const text = typeof x === "string" && /^[=+\-@\t\r]/.test(x) ? `'${x}` : String(x);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}
