import { DifferenceMap } from "./difference.js";
import { code, el, fill, keeping, visible } from "./dom.js";
import { count, digits } from "./numbers.js";
import { set } from "./state.js";

// What the panes of the run that is shown go to, for the first divergence; nothing where the runs agree.
export function firstOf(told, chosen) {
  const first = told?.first;
  return first ? { step: chosen ? first.step_b : first.step_a, layer: chosen ? first.layer_b : first.layer_a, tensor: first.tensor } : {};
}

// Two runs: where they begin to differ, and which settings are not the same.
export class Compare {
  // The sides have names; one of them is chosen and shown below, and the other one can be. Where their runs are at hand, there is a map.
  constructor(pane, comparison, sides) {
    this.pane = pane;
    [this.told, this.sides] = [comparison, sides];
    [this.text, this.details] = [el("div", {}), el("div", {})];
    const map = el("div", { id: "differences" });
    fill(pane, this.text, map, this.details);
    this.cares = ["theme"];
    map.hidden = true;
    if (!sides.runs) return;
    this.map = new DifferenceMap(map, ...sides.runs);
    map.hidden = !this.map.run.kinds.length || !this.map.run.sites.length;
    if (!map.hidden) this.cares = this.map.cares;
  }

  renew(comparison = this.told, sides = this.sides) {
    [this.told, this.sides] = [comparison, sides];
  }

  async update(changed = ["theme"]) {
    if (changed.includes("theme")) keeping(this.pane, () => this._tell());
    if (this.cares.length > 1) await this.map.update(changed);
  }

  _tell() {
    const { told, sides } = this;
    const names = sides.names.map((name) => visible(name, 60));
    fill(this.text, el("h2", {}, "Compare"),
      el("p", { class: "explain" }, "A is ", el("b", {}, names[0]), ", B is ", el("b", {}, names[1]), ". The panes below show ",
        el("select", { id: "which", "aria-label": "run shown", onchange: (event) => sides.choose(Number(event.target.value)) },
          names.map((name, i) => el("option", { value: i, selected: i === sides.chosen }, `${"AB"[i]}: ${name}`)))),
      !told ? el("p", { class: "explain" }, "They are being compared …") : told.problem ? el("p", { class: "problem" }, "▲ Their numbers can't be compared. ", visible(told.problem, 400)) : this._numbers());
    fill(this.details, !told || told.problem || !told.first ? null : this._drift(),
      !told ? null : told.settings.length ? this._settings() : el("p", { class: "explain" }, "No recorded setting differs."));
  }

  _numbers() {
    const { told } = this;
    if (!told.first) {
      return el("p", {}, el("b", {}, "The runs agree"), ` over ${count(told.num_steps, "common step")}`, told.first_unequal ? " within the rounding of their dtypes." : ", bit for bit.");
    }
    const { first } = told;
    const worst = first.measures.find((one) => one.statistic === first.worst);
    const step = (one) => (one.step_a === one.step_b ? `step ${one.step_a}` : `step ${one.step_a} of A, ${one.step_b} of B`);
    const number = (value) => (typeof value === "number" ? digits(value) : String(value ?? "–"));
    return el("div", {},
      el("p", {}, "First divergence: ", el("button", { id: "first-divergence", onclick: () => set(firstOf(told, this.sides.chosen)) },
        `${visible(first.layer_a, 100)} ${visible(first.tensor, 40)}, ${step(first)}`),
      first.nonfinite_in ? ` is not finite in ${first.nonfinite_in.toUpperCase()} alone.` : worst ? `: ${first.worst} is ${number(worst.a)} in A and ${number(worst.b)} in B.` : ""),
      el("p", { class: "explain" }, `${count(told.num_diverging_steps, "step")} of ${told.num_steps.toLocaleString("en-US")} diverge by more than their dtypes round. ${count(told.only[0], "tensor")} only in A, ${told.only[1].toLocaleString("en-US")} only in B.`));
  }

  _drift() {
    const { modules } = this.told;
    if (!modules.length) return null;
    return [el("h3", {}, "Drift by module"), el("p", { class: "explain" }, "How much more a module's result differs than what it read."), el("table", { class: "numbers" },
      el("tr", {}, ["module", "direction", "step", "drift (powers of two)"].map((name) => el("th", {}, name))),
      modules.map((one) => el("tr", {}, el("td", {}, visible(one.layer_a, 100)), el("td", {}, one.direction), el("td", { class: "num" }, one.step_a.toLocaleString("en-US")), el("td", { class: "num" }, digits(one.bits)))))];
  }

  _settings() {
    return [el("h3", {}, "Settings that differ"), el("table", { class: "numbers settings" }, el("tr", {}, ["setting", "A", "B"].map((name) => el("th", {}, name))),
      this.told.settings.map((row) => el("tr", {}, el("td", {}, visible(row[0], 100)), row.slice(1).map((value) => el("td", {}, el("pre", {}, code(value || "–")))))))];
  }
}
