// What the page shows: in the address, so that a link leads to the same view.

const listeners = [];
const NUMBERS = ["step", "finding", "alert", "run", "from", "to"];
const NONE_BELOW_0 = ["finding", "alert", "from", "to"];

export const state = { run: 0, finding: -1, alert: -1, step: 0, layer: "", tensor: "", stat: "amax", search: "", theme: "", from: -1, to: -1, scale: "", lossScale: "", smooth: "", pins: "" };

export function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const [name, value] of given) {
    if (!(name in state)) continue;
    if (!NUMBERS.includes(name)) state[name] = value;
    else if (/^-?\d{1,15}$/.test(value)) state[name] = Number(value);
  }
  return given;
}

export function set(changes) {
  const changed = Object.keys(changes).filter((name) => state[name] !== changes[name]);
  if (!changed.length) return;
  Object.assign(state, changes);
  const told = Object.entries(state).filter(([name, value]) => value !== "" && !(name === "run" && value === 0) && !(NONE_BELOW_0.includes(name) && value < 0));
  history.replaceState(null, "", `#${new URLSearchParams(told)}`);
  for (const listener of listeners) listener(changed);
}

export function onChange(listener) {
  listeners.push(listener);
}
