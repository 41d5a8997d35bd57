import { theme } from "./colors.js";
import { el } from "./dom.js";
import { set, state } from "./state.js";
import { draggable, inSight } from "./zoom.js";

const SMOOTHING = [["", "none"], ["0.6", "little"], ["0.9", "medium"], ["0.98", "strong"]]; // the share that an average keeps of itself
const RAW = 0.35; // opacity of a line that has a smooth one before it
// A cross: what is not finite.
const CROSS = "path://M0,0L2,0L5,3L8,0L10,0L6,5L10,10L8,10L5,7L2,10L0,10L4,5Z";

// A chart on canvas; a click on it gives a column of the run, dragging zooms.
export function chart(element, onColumn, run) {
  const made = window.echarts.init(element, null, { renderer: "canvas", width: element.clientWidth || 400, height: element.clientHeight || 250 });
  new ResizeObserver(() => {
    const [wide, tall] = [element.clientWidth, element.clientHeight];
    if (wide && tall && (wide !== made.getWidth() || tall !== made.getHeight())) made.resize({ width: wide, height: tall }); // not where it was only moved
  }).observe(element);
  const columnAt = (x) => {
    const [first, last] = inSight(run);
    return Math.max(first, Math.min(last, Math.round(made.convertFromPixel({ xAxisIndex: 0 }, x))));
  };
  made.getZr().on("click", (event) => {
    if (made.containPixel("grid", [event.offsetX, event.offsetY])) onColumn(columnAt(event.offsetX));
  });
  draggable(element, columnAt, run);
  return made;
}

// The plot stands below the map's columns: same left side, same right side.
export function grid() {
  const label = parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--label"));
  return { left: label, right: 0, top: 8, bottom: 8 };
}

// Columns of steps, each in the middle of its stretch.
export function axisOf(run, labels) {
  const [from, to] = inSight(run);
  const every = Math.max(1, Math.round((to - from + 1) / 6));
  return {
    type: "value", min: from - 0.5, max: to + 0.5, splitLine: { show: false },
    axisTick: { show: false }, axisLine: { onZero: false, lineStyle: { color: theme("line") } },
    axisLabel: { show: labels, color: theme("quiet"), customValues: run.first.map((_, column) => column).filter((column) => column >= from && column <= to && (column - from) % every === 0), formatter: (column) => run.first[column].toLocaleString("en-US") },
    name: labels ? "step" : "", nameLocation: "middle", nameGap: 24, nameTextStyle: { color: theme("quiet") },
  };
}

// An exponential moving average, of logarithms on a logarithmic axis. It begins anew where something is not finite.
function smoothed(cells, bad, isLog) {
  const kept = Number(state.smooth) || 0;
  let [sum, weight] = [0, 0];
  return Array.from(cells, (x, i) => {
    if (bad?.[i] > 0) [sum, weight] = [0, 0];
    if (!Number.isFinite(x) || (isLog && x <= 0)) return NaN;
    [sum, weight] = [kept * sum + (1 - kept) * (isLog ? Math.log(x) : x), kept * weight + 1 - kept];
    return isLog ? Math.exp(sum / weight) : sum / weight;
  });
}

// A line of a chart; smoothed, with itself behind it.
export function lineSeries(run, name, cells, { color, width = 1.5, type = "solid", isLog = false, bad = null, smooth = true }) {
  const series = (numbers, more) => ({
    name, type: "line", animation: false, connectNulls: true, showSymbol: run.width <= 40, symbolSize: 4, ...more,
    data: Array.from(numbers, (x, i) => [i, Number.isFinite(x) && (x > 0 || !isLog) ? x : null]), lineStyle: { color, width, type, ...more?.lineStyle }, itemStyle: { color },
  });
  if (!smooth || !SMOOTHING.some(([kept]) => kept && kept === state.smooth)) return [series(cells)];
  return [series(cells, { name: `${name}, raw`, silent: true, showSymbol: false, lineStyle: { opacity: RAW } }), series(smoothed(cells, bad, isLog), { showSymbol: false })];
}

// Crosses where columns hold nan or inf, at the top, whatever is smoothed.
export function crosses(bad, top, name = "nan or inf") {
  return {
    name, type: "scatter", animation: false, symbol: CROSS, symbolSize: 9, itemStyle: { color: theme("orange") },
    data: Array.from(bad ?? [], (x, i) => [i, x]).filter(([, x]) => x > 0).map(([i, x]) => ({ value: [i, top], num: x })),
  };
}

// A line at the step that is shown.
export function cursor(run) {
  return { silent: true, symbol: "none", animation: false, label: { show: false }, lineStyle: { color: theme("text"), width: 1.2, type: "solid" },
    data: [{ xAxis: run.columnOf(state.step) }] };
}

function choice(id, name, label, options) {
  return el("label", {}, `${label} `, el("select", { id, onchange: (event) => set({ [name]: event.target.value }) },
    options.map(([value, text]) => el("option", { value, selected: value === state[name] }, text))));
}

// How a chart is drawn: its axis, and how smooth; `given` is the axis that it has unless another one is chosen.
export function chartTools(name, given) {
  const other = given === "log" ? "linear" : "log";
  return [choice(name, name, "Axis", [["", given], [other, other]]), choice(`${name}-smooth`, "smooth", "Smoothing", SMOOTHING)];
}

// The bounds of an axis for these numbers, whole powers of ten on a logarithmic one.
export function boundsFor(numbers, isLog) {
  let [low, high] = [Infinity, -Infinity];
  for (const x of numbers) {
    if (!Number.isFinite(x) || (isLog && x <= 0)) continue;
    if (x < low) low = x;
    if (x > high) high = x;
  }
  if (low > high) [low, high] = isLog ? [0.1, 1] : [0, 1];
  if (isLog) return [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high) + 0.01)];
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [low - room, high + room];
}

export function valueAxis(isLog, [min, max], name, gap, more = {}) {
  return { type: isLog ? "log" : "value", min, max, axisLine: { onZero: false, show: true }, splitLine: { lineStyle: { color: theme("line") } },
    name, nameLocation: "middle", nameGap: gap, nameTextStyle: { color: theme("quiet"), lineHeight: 13 }, ...more, axisLabel: { color: theme("quiet"), ...more.axisLabel } };
}

// A piece of a line as the chart has it.
export function swatch({ color, type, width = 2 }) {
  const canvas = el("canvas", { class: "swatch", width: 68, height: 12, "aria-hidden": "true" });
  const pen = canvas.getContext("2d");
  pen.scale(2, 2);
  Object.assign(pen, { strokeStyle: color, lineWidth: width });
  pen.setLineDash(type === "solid" ? [] : type === "dashed" ? [8, 4] : type === "dotted" ? [2, 2] : type);
  pen.beginPath();
  pen.moveTo(0, 3);
  pen.lineTo(34, 3);
  pen.stroke();
  return canvas;
}
