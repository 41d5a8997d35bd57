import { theme } from "./colors.js";
import { axisOf, chart, grid } from "./charts.js";
import { el, fill, keeping, visible } from "./dom.js";
import { count, steps } from "./numbers.js";
import { set, state } from "./state.js";

const MOST_MARKS = 300;

// Steps with findings, alerts and events, and the loss below them.
export class Timeline {
  constructor(pane, run) {
    this.cares = ["step", "finding", "alert", "theme"];
    this.pane = pane;
    this.run = run;
    this.lane = el("div", { class: "lane" });
    this.plot = el("div", { class: "plot loss" });
    this._build();
  }

  _build() {
    const { run, pane } = this;
    const recorded = run.loss ? "" : " The run did not record its loss.";
    const marks = [run.findings.length ? `✖ finding${run.findings.some((one) => one.contained) ? " (gray: contained)" : ""}` : "", run.alerts.length ? "⚑ alert" : "", run.events.length ? "◆ event" : "", run.restarts.length ? "⟳ restart" : ""].filter(Boolean).join(", ");
    fill(pane, el("h2", {}, "Timeline"), el("p", { class: "explain" }, `${marks ? `${marks}. ` : ""}Click to go to a step.${recorded}`), this.lane, run.loss ? this.plot : null);
  }

  async start() {
    const loss = await this.run.lossCells();
    if (!loss) return;
    this.chart ??= chart(this.plot, (column) => set({ step: this.run.last[column] }), this.run);
    this.loss = loss;
  }

  async renew() {
    this._build();
    await this.start();
  }

  update() {
    const { run } = this;
    const findings = run.findings.map((finding, i) => ({ step: finding.step, i, go: goTo, mark: "✖", kind: finding.contained ? "contained" : "bad", isChosen: i === state.finding,
      title: `step ${finding.step}: ${finding.kind}${finding.contained ? " (contained)" : ""} in ${visible(finding.site.module || finding.site.cls || "loss", 80)}` }));
    const alerts = run.alerts.map((alert, i) => ({ step: alert.step, i, go: goToAlert, mark: "⚑", kind: "warn", isChosen: i === state.alert,
      title: `step ${alert.step}: ${visible(alert.rule, 80)}${alert.layer ? ` in ${visible(alert.layer, 80)}` : ""}` }));
    const events = run.events.map((event) => ({ step: event.step, mark: "◆", kind: "event", title: `step ${event.step}, ${event.num_ranks > 1 ? `${event.num_ranks} ranks` : `rank ${event.rank}`}: ${visible(event.text)}` }));
    const restarts = run.restarts.map((one) => ({ ...one, mark: "⟳", kind: "restart", title: `step ${one.step}: ${one.text}` }));
    keeping(this.lane, () => fill(this.lane, [...restarts, ...events, ...alerts, ...findings].slice(-MOST_MARKS).map((one) => {
      const column = run.columnOf(one.step);
      return el("button", {
        class: `mark ${one.kind}${one.isChosen ? " selected" : ""}`, title: one.title, "aria-label": one.title,
        style: { left: `calc(var(--label) + (100% - var(--label)) * ${(column + 0.5) / run.width})` },
        onclick: () => set(one.go ? one.go(run, one.i) : { step: one.step }),
      }, one.mark);
    }), el("span", { class: "lane-name" }, `${count(run.numSteps, "recorded step")}; shown: ${steps(run.first[run.columnOf(state.step)], run.last[run.columnOf(state.step)])}`),
    el("span", { class: "cursor", style: { left: `calc(var(--label) + (100% - var(--label)) * ${(run.columnOf(state.step) + 0.5) / run.width})` } })));
    if (this.chart) this._draw();
  }

  _draw() {
    const { run, loss } = this;
    const points = (cells) => Array.from(cells, (x, i) => [i, Number.isNaN(x) ? null : x]);
    const line = (name, cells, width) => ({ name, type: "line", data: points(cells), showSymbol: run.width < 60, symbolSize: 4, connectNulls: true,
      lineStyle: { width, color: theme("accent") }, itemStyle: { color: theme("accent") }, animation: false });
    const series = [line("loss", loss.max, 1.5)];
    if (run.first.length < run.numSteps) series.push(line("smallest loss", loss.min, 0.7));
    series[0].markLine = cursor(run);
    this.chart.setOption({
      animation: false,
      grid: grid(),
      xAxis: axisOf(run, false),
      yAxis: { type: "value", axisLine: { onZero: false, show: true }, scale: true, name: "loss", nameLocation: "middle", nameGap: 44, nameTextStyle: { color: theme("quiet") },
        axisLabel: { color: theme("quiet") }, splitLine: { lineStyle: { color: theme("line") } }, splitNumber: 3 },
      tooltip: { trigger: "axis", renderMode: "richText", formatter: (at) => `${steps(run.first[at[0].dataIndex], run.last[at[0].dataIndex])}\n${at.map((one) =>
        `${one.seriesName} ${one.data[1] ?? "not finite or not recorded"}`).join("\n")}` },
      series,
    }, { replaceMerge: ["series"] });
  }
}

// A line at the step that is shown.
export function cursor(run) {
  return { silent: true, symbol: "none", animation: false, label: { show: false }, lineStyle: { color: theme("text"), width: 1.2, type: "solid" },
    data: [{ xAxis: run.columnOf(state.step) }] };
}

// What to show of a finding: its step, site and culprit.
export function goTo(run, i) {
  const finding = run.findings[i];
  const site = run.sites[finding.row];
  return { finding: i, step: finding.step, ...(site ? { layer: site.layer, tensor: site.tensor } : {}) };
}

// What to show of an alert: its step, and its site if it was recorded.
export function goToAlert(run, i) {
  const alert = run.alerts[i];
  const site = run.sites[alert.row];
  return { alert: i, step: alert.step, ...(site ? { layer: site.layer, tensor: site.tensor } : {}) };
}
