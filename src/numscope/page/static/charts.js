import { theme } from "./colors.js";

// A chart on canvas; a click on it gives a column of the run.
export function chart(element, onColumn, run) {
  const made = window.echarts.init(element, null, { renderer: "canvas", width: element.clientWidth || 400, height: element.clientHeight || 250 });
  new ResizeObserver(() => {
    const [wide, tall] = [element.clientWidth, element.clientHeight];
    if (wide && tall && (wide !== made.getWidth() || tall !== made.getHeight())) made.resize({ width: wide, height: tall }); // not where it was only moved
  }).observe(element);
  made.getZr().on("click", (event) => {
    const point = [event.offsetX, event.offsetY];
    if (!made.containPixel("grid", point)) return;
    onColumn(Math.max(0, Math.min(run.width - 1, Math.round(made.convertFromPixel("grid", point)[0]))));
  });
  return made;
}

// The plot stands below the map's columns: same left side, same right side.
export function grid() {
  const label = parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--label"));
  return { left: label, right: 0, top: 8, bottom: 8 };
}

// Columns of steps, each in the middle of its stretch.
export function axisOf(run, labels) {
  const every = Math.max(1, Math.round(run.width / 6));
  return {
    type: "value", min: -0.5, max: run.width - 0.5, splitLine: { show: false },
    axisTick: { show: false }, axisLine: { onZero: false, lineStyle: { color: theme("line") } },
    axisLabel: { show: labels, color: theme("quiet"), customValues: run.first.map((_, column) => column).filter((column) => column % every === 0), formatter: (column) => run.first[column].toLocaleString("en-US") },
    name: labels ? "step" : "", nameLocation: "middle", nameGap: 24, nameTextStyle: { color: theme("quiet") },
  };
}
