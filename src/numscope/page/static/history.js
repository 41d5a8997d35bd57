import { axisOf, chart } from "./charts.js";
import { theme } from "./colors.js";
import { el } from "./dom.js";
import { digits, steps } from "./numbers.js";
import { set } from "./state.js";
import { cursor } from "./timeline.js";

// One tensor's magnitudes over the steps, on a log scale, against the limits of its dtype.
export class History {
  constructor(run) {
    this.run = run;
    this.plot = el("div", { class: "plot history" });
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
    const lines = [
      ["largest magnitude", await of("amax", "max"), theme("accent"), 2, "solid"],
      ["amax, least of the column", await of("amax", "min"), theme("accent"), 0.7, "solid"],
      ["root mean square", await of("rms", "max"), theme("second"), 1.5, "dashed"],
      ["smallest non-zero magnitude", await of("abs_min", "min"), theme("third"), 1.5, "dotted"],
    ].filter(([, cells]) => cells && cells.some((x) => x > 0) && cells !== undefined);
    const bad = await of("num_nonfinite", "max");
    if (turn !== this.turn) return; // another tensor was chosen meanwhile
    const known = lines.flatMap(([, cells]) => [...cells].filter((x) => x > 0));
    const limits = limitsOf(run.formats[site.format], known);
    const all = [...known, ...limits.map((limit) => limit.value)];
    const low = 10 ** Math.floor(Math.log10(Math.min(...all, 1e30)));
    const high = 10 ** Math.ceil(Math.log10(Math.max(...all, Number.MIN_VALUE * 1e10)) + 0.01);
    const series = lines.map(([name, cells, color, width, type]) => ({
      name, type: "line", animation: false, connectNulls: true, showSymbol: run.width <= 40, symbolSize: 4,
      data: Array.from(cells, (x, i) => [i, x > 0 ? x : null]), lineStyle: { color, width, type }, itemStyle: { color },
    }));
    series.push({
      name: "nan or inf", type: "scatter", animation: false, symbol: "path://M0,0L2,0L5,3L8,0L10,0L6,5L10,10L8,10L5,7L2,10L0,10L4,5Z", symbolSize: 9,
      itemStyle: { color: theme("bad") }, data: Array.from(bad, (x, i) => [i, x]).filter(([, x]) => x > 0).map(([i, x]) => ({ value: [i, high], num: x })),
      markLine: { ...cursor(run) },
    });
    for (const { value, name, isTop } of limits) {
      series.push({
        name, type: "line", animation: false, silent: true, z: 4, symbolSize: 0.1, lineStyle: { color: theme("warn"), type: "dashed", width: 1.2 },
        data: [{ value: [-0.5, value], label: { show: true, formatter: name, position: [6, isTop ? 9 : -14], color: theme("warn"), backgroundColor: theme("ground"), fontSize: 11 } }, [run.width - 0.5, value]],
      });
    }
    this.chart.setOption({
      animation: false,
      grid: { left: 62, right: 12, top: 12, bottom: 34 },
      xAxis: axisOf(run, true),
      yAxis: { type: "log", axisLine: { onZero: false, show: true }, min: low, max: high, axisLabel: { color: theme("quiet"), formatter: (x) => digits(x) }, splitNumber: 5,
        splitLine: { lineStyle: { color: theme("line") } }, name: "magnitude (the tensor's unit)", nameLocation: "middle", nameGap: 48, nameTextStyle: { color: theme("quiet") } },
      tooltip: { trigger: "axis", renderMode: "richText", formatter: (at) => {
        const column = Math.round(at[0].axisValue);
        const told = at.filter((one) => lines.some(([name]) => name === one.seriesName)).map((one) => `${one.seriesName} ${digits(one.data[1])}`);
        const worse = bad[column] > 0 ? [`${digits(bad[column])} elements nan or inf`] : [];
        return [steps(run.first[column], run.last[column]), ...told, ...worse].join("\n");
      } },
      series,
    }, { replaceMerge: ["series"] });
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
