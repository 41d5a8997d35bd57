import { code, el, fill, keeping, visible } from "./dom.js";
import { baseName } from "./findings.js";
import { count, digits, number, withUnit } from "./numbers.js";
import { set, state } from "./state.js";

const MOST_BESIDE = 5; // producers, victims

// What made the first bad number: the operation, its line, its inputs; what came before it and what it spoiled.
export class CulpritPane {
  constructor(pane, run) {
    this.cares = ["finding", "theme"];
    this.pane = pane;
    this.run = run;
    this.renew();
  }

  renew() {
    this.sources = new Map(this.run.sources.map((source) => [`${source.file}\n${source.line}`, source]));
  }

  // What is shown already is not drawn again: somebody may be reading it, or be copying from it.
  async update() {
    const { run } = this;
    const finding = run.findings[state.finding];
    const victims = finding ? await this._victims(finding) : [];
    const of = JSON.stringify([finding, run.sources, run.command, run.sites.length > 0, victims.map(({ site, row, num }) => [site.layer, site.tensor, row, num])]);
    if (of === this.of) return;
    this.of = of;
    if (!finding) {
      fill(this.pane, el("h2", {}, "Culprit"), el("p", { class: "explain" }, "Choose a finding above."));
      return;
    }
    const { culprit } = finding;
    keeping(this.pane, () => fill(this.pane,
      el("h2", {}, "Culprit"),
      culprit ? this._head(finding, culprit) : el("p", {}, "The operation is not known: ", visible(finding.replay, 400), finding.note ? ` ${visible(finding.note, 600)}` : "", ". The frames below end at the first bad value."),
      culprit ? this._source(culprit) : null,
      culprit ? [el("h3", {}, "Its operands"), operands(culprit), el("p", { class: "explain" }, "Magnitudes of finite elements, in the tensor's unit; numbers of elements that are nan or inf.")] : null,
      el("h3", {}, "Before and after"),
      el("p", { class: "explain" }, "Left: the calls that came before it, oldest first. Right: tensors that were not finite in the same step."),
      this._graph(finding, victims),
      culprit && culprit.stack.length > 1 ? [el("h3", {}, "Called from"), this._stack(culprit)] : null,
      el("h3", {}, "Reproduce"),
      run.command ? [el("pre", { class: "command" }, code(run.command)), el("p", { class: "explain" }, "The command of the run, as it was started", run.versions.torch ? ` (torch ${visible(run.versions.torch, 40)}, Python ${visible(run.versions.python ?? "", 40)})` : "", ".")]
        : el("p", { class: "explain" }, "The run did not record its command line."),
      el("details", {}, el("summary", {}, `${count(finding.frames.length, "frame")} up to the first bad value`), this._frames(finding)),
    ));
  }

  _head(finding, culprit) {
    return el("div", { class: "verdict-box" },
      el("p", { class: "headline" }, el("code", {}, visible(culprit.op, 80)), ` (${finding.culprit.phase})`, culprit.module ? [" in ", el("b", {}, visible(culprit.module, 120))] : "",
        " made the first ", el("b", { class: "bad" }, visible(finding.kind, 20)), ` at step ${finding.step.toLocaleString("en-US")}`, finding.rank ? ` on rank ${finding.rank}` : "", "."),
      el("p", {}, el("b", {}, "Reason: "), `${culprit.reason}. `, visible(culprit.detail, 600)),
      culprit.advice ? el("p", { class: "advice" }, el("b", {}, "Advice: "), visible(culprit.advice, 600), culprit.advice_tried ? "" : " (Not tried.)") : null,
      (culprit.tried ?? []).map((one) => el("p", { class: one.worked ? "advice" : "" }, el("b", {}, "Tried: "), visible(`${one.remedy}: ${one.worked ? "" : "does not cure it: "}${one.outcome}`, 600))),
      finding.note ? el("p", {}, el("b", {}, "Note: "), visible(finding.note, 600)) : null);
  }

  _source(culprit) {
    if (!culprit.file) return el("p", { class: "explain" }, "The line is not known.");
    const source = this.sources.get(`${culprit.file}\n${culprit.line}`);
    const title = el("p", { class: "file" }, el("b", { title: visible(culprit.file, 2000) }, `${visible(shortName(culprit.file), 160)}:${culprit.line}`), culprit.phase === "backward" ? " (the forward line that it is the gradient of)" : "");
    const lines = source ? source.lines.map((text, i) => this._codeLine(source.first + i, text, source.first + i === culprit.line)) : [this._codeLine(culprit.line, culprit.code, true)];
    const note = source ? "The line is the one that the run recorded; its neighbors were read when this page was made."
      : "Only this line was recorded with the run: when this page was made, the file was not there or had changed.";
    return el("div", {}, title, el("pre", { class: "source" }, lines), el("p", { class: "explain" }, note));
  }

  _codeLine(line, text, isCulprit) {
    return el("span", { class: isCulprit ? "code-line culprit-line" : "code-line" }, el("span", { class: "line-number" }, isCulprit ? `➤ ${line}` : `${line}`), `${code(text)}\n`);
  }

  _stack(culprit) {
    return el("ol", { class: "stack" }, [...culprit.stack].reverse().map(([file, line, name, text]) => {
      const source = this.sources.get(`${file}\n${line}`);
      return el("li", {}, el("span", { title: visible(file, 2000) }, `${visible(baseName(file), 80)}:${line} in ${visible(name, 80)}`),
        source ? el("details", {}, el("summary", {}, el("code", {}, code(text.trim()))), el("pre", { class: "source" }, source.lines.map((one, i) => this._codeLine(source.first + i, one, source.first + i === line))))
          : el("div", {}, el("code", {}, code(text.trim()))));
    }));
  }

  // Rows that were not finite at the finding's step, in execution order, but the finding's own.
  async _victims(finding) {
    const { run } = this;
    const bad = run.sites.length ? await run.cells("num_nonfinite", "max") : null;
    if (!bad) return [];
    const column = run.columnOf(finding.step);
    if (run.first[column] > finding.step || run.last[column] < finding.step) return [];
    return run.sites.flatMap((site, row) => (bad[row * run.width + column] > 0 && row !== finding.row ? [{ site, row, num: bad[row * run.width + column] }] : []));
  }

  _graph(finding, victims) {
    const { culprit, site } = finding;
    const before = finding.frames.slice(0, -1).slice(-MOST_BESIDE);
    const box = (title, text, kind, onclick) => el(onclick ? "button" : "div", { class: `box ${kind}`, onclick: onclick ?? (() => {}) }, el("b", { title: visible(title, 2000) }, breakable(visible(title, 80))), el("small", {}, text));
    const nameOf = (at) => at.module || at.cls || at.phase;
    const results = (frame) => frame.lines.filter((line) => line.numbers).slice(-1).map((line) => `${line.slot}: ${rangeOf(line.numbers)}`).join("");
    const more = victims.length - MOST_BESIDE;
    const rowOf = (frame) => this.run.rowOf(frame.module || frame.cls, "output");
    const goTo = (row) => (row < 0 ? null : () => set({ layer: this.run.sites[row].layer, tensor: this.run.sites[row].tensor, step: finding.step }));
    return el("div", { class: "graph" },
      el("div", { class: "stage" }, before.length ? before.map((frame) => box(nameOf(frame), `${frame.phase}, ${results(frame)}`, "calm", goTo(rowOf(frame)))) : el("small", {}, "nothing recorded")),
      el("div", { class: "arrow" }, "➜"),
      el("div", { class: "stage" }, box(culprit ? culprit.op : nameOf(site), culprit ? `${baseName(visible(culprit.file, 80))}:${culprit.line}, first seen in ${visible(site.module || site.cls || "loss", 60)} ${visible(site.slot, 40)}` : visible(site.slot, 40), "bad-box", goTo(finding.row))),
      el("div", { class: "arrow" }, "➜"),
      el("div", { class: "stage" }, victims.length ? [victims.slice(0, MOST_BESIDE).map(({ site: at, row, num }) => box(`${at.layer} ${at.tensor}`, `${withUnit(num, "count")} nan or inf`, "bad-box", goTo(row))), more > 0 ? el("small", {}, `and ${more} more`) : null]
        : el("small", {}, this.run.sites.length ? "no other tensor" : "not recorded: the run has no statistics")));
  }

  _frames(finding) {
    return finding.frames.map((frame) => el("div", { class: "frame" }, el("b", {}, visible(frame.module || "(model)", 120)), ` ${visible(frame.cls, 60)} `, el("small", {}, frame.phase),
      el("table", { class: "numbers" }, frame.lines.map((line) => el("tr", {}, el("td", {}, visible(line.slot, 60)), line.numbers ? cells(line.numbers) : el("td", { colspan: "6", class: "quiet" }, visible(line.note || "None", 60)))))));
  }
}

// A file of a package by its place there, another one by its last folders.
function shortName(file) {
  const [, ofPackage] = /[\\/](?:site|dist)-packages[\\/](.*)/.exec(file) ?? [];
  const parts = file.split(/[\\/]/);
  return ofPackage ?? (parts.length > 4 ? `…/${parts.slice(-3).join("/")}` : file);
}

// A dotted name that may break after each dot.
function breakable(name) {
  return name.split(/(?<=\.)/).flatMap((part) => [part, el("wbr")]);
}

// The smallest magnitude: zero where an element is.
function smallest(numbers) {
  return numbers.num_zero ? 0 : number(numbers.abs_min ?? (numbers.num_pos_inf + numbers.num_neg_inf ? "inf" : null));
}

function rangeOf(numbers) {
  const num = numbers.num_nan + numbers.num_pos_inf + numbers.num_neg_inf;
  const range = numbers.abs_max === null ? "no finite number" : `|x| ${digits(smallest(numbers))} to ${digits(number(numbers.abs_max))}`;
  return num ? `${range}, ${count(num, "element")} not finite` : range;
}

function cells(numbers) {
  const inf = numbers.num_pos_inf + numbers.num_neg_inf;
  const num = (value, isBad) => el("td", { class: isBad ? "num bad" : "num" }, value);
  return [el("td", {}, numbers.dtype), el("td", {}, numbers.shape.length ? numbers.shape.join(" × ") : "scalar"), ...[smallest(numbers), inf ? Infinity : number(numbers.abs_max)].map((x) => num(numbers.num_nan ? "nan" : digits(x))),
    num(digits(numbers.num_nan), numbers.num_nan > 0), num(digits(inf), inf > 0)];
}

function operands(culprit) {
  const row = (operand, isOutput) => el("tr", {}, el("td", {}, isOutput ? "➜ " : "", visible(operand.name || (isOutput ? "output" : "input"), 60)),
    operand.numbers ? cells(operand.numbers) : el("td", { colspan: "6" }, el("code", {}, visible(operand.value, 200))));
  return el("table", { class: "numbers" }, el("thead", {}, el("tr", {}, ["operand", "dtype", "shape", "min |x|", "max |x|", "nan", "inf"].map((name) => el("th", {}, name)))),
    el("tbody", {}, culprit.inputs.map((one) => row(one, false)), culprit.outputs.map((one) => row(one, true))));
}
