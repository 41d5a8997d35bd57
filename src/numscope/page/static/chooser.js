import { el, fill, keeping, visible } from "./dom.js";
import { ago } from "./numbers.js";
import { state } from "./state.js";

const EVERY_MS = 3000;

// The runs of a server, each a link; hidden where there is one alone.
export class Chooser {
  constructor(pane, asked) {
    this.pane = pane;
    this.asked = asked;
    this.last = -EVERY_MS;
  }

  async look(ask, shown) {
    if (performance.now() - this.last < EVERY_MS) return;
    this.last = performance.now();
    const runs = await ask("runs", {});
    this.pane.hidden = runs.length < 2;
    if (runs.length > 1) keeping(this.pane, () => this._draw(runs, shown));
  }

  _draw(runs, shown) {
    const link = (values, text) => el("a", { href: `?${new URLSearchParams(values)}${kept()}` }, text);
    const status = (run) => (run.state === "gone" ? "gone" : run.ended ? "ended" : run.ago === null ? "nothing yet" : "");
    fill(this.pane, el("h2", {}, `${runs.length} runs`), el("table", { class: "numbers" },
      el("tr", {}, ["run", "findings", "alerts", "last step", "written", ""].map((name) => el("th", {}, name))),
      runs.map((run) => el("tr", { class: run.key === shown ? "shown" : null },
        el("td", {}, link({ run: run.key }, visible(run.name, 120))),
        el("td", { class: run.findings ? "bad" : "" }, run.findings ? `✖ ${run.findings.toLocaleString("en-US")}` : run.findings === 0 ? "none" : "–"),
        el("td", { class: run.alerts ? "warn" : "" }, run.alerts ? `⚑ ${run.alerts.toLocaleString("en-US")}` : run.alerts === 0 ? "none" : "–"),
        el("td", { class: "num" }, run.step === null ? "–" : run.step.toLocaleString("en-US")),
        el("td", {}, [status(run), run.ago === null ? "" : ago(run.ago)].filter(Boolean).join(", ")),
        el("td", {}, run.key === shown ? "shown" : link({ run: shown, with: run.key }, "compare"))))));
  }
}

// What is chosen of the page and means the same in each run.
function kept() {
  const told = Object.entries({ stat: state.stat, theme: state.theme }).filter(([, value]) => value);
  return `#${new URLSearchParams(told)}`;
}
