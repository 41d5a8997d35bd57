// Elements are made from text alone: names from a model or a file are never read as markup.

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(made.style, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

// Fills an element anew; what was unfolded, scrolled and focused in it is so again.
export function keeping(element, draw) {
  const parts = (selector) => [...element.querySelectorAll(selector)];
  const opened = parts("details").map((one) => one.open);
  const scrolled = parts("ol, pre, table").map((one) => [one.scrollTop, one.scrollLeft]);
  const focused = parts("button, a, summary, select, input").indexOf(document.activeElement);
  draw();
  parts("details").forEach((one, i) => (one.open = opened[i] ?? one.open));
  parts("ol, pre, table").forEach((one, i) => scrolled[i] && ([one.scrollTop, one.scrollLeft] = scrolled[i]));
  if (focused >= 0) parts("button, a, summary, select, input")[focused]?.focus({ preventScroll: true });
}

// Control characters and those that turn the direction of writing, which could make a name look like another one.
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

export function visible(text, most = 300) {
  const shown = String(text).replace(INVISIBLE, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return shown.length <= most ? shown : `${shown.slice(0, most * 0.6)} … ${shown.slice(shown.length - most * 0.3)}`;
}

// Source code keeps its tabs and its length.
export function code(text) {
  return visible(String(text).replaceAll("\t", "    "), 2000);
}

export function save(name, type, content) {
  const link = el("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export function saveImage(name, url) {
  el("a", { href: url, download: name }).click();
}
