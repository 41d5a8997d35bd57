import { Compare } from "./compare.js";
import { CulpritPane } from "./culprit.js";
import { el, fill, visible } from "./dom.js";
import { Findings } from "./findings.js";
import { HeatMap } from "./map.js";
import { count } from "./numbers.js";
import { Run } from "./run.js";
import { SitePane } from "./site.js";
import { onChange, readAddress, set, state } from "./state.js";
import { Timeline, goTo } from "./timeline.js";

const { runs, comparison } = JSON.parse(document.getElementById("data").textContent);
const given = readAddress();
const run = new Run(runs[state.run] ?? runs[0]);
const pane = (name) => document.getElementById(name);

function setTheme() {
  const dark = state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.classList.toggle("dark", dark);
}

function time(text) {
  return `${visible(text.slice(0, 19).replace("T", " "))} UTC`;
}

function head() {
  const facts = [run.model ? visible(run.model, 120) : "", count(run.numSteps, "recorded step"), run.sites.length ? count(run.numSites, "tensor") : "", run.attempts.length > 1 ? count(run.attempts.length, "attempt") : ""];
  fill(pane("head"), el("h1", {}, el("span", { class: "brand" }, "numscope "), visible(run.name, 120)), el("span", { class: "facts" }, facts.filter(Boolean).join(" · ")),
    el("button", { onclick: toggleTheme, title: "light or dark (t)" }, "◐ theme"));
  const started = run.attempts.length ? `; the run was started on ${time(run.attempts[run.attempts.length - 1].started)}` : "";
  const left = run.sites.length < run.numSites ? ` Of ${run.numSites.toLocaleString("en-US")} tensors the ${run.sites.length.toLocaleString("en-US")} with the largest numbers are shown.` : "";
  fill(pane("foot"), `Made by numscope ${run.numscope} on ${time(run.made)}${started}.`, left, run.rounded ? " Numbers are right to four digits." : "",
    run.unobserved.length ? el("details", {}, el("summary", {}, `${count(run.unobserved.length, "layer")} without statistics`), run.unobserved.map((name) => el("div", {}, visible(name, 200)))) : null);
}

function toggleTheme() {
  set({ theme: document.documentElement.classList.contains("dark") ? "light" : "dark" });
}

// What a page shows that was opened without an address: its first finding, or its last step and worst tensor.
function begin() {
  const changes = {};
  const finding = given.has("finding") ? state.finding : 0;
  if (run.findings[finding]) Object.assign(changes, goTo(run, finding));
  else if (!given.has("finding")) changes.step = run.last[run.width - 1] ?? 0;
  if (!changes.layer && run.sites.length) {
    const worst = run.sites.find((site) => site.health === "bad") ?? run.sites.find((site) => site.health) ?? run.sites[0];
    Object.assign(changes, { layer: worst.layer, tensor: worst.tensor });
  }
  if (!run.kindOf.has(state.stat)) changes.stat = run.kinds[0]?.name ?? "amax";
  for (const name of given.keys()) delete changes[name];
  Object.assign(state, changes);
}

const panes = [];
const ALL = Object.keys(state);

async function update(changed) {
  if (changed.includes("theme")) setTheme();
  const everything = changed.includes("theme") ? ALL : changed;
  await Promise.all(panes.filter((one) => one.cares.some((name) => everything.includes(name))).map((one) => one.update(everything)));
}

function keys(event) {
  if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const column = run.columnOf(state.step);
  const toColumn = (at) => set({ step: run.last[Math.max(0, Math.min(run.width - 1, at))] });
  const toFinding = (by) => run.findings.length && set(goTo(run, (state.finding + by + run.findings.length) % run.findings.length));
  const map = panes.find((one) => one instanceof HeatMap);
  const actions = {
    ArrowLeft: () => toColumn(column - 1), ArrowRight: () => toColumn(column + 1), Home: () => toColumn(0), End: () => toColumn(run.width - 1),
    ArrowUp: () => map?.move(-1), ArrowDown: () => map?.move(1), n: () => toFinding(1), p: () => toFinding(-1), t: toggleTheme,
    "/": () => document.getElementById("search")?.focus(),
  };
  if (!actions[event.key]) return;
  event.preventDefault();
  actions[event.key]();
}

async function start() {
  begin();
  setTheme();
  head();
  const hasTimes = run.width && (run.loss || run.findings.length || run.events.length || run.restarts.length);
  if (hasTimes) panes.push(new Timeline(pane("timeline"), run));
  else pane("timeline").hidden = true;
  if (comparison) panes.push(new Compare(pane("compare"), runs, comparison));
  else pane("compare").hidden = true;
  panes.unshift(new Findings(pane("findings"), run));
  if (run.sites.length) panes.push(new HeatMap(pane("map"), run));
  else pane("map").hidden = true;
  if (run.findings.length) panes.push(new CulpritPane(pane("culprit"), run));
  else pane("culprit").hidden = true;
  panes.push(new SitePane(pane("site"), run));
  await Promise.all(panes.map((one) => one.start?.()));
  await update(ALL);
  onChange(update);
  addEventListener("hashchange", () => {
    update([...readAddress().keys()].filter((name) => name in state));
  });
  addEventListener("keydown", keys);
  addEventListener("resize", () => update(["theme"]));
  requestAnimationFrame(() => setTimeout(() => (document.documentElement.dataset.ready = String(Math.round(performance.now()))))); // drawn
}

start();
