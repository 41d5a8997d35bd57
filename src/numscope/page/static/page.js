import { Alerts } from "./alerts.js";
import { Compare, firstOf } from "./compare.js";
import { CulpritPane } from "./culprit.js";
import { el, fill, keeping, visible } from "./dom.js";
import { Findings } from "./findings.js";
import { HeatMap } from "./map.js";
import { count } from "./numbers.js";
import { togglePin } from "./overlay.js";
import { PrecisionPane, hasCasts } from "./precision.js";
import { SitePane } from "./site.js";
import { onChange, readAddress, set, state } from "./state.js";
import { Timeline, goTo, goToAlert } from "./timeline.js";
import { movedAlong, zoomBy, zoomOut } from "./zoom.js";

const ALL = Object.keys(state);
const NUMBERS_ALONE = ["stat", "theme", "search"]; // what panes are told where the numbers have changed and nothing that was chosen
const pane = (name) => document.getElementById(name);

function time(text) {
  return `${visible(text.slice(0, 19).replace("T", " "))} UTC`;
}

function setTheme() {
  const dark = state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.classList.toggle("dark", dark);
}

export function toggleTheme() {
  set({ theme: document.documentElement.classList.contains("dark") ? "light" : "dark" });
}

// All panes of a run. The run may change: then they are renewed, and what was chosen stays chosen.
export class Page {
  constructor(run, given) {
    this.run = run;
    this.given = given;
    this.panes = new Map();
    this.sign = null; // stands in the head
    this.opening = {}; // what it is opened at, of two runs
    this.follows = false; // the newest step, and the first finding
  }

  // Shows a comparison beside the run, or another one in its place.
  compare(told, sides) {
    this.opening = firstOf(told, sides.chosen);
    if (sides.runs) this.run.beside = { run: sides.runs[1 - sides.chosen], names: sides.chosen ? ["B", "A"] : ["A", "B"] };
    if (this.panes.has("compare")) this.panes.get("compare").renew(told, sides);
    else this._put("compare", new Compare(pane("compare"), told, sides));
  }

  async start() {
    this._begin();
    setTheme();
    this._head();
    const added = this._add();
    await Promise.all(added.map((one) => one.start?.()));
    await this.update(ALL);
    onChange((changed) => this.update(changed));
    addEventListener("hashchange", () => {
      this.update([...readAddress().keys()].filter((name) => name in state));
    });
    addEventListener("keydown", (event) => this._keys(event));
    addEventListener("resize", () => this.update(["theme"]));
    requestAnimationFrame(() => setTimeout(() => (document.documentElement.dataset.ready = String(Math.round(performance.now()))))); // drawn
  }

  // The run has changed. What is new of it is drawn; nothing scrolls, nothing chosen changes.
  async renew() {
    const { run } = this;
    if (!state.layer) Object.assign(state, worst(run));
    if (!run.kindOf.has(state.stat)) state.stat = run.kinds[0]?.name ?? "amax";
    if (this.follows) this.follow();
    this._head();
    const before = [...this.panes.values()];
    const added = this._add();
    await Promise.all([...before.map((one) => one.renew?.()), ...added.map((one) => one.start?.())]);
    await Promise.all([...before.map((one) => one.update(NUMBERS_ALONE)), ...added.map((one) => one.update(ALL))]);
  }

  // Goes to the newest step, or to the first finding, and then stays there.
  follow() {
    const { run } = this;
    this.follows = !run.findings.length;
    Object.assign(state, run.findings.length ? { ...worst(run), ...goTo(run, 0) } : { step: run.last[run.width - 1] ?? 0 });
  }

  async update(changed) {
    if (changed.includes("theme")) setTheme();
    const moved = changed.includes("step") && this.run.width ? movedAlong(this.run) : null;
    if (moved) set(moved); // and the panes are told of it
    const everything = changed.includes("theme") ? ALL : changed;
    await Promise.all([...this.panes.values()].filter((one) => one.cares.some((name) => everything.includes(name))).map((one) => one.update(everything)));
  }

  // The panes that have something to show now and had nothing before.
  _add() {
    const { run } = this;
    const wanted = [
      ["findings", Findings, true],
      ["alerts", Alerts, run.alerts.length],
      ["timeline", Timeline, run.width],
      ["map", HeatMap, run.sites.length],
      ["culprit", CulpritPane, run.findings.length],
      ["site", SitePane, true],
      ["precision", PrecisionPane, hasCasts(run)],
    ];
    pane("compare").hidden = !this.panes.has("compare");
    const added = [];
    for (const [name, Pane, isWanted] of wanted) {
      if (isWanted && !this.panes.has(name)) added.push(this._put(name, new Pane(pane(name), run)));
      pane(name).hidden = !this.panes.has(name);
    }
    return added;
  }

  _put(name, one) {
    this.panes.set(name, one);
    pane(name).hidden = false;
    return one;
  }

  _head() {
    const { run } = this;
    const ended = run.numEnded ? `${count(run.numEnded, "step")}${run.numSteps < run.numEnded ? `, ${run.numSteps.toLocaleString("en-US")} of them recorded` : ""}` : "";
    const facts = [run.model ? visible(run.model, 120) : "", ended || count(run.numSteps, "recorded step"), run.sites.length ? count(run.numSites, "tensor") : "", run.attempts.length > 1 ? count(run.attempts.length, "attempt") : ""];
    keeping(pane("head"), () => fill(pane("head"), el("h1", {}, el("span", { class: "brand" }, "numscope "), visible(run.name, 120)), el("span", { class: "facts" }, facts.filter(Boolean).join(" · ")),
      this.sign, el("button", { class: "theme", onclick: toggleTheme, title: "light or dark (t)" }, "◐ theme")));
    const started = run.attempts.length ? `; the run was started on ${time(run.attempts[run.attempts.length - 1].started)}` : "";
    const left = run.sites.length < run.numSites ? ` Of ${run.numSites.toLocaleString("en-US")} tensors the ${run.sites.length.toLocaleString("en-US")} with the largest numbers are shown.` : "";
    keeping(pane("foot"), () => fill(pane("foot"), `Made by numscope ${run.numscope} on ${time(run.made)}${started}.`, left, run.rounded ? " Numbers are right to four digits." : "",
      run.unobserved.length ? el("details", {}, el("summary", {}, `${count(run.unobserved.length, "layer")} without statistics`), run.unobserved.map((name) => el("div", {}, visible(name, 200)))) : null));
  }

  // What a page shows that was opened without an address: of two runs the first difference, else its first finding, else its first alert, or its last step and worst tensor.
  _begin() {
    const { run, given } = this;
    const changes = {};
    const finding = given.has("finding") ? state.finding : 0;
    const alert = given.has("alert") ? state.alert : run.findings.length || this.follows || given.has("step") ? -1 : 0;
    if (run.alerts[alert]) Object.assign(changes, goToAlert(run, alert));
    else if (run.findings[finding]) Object.assign(changes, goTo(run, finding));
    else if (!given.has("finding")) changes.step = run.last[run.width - 1] ?? 0;
    if (this.opening.layer) Object.assign(changes, { finding: -1, alert: -1 }, this.opening);
    if (!changes.layer) Object.assign(changes, worst(run));
    if (!run.kindOf.has(state.stat)) changes.stat = run.kinds[0]?.name ?? "amax";
    for (const name of given.keys()) delete changes[name];
    Object.assign(state, changes);
  }

  _keys(event) {
    if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const { run } = this;
    const column = run.columnOf(state.step);
    const toColumn = (at) => set({ step: run.last[Math.max(0, Math.min(run.width - 1, at))] });
    const toFinding = (by) => run.findings.length && set(goTo(run, (state.finding + by + run.findings.length) % run.findings.length));
    const toAlert = (by) => run.alerts.length && set(goToAlert(run, (Math.max(state.alert, by > 0 ? -1 : 0) + by + run.alerts.length) % run.alerts.length));
    const map = this.panes.get("map");
    const actions = {
      ArrowLeft: () => toColumn(column - 1), ArrowRight: () => toColumn(column + 1), Home: () => toColumn(0), End: () => toColumn(run.width - 1),
      ArrowUp: () => map?.move(-1), ArrowDown: () => map?.move(1), n: () => toFinding(1), p: () => toFinding(-1), a: () => toAlert(1), A: () => toAlert(-1), t: toggleTheme,
      c: () => map && togglePin(run, state), "+": () => zoomBy(run, 0.5), "=": () => zoomBy(run, 0.5), "-": () => zoomBy(run, 2), Escape: zoomOut,
      "/": () => document.getElementById("search")?.focus(),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }
}

function worst(run) {
  const site = run.sites.find((one) => one.health === "bad") ?? run.sites.find((one) => one.health) ?? run.sites[0];
  return site ? { layer: site.layer, tensor: site.tensor } : {};
}
