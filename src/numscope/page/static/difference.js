import { el } from "./dom.js";
import { HeatMap } from "./map.js";
import { digits, withUnit } from "./numbers.js";
import { worstWithin } from "./run.js";

const MOST_LINES = 14; // of the map; more are scrolled
const [LEAST, MOST] = [2 ** -8, 24]; // powers of two: less is shown as equal, bfloat16 rounds by as much; where one of the two is zero

// How far two runs are from each other, as a run of its own: its statistics are the differences of those that both have, its sites those of
// both names, its columns the first run's.
export class Difference {
  constructor(a, b) {
    Object.assign(this, { a, b, width: a.width, first: a.first, last: a.last, numSteps: a.numSteps });
    this.pairs = a.sites.map((site, row) => [row, b.rowOf(site.layer, site.tensor)]).filter(([, other]) => other >= 0);
    this.sites = this.pairs.map(([row]) => ({ ...a.sites[row], health: undefined, why: "" }));
    this.rows = this.sites.map((site) => `${site.layer}\n${site.tensor}`);
    this.kinds = a.kinds.filter((kind) => b.kindOf.has(kind.name) && kind.name !== "num_nonfinite").map((kind) => ({ ...kind, worst: "max", ...(isRatio(kind) ? { unit: "log2", least: LEAST } : {}) }));
    this.kindOf = new Map(this.kinds.map((kind) => [kind.name, kind]));
    this.stretches = a.first.map((first, column) => b.columnsWithin(first, a.last[column]));
    this._made = new Map();
  }

  columnOf(step) {
    return this.a.columnOf(step);
  }

  async cells(name) {
    if (!this._made.has(name)) this._made.set(name, name === "num_nonfinite" ? await this._bad() : await this._differences(name));
    return this._made.get(name);
  }

  // Both runs' values at a cell.
  async values(name, row, column) {
    const [ours, theirs] = this.pairs[row];
    const kind = this.a.kindOf.get(name);
    return [(await this.a.cells(name))[ours * this.width + column], worstWithin(await this.b.cells(name), theirs * this.b.width, this.stretches[column], kind.worst)];
  }

  async _differences(name) {
    const kind = this.a.kindOf.get(name);
    const [of, bad] = [isRatio(kind) ? ratio : (x, y) => Math.abs(x - y), await this.cells("num_nonfinite")];
    const cells = await this._both(name, kind, of);
    return cells.map((x, i) => (bad[i] > 0 ? NaN : x));
  }

  // 1 where one of the two is not finite, and the other is.
  async _bad() {
    return this._both("num_nonfinite", this.a.kindOf.get("num_nonfinite"), (x, y) => Number(x > 0 !== y > 0));
  }

  async _both(name, kind, of) {
    const [ours, theirs] = [await this.a.cells(name), await this.b.cells(name)];
    const found = new Float32Array(this.sites.length * this.width).fill(NaN);
    this.pairs.forEach(([row, other], i) => {
      for (let column = 0; column < this.width; column++) {
        const [x, y] = [ours[row * this.width + column], worstWithin(theirs, other * this.b.width, this.stretches[column], kind.worst)];
        if (!Number.isNaN(x) && !Number.isNaN(y)) found[i * this.width + column] = of(x, y);
      }
    });
    return found;
  }
}

function isRatio(kind) {
  return ["value", "ratio", "count"].includes(kind.unit);
}

function ratio(x, y) {
  if (x === y) return 0;
  return x && y ? Math.min(MOST, Math.abs(Math.log2(Math.abs(x / y)))) : MOST;
}

// The map of where two runs differ.
export class DifferenceMap extends HeatMap {
  constructor(pane, a, b) {
    super(pane, new Difference(a, b), MOST_LINES);
  }

  _head() {
    return [
      el("h3", {}, "Where they differ"),
      el("p", { class: "explain" }, "The stronger a cell's color, the farther B is from A: the faintest is equal or nearly so, 1 power of two a factor of 2. ",
        el("b", { class: "bad" }, "✖ orange"), " is not finite in one of the two alone; cells without a color are not in both. The statistic is the map's below."),
      el("div", { class: "tools" }, this.legend),
    ];
  }

  _hint() {
    return "Click a cell: the panes below go to its tensor and step.";
  }

  _told(value, bad, { line, column }) {
    const told = bad > 0 ? "not finite in one of the two alone" : Number.isNaN(value) ? "not in both" : `${withUnit(value, this.kind.unit)} apart`;
    this.info.dataset.at = `${line.row} ${column}`;
    if (line.row >= 0) {
      this.run.values(this.kind.name, line.row, column).then(([x, y]) => {
        if (this.info.dataset.at === `${line.row} ${column}`) this.info.append(` (A ${digits(x)}, B ${digits(y)})`);
      });
    }
    return `${this.kind.label}: ${told}`;
  }
}
