import { axisOf, boundsFor, chart, crosses, cursor, lineSeries, valueAxis } from "./charts.js";
import { theme } from "./colors.js";
import { el } from "./dom.js";
import { digits, steps } from "./numbers.js";
import { set, state } from "./state.js";
import { inSight } from "./zoom.js";

// One tensor's magnitudes over the steps against the limits of its dtype, on a log scale unless another one is chosen.
export class History {
  constructor(run) {
    this.run = run;
    this.plot = el("div", { class: "plot history", role: "img", "aria-label": "magnitudes over the steps; those of the step are in the table of numbers" });
  }

  async draw(row) {
    const { run } = this;
    const turn = (this.turn = (this.turn ?? 0) + 1);
    this.chart ??= chart(this.plot, (column) => set({ step: run.last[column] }), run);
    const of = async (name, extreme) => {
      const cells = await run.cells(name, extreme);
      return cells ? cells.subarray(row * run.width, (row + 1) * run.width) : null;
    };
    const site = run.sites[row];
    const isLog = state.scale !== "linear";
    const lines = [
      ["largest magnitude", await of("amax", "max"), theme("accent"), 2, "solid"],
      ["amax, least of the column", await of("amax", "min"), theme("accent"), 0.7, "solid"],
      ["root mean square", await of("rms", "max"), theme("second"), 1.5, "dashed"],
      ["smallest non-zero magnitude", await of("abs_min", "min"), theme("third"), 1.5, "dotted"],
    ].filter(([, cells]) => cells && cells.some((x) => x > 0) && cells !== undefined);
    const bad = await of("num_nonfinite", "max");
    if (turn !== this.turn) return; // another tensor was chosen meanwhile
    const [from, to] = inSight(run);
    const known = lines.flatMap(([, cells]) => [...cells.subarray(from, to + 1)].filter((x) => x > 0));
    const limits = isLog ? limitsOf(run.formats[site.format], known) : [];
    const bounds = boundsFor([...known, ...limits.map((limit) => limit.value)], isLog);
    const series = lines.flatMap(([name, cells, color, width, type]) => lineSeries(run, name, cells, { color, width, type, isLog, bad }));
    series.push({ ...crosses(bad, bounds[1]), markLine: { ...cursor(run) } });
    for (const { value, name, isTop } of limits) {
      series.push({
        name, type: "line", animation: false, silent: true, z: 4, symbolSize: 0.1, lineStyle: { color: theme("warn"), type: "dashed", width: 1.2 },
        data: [{ value: [from - 0.5, value], label: { show: true, formatter: name, position: [6, isTop ? 9 : -14], color: theme("warn"), backgroundColor: theme("ground"), fontSize: 11 } }, [to + 0.5, value]],
      });
    }
    this.chart.setOption({
      animation: false,
      grid: { left: 62, right: 12, top: 12, bottom: 34 },
      xAxis: axisOf(run, true),
      yAxis: valueAxis(isLog, bounds, "magnitude (the tensor's unit)", 48, { axisLabel: { formatter: (x) => digits(x) }, splitNumber: 5 }),
      tooltip: { trigger: "axis", renderMode: "richText", formatter: (at) => {
        const column = Math.round(at[0].axisValue);
        const told = lines.map(([name, cells]) => `${name} ${digits(cells[column])}`);
        const worse = bad[column] > 0 ? [`${digits(bad[column])} elements nan or inf`] : [];
        return [steps(run.first[column], run.last[column]), ...told, ...worse].join("\n");
      } },
      series,
    }, { replaceMerge: ["series", "yAxis"] });
  }

  image() {
    return this.chart.getDataURL({ pixelRatio: 2, backgroundColor: theme("ground") });
  }
}

// The limits of a dtype that are within sight of the numbers: six orders of magnitude.
function limitsOf(format, known) {
  if (!format || !known.length) return [];
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const limits = [
    [format.max, `${format.label} max ${digits(format.max)}`],
    [format.minNormal, `${format.label} subnormal below ${digits(format.minNormal)}`],
    [format.minSubnormal, `${format.label} zero below ${digits(format.minSubnormal)}`],
  ];
  return limits.filter(([x]) => x < high * 1e6 && x > low / 1e4).map(([value, name]) => ({ value, name, isTop: value === format.max }));
}
