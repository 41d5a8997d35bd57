"""Which signal announces a divergence, and how often it speaks in healthy runs: each alone, over strangers' runs.

    ./dev bench foresight_signals [--jobs N] [--out FOLDER]

The diverging scripts (``b*``) of five sets of ``first_contact``, their healthy twins and the healthy longer runs (``c*``) are run under
``numscope run`` as ``foresight_strangers.py`` runs them; what the rules get of each step is kept beside: the loss, and the largest
magnitude of each output, weight and gradient, as log2. Each signal is a row of numbers, of which medians of so many steps must rise from
one to the next, by so many bits in all; *faster*: by more each time. It is asked at every fourth step. Signals were chosen on the first
four sets; silent6 was made and run afterwards.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _machine import describe, write
from foresight_strangers import AHEAD, FOLDER, MOST_S, TRENDS, lost_steps, runs_of

from numscope.alerts import board as boards
from numscope.alerts.board import SiteKind

SETS = ("silent", "silent3", "silent4", "silent5", "silent6")
LAST = "silent6"  # made after the signals were chosen
Series = dict[str, Any]


class Signal(NamedTuple):
    name: str
    of: Callable[[Series], Any]  # a number for each step
    steps: int  # in a median
    parts: int
    bits: float
    faster: bool = False
    least: float = 0.0  # times the first losses, of the loss itself


def level(kind: SiteKind, percent: int) -> Callable[[Series], Any]:
    """Of all tensors of a kind, the median's or the fastest tenth's."""

    def of(series: Series) -> Any:
        at = [i for i, each in enumerate(series["kinds"]) if each == kind]
        return np.nanpercentile(series["levels"][:, at], percent, axis=1) if at else np.full(len(series["losses"]), np.nan)

    return of


def ratio(series: Series) -> Any:
    """Of gradients to weights."""
    return level(SiteKind.WEIGHT_GRADIENT, 50)(series) - level(SiteKind.MATRIX, 50)(series)


def loss(series: Series) -> Any:
    return np.log2(np.where(series["losses"] > 0, series["losses"], np.nan))


SIGNALS = [
    Signal("the loss", loss, 8, 4, 0.68, least=1.5),
    Signal("the loss", loss, 16, 4, 0.26, least=1.5),
    Signal("outputs, the largest tenth", level(SiteKind.OUTPUT, 90), 8, 4, 1.0, faster=True),
    Signal("outputs, the largest tenth", level(SiteKind.OUTPUT, 90), 8, 4, 1.0),
    Signal("matrices, their median", level(SiteKind.MATRIX, 50), 8, 4, 0.5, faster=True),
    Signal("matrices, the largest tenth", level(SiteKind.MATRIX, 90), 16, 4, 1.0, faster=True),
    Signal("biases and norms, their median", level(SiteKind.VECTOR, 50), 8, 4, 0.5, faster=True),
    Signal("gradients of outputs, their median", level(SiteKind.GRADIENT, 50), 8, 4, 1.0),
    Signal("gradients of weights, the largest tenth", level(SiteKind.WEIGHT_GRADIENT, 90), 8, 6, 1.0),
    Signal("gradients of weights, their median", level(SiteKind.WEIGHT_GRADIENT, 50), 8, 4, 2.0),
    Signal("gradients over weights", ratio, 8, 4, 1.0),
]


def keep(base: list[str]) -> None:
    """From now on each board writes what it is given to a file beside the run's output."""
    board: Any = boards.Board
    add, num = board.add, [0]

    def adding(self: Any, step: int, at: Any, amax: Any, value: float = float("nan")) -> None:
        file = getattr(self, "_kept", None)
        if file is None:
            num[0] += 1
            file = self._kept = open(f"{base[0]}.board{num[0]}", "ab", buffering=0)
            self._num_kept = 0
        if len(self.places) != self._num_kept:
            pickle.dump(("places", [(*place[:4], int(place.kind), place.usual) for place in self.places[self._num_kept :]]), file)
            self._num_kept = len(self.places)
        pickle.dump((step, at.astype("int32"), amax.astype("float32"), value), file)
        add(self, step, at, amax, value)

    board.add = adding


def read(path: Path) -> Series:
    """What one board was given."""
    kinds, steps, losses, rows = [], [], [], []
    with path.open("rb") as file:
        while True:
            try:
                one = pickle.load(file)  # our own
            except (EOFError, pickle.UnpicklingError):
                break
            if one[0] == "places":
                kinds += [place[4] for place in one[1]]
            else:
                steps.append(one[0])
                losses.append(one[3])
                rows.append(one[1:3])
    levels = np.full((len(rows), len(kinds)), np.nan)
    for i, (at, amax) in enumerate(rows):
        levels[i] = levels[i - 1] if i else np.nan
        levels[i, at[amax > 0]] = np.log2(amax[amax > 0])
    return {"steps": steps, "losses": np.array(losses, float), "levels": levels, "kinds": kinds}


def speaks(signal: Signal, series: Series) -> Iterator[int]:
    """Steps at which it does."""
    row, size = signal.of(series), signal.steps * signal.parts
    first = np.nanmedian(np.abs(series["losses"][:8])) if len(row) else np.nan
    for end in range(size, len(row) + 1, 4):
        parts = np.nanmedian(row[end - size : end].reshape(signal.parts, signal.steps), axis=1)
        rises = np.diff(parts)
        if not (rises > 0).all() or parts[-1] - parts[0] < signal.bits or (signal.faster and not (np.diff(rises) > 0).all()):
            continue
        if not signal.least or 2 ** parts[-1] > signal.least * first:
            yield series["steps"][end - 1]


def table(runs: list[dict[str, Any]], lost: dict[tuple[str, str], int], series: dict[tuple[str, str, bool], list[Series]]) -> list[str]:
    lines = [
        f"| signal | medians | 5 steps ahead | … and no rule of today | of {LAST} | median lead | in healthy runs (in 10,000 steps) |",
        "|---|---|---|---|---|---|---|",
    ]
    bad = [one for one in runs if not one["healthy"] and (one["set"], one["case"]) in lost]
    good = [one for one in runs if one["healthy"] and one["status"] != -9]
    steps = sum(one["steps"] for one in good)
    known = {
        (one["set"], one["case"])
        for one in bad
        if any(a["rule"] in TRENDS and lost[one["set"], one["case"]] - a["step"] >= AHEAD for a in one["alerts"])
    }
    for signal in SIGNALS:

        def first(one: dict[str, Any], signal: Signal = signal) -> int | None:
            key = one["set"], one["case"], one["healthy"]
            return min((step for each in series.get(key, ()) for step in list(speaks(signal, each))[:1]), default=None)

        leads = {(o["set"], o["case"]): lost[o["set"], o["case"]] - at for o in bad if (at := first(o)) is not None}
        early = {key: lead for key, lead in leads.items() if lead >= AHEAD}
        false = sum(first(one) is not None for one in good)
        of_last = f"{sum(key[0] == LAST for key in early)} of {sum(one['set'] == LAST for one in bad)}"
        how = f"{signal.parts} of {signal.steps}, {signal.bits:g} bits{', faster' if signal.faster else ''}"
        lead = f"{np.median(list(early.values())):g}" if early else "–"
        row = (
            f"{len(early)} of {len(bad)}",
            len(early.keys() - known),
            of_last,
            lead,
            f"{false} of {len(good)} ({1e4 * false / max(1, steps):.1f})",
        )
        lines.append(f"| {signal.name} | {how} | {' | '.join(map(str, row))} |")
    return [*lines, "", f"The rules of today announce {len(known)} of these {len(bad)}. Healthy: {steps:,} steps."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--out", type=Path, default=Path("build/foresight_signals"), help="what is there is not run again")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(FOLDER / "silent"))
    run: Any = importlib.import_module("run")
    base, start = [""], run.start
    keep(base)

    def starting(case: Path, is_twin: bool, at: Path) -> Any:
        base[0] = str(at)
        return start(case, is_twin, at)

    run.start = starting
    words = ["--out", str(given.out), "--sets", ",".join(SETS), "--only", "b*,c*", "--jobs", str(given.jobs), "--timeout", str(MOST_S)]
    sys.argv = ["run.py", *words]
    run.main()
    lost = {(name, case): step for name in SETS for case, step in lost_steps(name).items()}
    runs = runs_of(json.loads((given.out / "alerts.json").read_text()))
    series = {
        (one["set"], one["case"], one["healthy"]): [
            read(path)
            for end in ("--healthy", "")
            for path in sorted((given.out / one["set"]).glob(f"{one['case']}{end}.board*"))
            if one["healthy"] == (end != "" or one["case"].startswith("c"))
        ]
        for one in runs
    }
    write("foresight_signals", {"machine": describe(), "runs": runs}, "Signals before strangers' runs diverge", table(runs, lost, series))


if __name__ == "__main__":
    main()
