import { Page } from "./page.js";
import { Run } from "./run.js";
import { readAddress, set, state } from "./state.js";

// The page of a file: its runs are in it.
const { runs, comparison } = JSON.parse(document.getElementById("data").textContent);
const given = readAddress();
const shown = new Page(new Run(runs[state.run] ?? runs[0]), given);
if (comparison) {
  shown.compare(comparison, {
    runs, names: runs.map((run) => run.name), chosen: runs[state.run] ? state.run : 0,
    choose: (run) => {
      set({ run, finding: -1 });
      location.reload();
    },
  });
}
shown.start();
