"""Chart libraries beside each other: size, first drawing and redrawing of a page's charts in headless Chromium.

python benchmarks/charts.py [--echarts FILE] [--uplot FILE] [--plotly FILE]

The files are the libraries' own minified ones (npm pack echarts, uplot, plotly.js-dist-min); without them only the ECharts of the page is
measured. Each draws, as far as it can without a plug-in: a history of 10,000 steps (three lines, log scale), one of 10 million points, and
a map of 1,000 tensors by 1,800 columns, which is what a page holds of 10,000 steps; then the same with other numbers, as after a click.
"Custom" is the page's way to draw its map: on a canvas, the 26 lines in view, each pixel the worst of its columns.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _machine import describe, write

from tests.page.browser import Tab, browse

ROOT = Path(__file__).resolve().parent.parent
VENDORED = ROOT / "src" / "numscope" / "page" / "static" / "vendor" / "echarts.common.min.js"
TASKS = {"history": "10,000 steps, 3 lines", "long": "10 million points", "map": "1,000 x 1,800 map"}
MOST_MS = 20_000

DATA = """
const random = (() => { let x = 1; return () => (x = (x * 16807) % 2147483647) / 2147483647; })();
const walk = (n) => {
  const made = new Float64Array(n);
  for (let i = 0, at = 0; i < n; i++) made[i] = Math.exp((at += random() - 0.5) / 50);
  return made;
};
const count = (n) => Float64Array.from({ length: n }, (_, i) => i);
const HISTORY = [0, 1].map(() => [walk(10000), walk(10000), walk(10000)]), X = count(10000);
const LONG = [0, 1].map(() => walk(1e7)), XLONG = count(1e7);
const [ROWS, COLUMNS] = [1000, 1800];
const MAP = [0, 1].map(() => Array.from({ length: ROWS }, () => walk(COLUMNS)));
const drawn = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
const box = document.getElementById("box");
"""

ECHARTS = """
const chart = echarts.init(box, null, { renderer: "canvas" });
const finished = (option) => new Promise((done) => {
  const end = () => { chart.off("finished", end); done(); };
  chart.on("finished", end);
  chart.setOption({ animation: false, ...option });
});
const pairs = (y) => {
  const made = new Float64Array(2 * y.length);
  for (let i = 0; i < y.length; i++) {
    made[2 * i] = i;
    made[2 * i + 1] = y[i];
  }
  return made;
};
const line = (y) => ({ type: "line", data: Array.from(y, (v, i) => [i, v]), showSymbol: false });
const wide = (y) => ({ type: "line", data: pairs(y), dimensions: ["x", "y"], showSymbol: false, sampling: "minmax" });
const axes = { xAxis: { type: "value" }, yAxis: { type: "log" } };
const category = (n) => ({ type: "category", data: [...Array(n).keys()] });
const cells = (rows) => rows.flatMap((row, y) => Array.from(row, (v, x) => [x, y, v]));
const draw = {
  history: (i) => finished({ ...axes, series: HISTORY[i].map(line) }),
  long: (i) => finished({ ...axes, series: [wide(LONG[i])] }),
  map: (i) => finished({
    xAxis: category(COLUMNS), yAxis: category(ROWS), visualMap: { min: 0, max: 3, show: false },
    series: [{ type: "heatmap", data: cells(MAP[i]), progressive: 0 }],
  }),
};
"""
UPLOT = """
let plot = null;
const options = (n) => ({
  width: 1100, height: 400, scales: { x: { time: false }, y: { distr: 3 } },
  series: [{}, ...Array.from({ length: n }, () => ({ stroke: "blue" }))],
});
const put = (data) => { if (plot) plot.setData(data); else plot = new uPlot(options(data.length - 1), data, box); };
const draw = { history: async (i) => put([X, ...HISTORY[i]]), long: async (i) => put([XLONG, LONG[i]]) };
"""
PLOTLY = """
const layout = { width: 1100, height: 400, yaxis: { type: "log" }, showlegend: false };
const draw = {
  history: (i) => Plotly.react(box, HISTORY[i].map((y) => ({ x: X, y, mode: "lines", type: "scatter" })), layout),
  long: (i) => Plotly.react(box, [{ x: XLONG, y: LONG[i], mode: "lines", type: "scatter" }], layout), // "scattergl" hangs without a GPU
  map: (i) => Plotly.react(box, [{ z: MAP[i], type: "heatmap" }], { width: 1100, height: 400 }),
};
"""
CUSTOM = """
const canvas = document.createElement("canvas");
[canvas.width, canvas.height] = [1100, 468];
box.append(canvas);
const colors = Array.from({ length: 256 }, (_, i) => `rgb(${i},${i},255)`);
// 26 lines are in view; each pixel shows the worst of its columns.
const draw = { map: async (i) => {
  const pen = canvas.getContext("2d");
  MAP[i].slice(0, 26).forEach((row, y) => {
    for (let x = 0; x < 1100; x++) {
      let worst = -Infinity;
      for (let k = Math.floor((x * COLUMNS) / 1100); k < Math.floor(((x + 1) * COLUMNS) / 1100); k++) worst = Math.max(worst, row[k]);
      pen.fillStyle = colors[Math.min(255, Math.max(0, Math.round(64 * worst)))];
      pen.fillRect(x, y * 18, 1, 17);
    }
  });
} };
"""


def measure(tab: Tab, library: Path | None, code: str, task: str) -> tuple[float, float] | str:
    """Milliseconds of the first drawing and of the slowest of four further ones; or why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        library_text = "" if library is None else library.read_text(encoding="utf-8")
        script = "" if library is None else f'<script src="{library.absolute().as_uri()}"></script>'
        page.write_text(
            f'<!doctype html><meta charset="utf-8">{script}<body><div id="box" style="width:1100px;height:400px"></div>'
            f"<script>{DATA}{code}document.documentElement.dataset.ready = 1;</script>",
            encoding="utf-8",
        )
        tab.open(page)
        built_in = code is not ECHARTS or task != "map" or "series.heatmap" in library_text
        if not built_in or not tab.js(f"'{task}' in draw"):
            return "not built in"
        found: Any = tab.js(f"""(async () => {{
            const took = [];
            for (let i = 0; i < 5; i++) {{
                const start = performance.now();
                try {{
                    const end = new Promise((_, fail) => setTimeout(() => fail(new Error("no end")), {MOST_MS}));
                    await Promise.race([draw["{task}"](i % 2), end]);
                }} catch (error) {{ return "fails: " + String(error).slice(0, 60); }}
                await drawn();
                took.push(performance.now() - start);
            }}
            return took;
        }})()""")
        return found if isinstance(found, str) else (float(found[0]), float(max(found[1:])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("echarts", "uplot", "plotly"):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE")
    args = parser.parse_args()
    libraries = {"ECharts, as the page has it": (VENDORED, ECHARTS), "custom": (None, CUSTOM)}
    for name, path, code in (("ECharts, all of it", args.echarts, ECHARTS), ("uPlot", args.uplot, UPLOT), ("Plotly", args.plotly, PLOTLY)):
        if path is not None:
            libraries[name] = (path, code)
    results: dict[str, Any] = {"machine": describe(), "libraries": {}}
    head = "| library | MB | gzip | " + " | ".join(f"{what}: first, again (ms)" for what in TASKS.values()) + " |"
    lines = [head, "|---|" + "---|" * (2 + len(TASKS))]
    for name, (path, code) in libraries.items():
        data = b"" if path is None else path.read_bytes()
        size = [len(data) / 1e6, len(gzip.compress(data)) / 1e6 if data else 0.0]
        found: dict[str, Any] = {}
        for task in TASKS:
            with browse() as tab:
                found[task] = measure(tab, path, code, task)
            print(name, task, found[task], flush=True)
        results["libraries"][name] = {"mb": size[0], "gzip_mb": size[1], **found}
        cells = [one if isinstance(one, str) else f"{one[0]:,.0f}, {one[1]:,.0f}" for one in found.values()]
        lines.append(f"| {name} | {size[0]:.2f} | {size[1]:.2f} | {' | '.join(cells)} |")
    write("charts", results, "Chart libraries in headless Chromium, without a GPU", lines)


if __name__ == "__main__":
    main()
