import { Page } from "./page.js";
import { Run } from "./run.js";
import { readAddress, set, state } from "./state.js";

// The page of a file: its runs are in it.
const held = JSON.parse(document.getElementById("data").textContent);
const given = readAddress();
const runs = held.runs.map((run) => new Run(run));
const chosen = runs[state.run] ? state.run : 0;
const shown = new Page(runs[chosen], given);
if (held.comparison) {
  shown.compare(held.comparison, {
    runs, names: runs.map((run) => run.name), chosen,
    choose: (run) => {
      set({ run, finding: -1 });
      location.reload();
    },
  });
}
shown.start();
