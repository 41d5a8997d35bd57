import { el } from "./dom.js";
import { set, state } from "./state.js";

// The steps in sight: charts, timeline and maps show the same ones, all of a run's or those that were zoomed to.

const FEWEST = 2; // columns
const LEAST_DRAG = 5; // pixels; less is a click

// The first and the last column in sight.
export function inSight(run) {
  const all = [0, Math.max(0, run.width - 1)];
  if (state.from < 0 || state.to < state.from) return all;
  const [first, last] = [run.columnOf(state.from), run.columnOf(state.to)];
  const from = Math.max(0, Math.min(first, run.width - FEWEST));
  return [from, Math.min(all[1], Math.max(last, from + FEWEST - 1))];
}

export function isZoomed(run) {
  const [first, last] = inSight(run);
  return last - first + 1 < run.width;
}

function stretch(run, start, num) {
  const first = Math.max(0, Math.min(run.width - num, start));
  return num >= run.width ? { from: -1, to: -1 } : { from: run.first[first], to: run.last[first + num - 1] };
}

export function zoomTo(run, one, other) {
  const [first, last] = [Math.min(one, other), Math.max(one, other)];
  set(stretch(run, first, Math.max(FEWEST, last - first + 1)));
}

// A closer or a wider look at the step that is shown.
export function zoomBy(run, factor) {
  const [first, last] = inSight(run);
  const before = last - first + 1;
  const num = Math.max(FEWEST, Math.min(run.width, factor < 1 ? Math.floor(before * factor) : Math.ceil(before * factor)));
  set(stretch(run, Math.round(run.columnOf(state.step) - num / 2), num));
}

export function zoomOut() {
  set({ from: -1, to: -1 });
}

// What is in sight goes along with the step that is shown; null where it is in sight.
export function movedAlong(run) {
  const [first, last] = inSight(run);
  const at = run.columnOf(state.step);
  if (!isZoomed(run) || (at >= first && at <= last)) return null;
  const num = last - first + 1;
  return stretch(run, at < first ? at : at - num + 1, num);
}

// Dragging sideways over an element zooms to the columns below it, a double click shows all again.
export function draggable(element, columnAt, run) {
  const band = el("div", { class: "drag-band", hidden: true });
  let began = null;
  let dragged = false;
  const place = (event) => event.clientX - element.getBoundingClientRect().left;
  const end = () => {
    began = null;
    band.hidden = true;
  };
  element.classList.add("draggable");
  element.append(band);
  element.addEventListener("pointerdown", (event) => {
    [began, dragged] = [event.button === 0 ? place(event) : null, false];
  });
  element.addEventListener("pointermove", (event) => {
    if (began === null) return;
    const now = place(event);
    if (!dragged && Math.abs(now - began) < LEAST_DRAG) return;
    if (!dragged) element.setPointerCapture(event.pointerId);
    dragged = true;
    band.hidden = false;
    Object.assign(band.style, { left: `${Math.min(began, now)}px`, width: `${Math.abs(now - began)}px` });
  });
  element.addEventListener("pointerup", (event) => {
    const from = began;
    end();
    if (from !== null && dragged) zoomTo(run, columnAt(from), columnAt(place(event)));
  });
  element.addEventListener("pointercancel", end);
  element.addEventListener("click", (event) => dragged && event.stopPropagation(), true); // the one that ends a drag
  element.addEventListener("dblclick", zoomOut);
}
