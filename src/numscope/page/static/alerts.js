import { el, fill, keeping, visible } from "./dom.js";
import { count } from "./numbers.js";
import { set, state } from "./state.js";
import { goToAlert } from "./timeline.js";

const LABELS = { steps: "seen at steps", shares: "share of elements, by parameter", line: "line of the script" };

// What was about to go wrong, and what went wrong in silence: a click goes to its step and tensor.
export class Alerts {
  constructor(pane, run) {
    this.cares = ["alert", "theme"];
    this.pane = pane;
    this.run = run;
  }

  update() {
    const { run } = this;
    const rest = run.numAlerts - run.alerts.length;
    keeping(this.pane, () => fill(this.pane, el("h2", {}, count(run.numAlerts, "alert")),
      el("p", { class: "explain" }, "What was about to go wrong, and what went wrong in silence. Click one for its step and tensor.", run.alerts.some((one) => one.asks) ? " One with a question mark may be intended." : ""),
      el("ol", { class: "findings" }, run.alerts.map((alert, i) => this._line(alert, i))),
      rest > 0 ? el("p", { class: "hint" }, `${count(rest, "further alert")} not shown.`) : null,
      run.alerts[state.alert] ? this._chosen(run.alerts[state.alert]) : null));
  }

  _line(alert, i) {
    const { ranks } = alert;
    const where = alert.layer || (alert.tensor ? "" : "the whole model");
    const several = ranks.length > 1 ? `, ${ranks.length} ranks` : ranks[0] ? `, rank ${ranks[0]}` : "";
    return el("li", {}, el("button", { class: `finding alert${i === state.alert ? " selected" : ""}`, "aria-pressed": String(i === state.alert), onclick: () => set(goToAlert(this.run, i)) },
      el("span", { class: "kind warn", title: visible(alert.rule, 200) }, `⚑ ${alert.asks ? "? " : ""}${visible(alert.rule, 60)}`),
      el("span", { class: "when" }, `step ${alert.step.toLocaleString("en-US")}`, several),
      el("span", { class: "where", title: visible(where, 2000) }, visible(where, 80), " ", el("small", {}, visible(alert.tensor, 60))),
      el("span", { class: "line", title: visible(alert.text, 2000) }, visible(alert.text, 300))));
  }

  _chosen(alert) {
    const { ranks, evidence } = alert;
    const number = (value) => (typeof value === "number" ? value.toLocaleString("en-US", { maximumSignificantDigits: 6 }) : visible(value, 20));
    const facts = [];
    if (alert.value !== null) facts.push(["measured", number(alert.value)]);
    if (alert.limit !== null) facts.push(["limit", number(alert.limit)]);
    if (ranks.length > 1) facts.push(["ranks", `${ranks.slice(0, 64).join(", ")}${ranks.length > 64 ? ` and ${ranks.length - 64} more` : ""}`]);
    facts.push(...Object.entries(evidence).map(([name, value]) => [LABELS[name] ?? visible(name, 80).replace(/^num_/, "number of ").replaceAll("_", " "), visible(value, 300)]));
    return el("div", { class: "chosen" }, el("p", {}, visible(alert.text, 2000)), alert.advice ? el("p", {}, el("b", {}, "Advice: "), visible(alert.advice, 2000)) : null,
      facts.length ? el("table", { class: "numbers" }, facts.map(([name, value]) => el("tr", {}, el("th", {}, name), el("td", {}, value)))) : null);
  }
}
