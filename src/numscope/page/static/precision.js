import { el, fill, keeping, visible } from "./dom.js";
import { count, withUnit } from "./numbers.js";
import { set, state } from "./state.js";

// Which format each layer's activation, weight and gradient could take, by the casts that the run has measured: from the cheapest to the dearest.
const FORMATS = ["e4m3", "e5m2", "fp16", "bf16"];
const OPERANDS = ["activation", "weight", "gradient"];
// As `numscope precision advise` has them.
const LIMITS = { sqnr_db: 20, underflows_pct: 5, overflows_pct: 5 };
const SIGNS = { sqnr_db: "dB", underflows_pct: "% to zero", overflows_pct: "% over" };

export function hasCasts(run) {
  return FORMATS.some((format) => Object.keys(LIMITS).some((what) => run.kindOf.has(`${format}_${what}`)));
}

export class PrecisionPane {
  constructor(pane, run) {
    this.cares = ["layer", "tensor", "theme"];
    this.pane = pane;
    this.run = run;
    this.renew();
  }

  renew() {
    this.worst = null;
  }

  async update() {
    this.worst ??= await worstCasts(this.run);
    const layers = new Map();
    this.run.sites.forEach((site, row) => {
      const operand = OPERANDS.find((name) => site.tensor === name || site.tensor.startsWith(`${name}[`));
      if (!operand || !this.worst[row]) return;
      if (!layers.has(site.layer)) layers.set(site.layer, {});
      layers.get(site.layer)[operand] ??= row;
    });
    const cell = (row) => (row === undefined ? el("td", {}, "–") : this._cell(row));
    keeping(this.pane, () => fill(this.pane, el("h2", {}, "Precision"),
      el("p", { class: "explain" }, "The cheapest format that each layer's activation, weight and gradient could take, by the casts that the run has measured, over all its steps: ",
        `at least ${LIMITS.sqnr_db} dB signal to noise, at most ${LIMITS.underflows_pct} % of elements to zero and ${LIMITS.overflows_pct} % over the largest number. `,
        "numscope precision advise measures it under a recipe, and writes the configuration."),
      el("table", { class: "numbers precision" }, el("tr", {}, ["layer", ...OPERANDS].map((name) => el("th", {}, name))),
        [...layers].map(([layer, rows]) => el("tr", {}, el("td", {}, visible(layer, 100)), OPERANDS.map((name) => cell(rows[name]))))),
      layers.size ? null : el("p", { class: "hint" }, "No casts of activations, weights or gradients were measured.")));
  }

  _cell(row) {
    const [site, casts] = [this.run.sites[row], this.worst[row]];
    const takes = FORMATS.find((format) => casts[format] && fits(casts[format]));
    const all = FORMATS.filter((format) => casts[format]).map((format) => `${format}: ${told(casts[format])}`);
    const chosen = site.layer === state.layer && site.tensor === state.tensor;
    return el("td", { class: chosen ? "chosen" : "" },
      el("button", { class: takes ? (takes[0] === "e" ? "fp8" : "half") : "full", title: all.join("\n"), onclick: () => set({ layer: site.layer, tensor: site.tensor }) },
        takes ?? `none: stays ${visible(site.dtype, 40)}`),
      el("span", { class: "hint" }, ` ${takes ? told(casts[takes]) : `best of ${count(all.length, "format")}: ${best(casts)}`}`));
  }
}

export function fits(cast) {
  return Object.entries(cast).every(([what, value]) => (what === "sqnr_db" ? value >= LIMITS[what] : value <= LIMITS[what]));
}

function told(cast) {
  return Object.entries(cast).map(([what, value]) => (what === "sqnr_db" ? withUnit(value, "dB") : value ? `${withUnit(value, "")} ${SIGNS[what]}` : "")).filter(Boolean).join(", ") || "nothing lost";
}

function best(casts) {
  const known = Object.entries(casts).filter(([, cast]) => cast.sqnr_db !== undefined).sort(([, a], [, b]) => b.sqnr_db - a.sqnr_db)[0];
  return known ? `${known[0]} ${told(known[1])}` : Object.entries(casts).map(([format, cast]) => `${format} ${told(cast)}`).join("; ");
}

// By row of the sites: by format the worst of each measure over all columns; null where nothing was measured.
async function worstCasts(run) {
  const made = run.sites.map(() => null);
  for (const format of FORMATS) {
    for (const what of Object.keys(LIMITS)) {
      const cells = run.kindOf.has(`${format}_${what}`) ? await run.cells(`${format}_${what}`) : null;
      if (!cells) continue;
      run.sites.forEach((site, row) => {
        let worst = NaN;
        for (let at = row * run.width; at < (row + 1) * run.width; at++) {
          const x = cells[at];
          if (!Number.isNaN(x)) worst = Number.isNaN(worst) ? x : what === "sqnr_db" ? Math.min(worst, x) : Math.max(worst, x);
        }
        if (!Number.isNaN(worst)) ((made[row] ??= {})[format] ??= {})[what] = worst;
      });
    }
  }
  return made;
}
