// The modules of a run as a tree, in execution order; each has the rows of the tensors below it.

export function buildTree(sites) {
  const root = node("", "", -1, null);
  sites.forEach((site, row) => {
    let at = root;
    const parts = site.layer.split(".");
    parts.forEach((part, depth) => {
      if (!at.children.has(part)) at.children.set(part, node(part, parts.slice(0, depth + 1).join("."), depth, at));
      at = at.children.get(part);
      at.below.push(row);
      if (RANK[site.health] > RANK[at.health]) at.health = site.health;
    });
    at.rows.push(row);
  });
  for (const child of root.children.values()) shorten(child);
  return root;
}

const RANK = { undefined: 0, warn: 1, spoiled: 2, bad: 3 };
export const MARKS = { bad: "✖", spoiled: "○", warn: "▲" };

function node(name, path, depth, parent) {
  return { name, path, depth, parent, children: new Map(), rows: [], below: [], health: undefined, open: false };
}

// A module that holds one module and no tensor becomes one line with it.
function shorten(at) {
  while (at.children.size === 1 && !at.rows.length) {
    const [only] = at.children.values();
    Object.assign(at, { name: `${at.name}.${only.name}`, path: only.path, children: only.children, rows: only.rows });
    for (const child of at.children.values()) child.parent = at;
  }
  for (const child of at.children.values()) {
    setDepth(child, at.depth + 1);
    shorten(child);
  }
}

function setDepth(at, depth) {
  at.depth = depth;
}

// The lines that are to be seen: {node, row}; row is -1 for a module.
export function linesOf(root, matches) {
  const lines = [];
  const visit = (at) => {
    if (matches && !at.below.some(matches)) return;
    lines.push({ node: at, row: -1, depth: at.depth });
    if (!at.open && !matches) return;
    for (const row of at.rows) if (!matches || matches(row)) lines.push({ node: at, row, depth: at.depth + 1 });
    for (const child of at.children.values()) visit(child);
  };
  for (const child of root.children.values()) visit(child);
  return lines;
}

export function openTo(root, layer) {
  const visit = (at) => {
    if (layer !== at.path && !layer.startsWith(`${at.path}.`)) return;
    at.open = true;
    for (const child of at.children.values()) visit(child);
  };
  for (const child of root.children.values()) visit(child);
}

// Opens modules level by level as long as not many more lines come of it.
export function openSome(root, most) {
  let level = [...root.children.values()];
  let num = level.length;
  while (level.length) {
    const more = level.reduce((sum, at) => sum + at.rows.length + at.children.size, 0);
    if (!more || num + more > most) return;
    num += more;
    for (const at of level) at.open = true;
    level = level.flatMap((at) => [...at.children.values()]);
  }
}

// Opens the modules that are open in another tree.
export function sameOpen(root, other) {
  const open = new Map();
  const visit = (at, work) => {
    work(at);
    for (const child of at.children.values()) visit(child, work);
  };
  visit(other, (at) => open.set(at.path, at.open));
  visit(root, (at) => (at.open = open.get(at.path) ?? at.parent?.open ?? false));
}

export function setAll(root, open) {
  for (const child of root.children.values()) {
    child.open = open;
    setAll(child, open);
  }
}

// A test for a search: words as parts of a name, /…/ as a regular expression. Null matches everything.
export function matcher(text, sites) {
  const wanted = text.trim();
  if (!wanted) return { test: null, error: "" };
  const name = (row) => `${sites[row].layer} ${sites[row].tensor} ${sites[row].cls}`;
  const regex = /^\/(.*?)\/?$/s.exec(wanted);
  if (!regex) {
    const words = wanted.toLowerCase().split(/\s+/);
    return { test: (row) => words.every((word) => name(row).toLowerCase().includes(word)), error: "" };
  }
  try {
    const pattern = new RegExp(regex[1], "i");
    return { test: (row) => pattern.test(name(row)), error: "" };
  } catch (error) {
    return { test: () => false, error: String(error.message) };
  }
}
