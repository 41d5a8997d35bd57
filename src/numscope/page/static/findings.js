import { el, fill, keeping, visible } from "./dom.js";
import { count } from "./numbers.js";
import { set, state } from "./state.js";
import { goTo } from "./timeline.js";

const INSTALLED = /[\\/](?:site|dist)-packages[\\/]/;
const WORDS = { nan: "nan", inf: "inf", scaler_skips: "skipped steps", dead_gradients: "dead gradients" };

// The alarms of a run, each with its line: a click goes to its step, tensor and culprit.
export class Findings {
  constructor(pane, run) {
    this.cares = ["finding", "theme"];
    this.pane = pane;
    this.run = run;
  }

  update() {
    const { run } = this;
    const rest = run.numFindings - run.findings.length;
    const escaped = run.findings.filter((finding) => !finding.contained).length;
    const head = run.findings.length
      ? `${count(escaped, "finding")}${run.findings.length > escaped ? `, ${run.findings.length - escaped} contained` : ""}`
      : "No findings";
    keeping(this.pane, () => fill(this.pane, el("h2", {}, head),
      run.findings.length ? el("p", { class: "explain" }, "Bad numbers that reached the loss, a gradient, a weight or the optimizer; contained ones went nowhere. Click one for its step, tensor and line of code.")
        : el("p", { class: "explain" }, run.alerts.length && run.watched ? `No nan or inf got through ${run.isLive ? "so far" : "while numscope watched"}; see the alerts below.` : run.isLive ? "Nothing has gone bad so far: a run writes its findings as they come." : run.watched ? "Nothing went bad while numscope watched." : "This folder has no findings file: the run was not watched for bad numbers."),
      el("ol", { class: "findings" }, run.findings.map((finding, i) => this._line(finding, i))),
      rest > 0 ? el("p", { class: "hint" }, `${count(rest, "further finding")} not shown.`) : null,
      run.problems.map((problem) => el("p", { class: "problem" }, "▲ ", visible(problem, 400))),
      run.killed.length && !run.isLive ? el("p", { class: "problem" }, `▲ The run did not end by itself (${run.killed.map((name) => visible(name, 60)).join(", ")}): it was killed or still goes on.`) : null));
  }

  _line(finding, i) {
    const { culprit, site } = finding;
    const where = site.module || (site.cls ? `${site.cls} (the model)` : "loss");
    const own = culprit && INSTALLED.test(culprit.file) ? culprit.stack.findLast(([file]) => !INSTALLED.test(file)) : null; // the line of the user's that called a library
    return el("li", {}, el("button", { class: `finding${i === state.finding ? " selected" : ""}`, "aria-pressed": String(i === state.finding), onclick: () => set(goTo(this.run, i)) },
      el("span", { class: finding.contained ? "kind contained" : "kind bad" }, `✖ ${WORDS[finding.kind] ?? finding.kind}${finding.contained ? ", contained" : ""}`),
      el("span", { class: "when" }, `step ${finding.step.toLocaleString("en-US")}`, finding.rank ? `, rank ${finding.rank}` : ""),
      el("span", { class: "where", title: visible(where, 2000) }, visible(where, 80), " ", el("small", {}, visible(`${site.slot}, ${finding.phase}`, 60))),
      el("span", { class: "line" }, culprit ? [el("code", {}, visible(culprit.op, 60)), culprit.file ? ` ${visible(baseName(culprit.file), 80)}:${culprit.line}` : "", own ? ` called from ${visible(baseName(own[0]), 80)}:${own[1]}` : "", ` — ${culprit.reason}`] : finding.note ? visible(finding.note, 160) : "no operation found")));
  }
}

export function baseName(file) {
  return file.split(/[\\/]/).pop();
}
