import { axisOf, boundsFor, chart, chartTools, crosses, cursor, grid, lineSeries, swatch, valueAxis } from "./charts.js";
import { LINES, lineColor } from "./colors.js";
import { el, fill, keeping, visible } from "./dom.js";
import { count, digits, steps } from "./numbers.js";
import { set, state } from "./state.js";
import { inSight, isZoomed, zoomBy, zoomOut } from "./zoom.js";

const MOST_MARKS = 300;

// Steps with findings, alerts and events, and below them the loss and the learning rate.
export class Timeline {
  constructor(pane, run) {
    this.cares = ["step", "finding", "alert", "theme", "from", "to", "smooth", "lossScale"];
    this.pane = pane;
    this.run = run;
    [this.tools, this.told, this.legend] = [el("div", { class: "tools" }), el("p", { class: "explain" }), el("ul", { class: "lines" })];
    this.lane = el("div", { class: "lane" });
    this.plots = ["loss", "rate"].map((kind) => el("div", { class: `plot ${kind}`, role: "img", "aria-label": `${kind === "rate" ? "learning rate" : "loss"} over the steps` }));
    this.charts = [];
    this._build();
  }

  _build() {
    const { run } = this;
    const hasLoss = Object.keys(run.losses).length > 0;
    const marks = [run.findings.length ? `✖ finding${run.findings.some((one) => one.contained) ? " (gray: contained)" : ""}` : "", run.alerts.length ? "⚑ alert" : "", run.events.length ? "◆ event" : "", run.restarts.length ? "⟳ restart" : ""].filter(Boolean).join(", ");
    fill(this.told, `${marks ? `${marks}. ` : ""}Click to go to a step; drag over steps to zoom, double click for all of them.${hasLoss ? "" : ` The run did not record its loss${run.configured ? ": a run without a configuration does (numscope run --log-dir DIR, without --config)" : ""}.`}`);
    fill(this.pane, el("h2", {}, "Timeline"), this.told, this.tools, this.lane, hasLoss ? this.plots[0] : null, Object.keys(run.rates).length ? this.plots[1] : null, this.legend);
  }

  async start() {
    const { run } = this;
    this.lines = [[], []];
    const other = new Map(run.beside && (await run.beside.run.lossCells()));
    for (const [model, loss] of await run.lossCells()) {
      const row = run.rowOf(model, "loss");
      const bad = row < 0 ? null : (await run.cells("num_nonfinite", "max"))?.subarray(row * run.width, (row + 1) * run.width);
      const name = (what, i) => `${other.size ? `${run.beside.names[i]}: ` : ""}${what}`;
      const like = this.lines[0].length;
      this.lines[0].push({ name: name(visible(model, 40), 0), cells: loss.max, bad, width: 1.5 });
      if (run.width < run.numSteps) this.lines[0].push({ name: name(`smallest ${visible(model, 40)}`, 0), cells: loss.min, width: 0.7, like });
      if (other.has(model)) this.lines[0].push({ name: name(visible(model, 40), 1), cells: run.beside.run.onColumnsOf(run, other.get(model).max), width: 1.5 });
    }
    const rates = [run, ...(run.beside ? [run.beside.run] : [])];
    for (const [i, one] of rates.entries()) {
      for (const [groups, cells] of await one.rateCells()) {
        const name = `${rates.length > 1 ? `${run.beside.names[i]}: ` : ""}learning rate${Object.keys(one.rates).length > 1 ? ` of group ${visible(groups, 40)}` : ""}`;
        this.lines[1].push({ name, cells: one === run ? cells : one.onColumnsOf(run, cells), width: 1.5 });
      }
    }
    this.lines[1].splice(LINES.length);
    this.plots.forEach((plot, i) => {
      if (this.lines[i].length) this.charts[i] ??= chart(plot, (column) => set({ step: run.last[column] }), run);
    });
  }

  async renew() {
    this._build();
    await this.start();
  }

  update() {
    const { run } = this;
    const [from, to] = inSight(run);
    const place = (column) => `calc(var(--label) + (100% - var(--label)) * ${(column - from + 0.5) / (to - from + 1)})`;
    const findings = run.findings.map((finding, i) => ({ step: finding.step, i, go: goTo, mark: "✖", kind: finding.contained ? "contained" : "bad", isChosen: i === state.finding,
      title: `step ${finding.step}: ${finding.kind}${finding.contained ? " (contained)" : ""} in ${visible(finding.site.module || finding.site.cls || "loss", 80)}` }));
    const alerts = run.alerts.map((alert, i) => ({ step: alert.step, i, go: goToAlert, mark: "⚑", kind: "warn", isChosen: i === state.alert,
      title: `step ${alert.step}: ${visible(alert.rule, 80)}${alert.layer ? ` in ${visible(alert.layer, 80)}` : ""}` }));
    const events = run.events.map((event) => ({ step: event.step, mark: "◆", kind: "event", title: `step ${event.step}, ${event.num_ranks > 1 ? `${event.num_ranks} ranks` : `rank ${event.rank}`}: ${visible(event.text)}` }));
    const restarts = run.restarts.map((one) => ({ ...one, mark: "⟳", kind: "restart", title: `step ${one.step}: ${one.text}` }));
    const isAt = (column) => column >= from && column <= to;
    keeping(this.lane, () => fill(this.lane, [...restarts, ...events, ...alerts, ...findings].filter((one) => isAt(run.columnOf(one.step))).slice(-MOST_MARKS).map((one) => el("button", {
        class: `mark ${one.kind}${one.isChosen ? " selected" : ""}`, title: one.title, "aria-label": one.title,
        style: { left: place(run.columnOf(one.step)) },
        onclick: () => set(one.go ? one.go(run, one.i) : { step: one.step }),
      }, one.mark)), el("span", { class: "lane-name" }, `${count(run.numSteps, "recorded step")}; shown: ${steps(run.first[run.columnOf(state.step)], run.last[run.columnOf(state.step)])}`),
    isAt(run.columnOf(state.step)) ? el("span", { class: "cursor", style: { left: place(run.columnOf(state.step)) } }) : null));
    const wider = { disabled: !isZoomed(run) };
    keeping(this.tools, () => fill(this.tools, el("button", { id: "closer", title: "zoom in around the step (+)", disabled: to - from < 2, onclick: () => zoomBy(run, 0.5) }, "+ zoom in"),
      el("button", { id: "wider", title: "zoom out (−)", ...wider, onclick: () => zoomBy(run, 2) }, "− zoom out"),
      el("button", { id: "all-steps", title: "all steps (Esc)", ...wider, onclick: zoomOut }, "all steps"),
      isZoomed(run) ? el("span", { class: "quiet" }, `zoomed: ${steps(run.first[from], run.last[to])}`) : null,
      this.lines?.[0].length ? chartTools("lossScale", "linear") : null));
    this.charts.forEach((made, i) => made && this._draw(made, this.lines[i], i));
    const several = (this.lines ?? []).flatMap((lines) => (lines.length > 1 ? lines.map(({ name, width, like }, i) => [name, { ...lineColor(like ?? i), width }]) : []));
    fill(this.legend, several.map(([name, look]) => el("li", {}, swatch(look), name)));
  }

  _draw(made, lines, place) {
    const { run } = this;
    const [from, to] = inSight(run);
    const isLog = place === 0 && state.lossScale === "log";
    const bounds = boundsFor(lines.flatMap(({ cells }) => [...cells.subarray(from, to + 1)]), isLog);
    const series = lines.flatMap(({ name, cells, bad, width, like }, i) => lineSeries(run, name, cells, { ...lineColor(like ?? i), width, bad, isLog, smooth: place === 0 }));
    series[0].markLine = cursor(run);
    for (const { bad } of lines) if (bad) series.push(crosses(bad, bounds[1]));
    made.setOption({
      animation: false,
      grid: grid(),
      xAxis: axisOf(run, false),
      yAxis: valueAxis(isLog, bounds, place ? "learning\nrate" : "loss", 48, { splitNumber: place ? 2 : 3, axisLabel: { formatter: (x) => digits(x), showMinLabel: isLog, showMaxLabel: isLog } }),
      tooltip: { trigger: "axis", renderMode: "richText", formatter: (at) => {
        const column = Math.round(at[0].axisValue);
        return [steps(run.first[column], run.last[column]), ...lines.map(({ name, cells, bad }) => `${name} ${bad?.[column] > 0 ? "nan or inf" : Number.isNaN(cells[column]) ? "not recorded" : digits(cells[column])}`)].join("\n");
      } },
      series,
    }, { replaceMerge: ["series", "yAxis"] });
  }
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
