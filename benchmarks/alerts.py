"""What alerts cost beyond detection: the part of a training step that their code takes.

    ./dev bench alerts [--steps N]

Llama, 8 layers, hidden 512, batch 4 x 256, AdamW, all of modules. Every call by which detection and the step reach the rules and the checks
is timed while the run is watched with its defaults. A step's time and the calls' time in it come from the same step, so that what else
the machine does changes both. Checks look at each parameter at the first four steps and then at one of a hundred: these thorough steps are
timed apart, and count by a hundredth. (The noise of whole steps, with alerts and without, is some ten times what is measured here.)
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from _machine import describe, write
from step import build

import numscope
from numscope.alerts.checks.check import EVERY, FIRST
from numscope.alerts.checks.checker import OCCASIONS, Checker
from numscope.alerts.engine import Engine

taken = {"rules": 0.0, "checks": 0.0}


def timed(cls: type, name: str, part: str) -> None:
    function: Callable[..., Any] = getattr(cls, name)

    @functools.wraps(function)
    def around(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            taken[part] += time.perf_counter() - start

    setattr(cls, name, around)


def measure(dtype: torch.dtype, steps: int) -> dict[str, Any]:
    model = build(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(0, 8192, (steps, 4, 256), generator=torch.Generator().manual_seed(1))

    def step(number: int) -> float:
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        model(input_ids=ids[number], labels=ids[number]).loss.backward()
        optimizer.step()
        return time.perf_counter() - start

    shares: dict[str, list[float]] = {"rules": [], "checks": [], "thorough": []}
    spent: list[float] = []
    with numscope.watch(model) as scope:
        for number in range(FIRST + steps // 2):
            taken.update(rules=0.0, checks=0.0)
            whole = step(number)
            rest = whole - sum(taken.values())
            if number < FIRST:
                shares["thorough"].append(taken["checks"] / rest)
            else:
                spent.append(rest)
                shares["rules"].append(taken["rules"] / rest)
                shares["checks"].append(taken["checks"] / rest)
        alerts = [alert.line() for alert in scope.alerts]
    # The rules look at growth every fourth step: the mean counts, not the median.
    parts = {name: statistics.fmean(found) for name, found in shares.items()}
    total = parts["rules"] + parts["checks"] + (parts["thorough"] - parts["checks"]) / EVERY
    return {
        "step_s": statistics.median(spent),
        **{name: 100 * part for name, part in parts.items()},
        "total": 100 * total,
        "alerts": alerts,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    timed(Engine, "step", "rules")
    for occasion in OCCASIONS:
        if occasion in vars(Checker):
            timed(Checker, occasion, "checks")
    results = {str(dtype).removeprefix("torch."): measure(dtype, args.steps) for dtype in (torch.float32, torch.bfloat16)}
    lines = ["| | " + " | ".join(results) + " |", "|---|---|---|"]
    lines.append("| step under detection | " + " | ".join(f"{one['step_s'] * 1e3:.0f} ms" for one in results.values()) + " |")
    for name, key in (
        ("rules over each step's rows", "rules"),
        ("checks, most steps", "checks"),
        (f"checks, a thorough step (one of {EVERY})", "thorough"),
        ("**alerts, over all steps**", "total"),
    ):
        lines.append(f"| {name} | " + " | ".join(f"{one[key]:+.3f} %" for one in results.values()) + " |")
    write("alerts", {"machine": describe(), "results": results}, "Alerts: added time against a step under detection", lines)


if __name__ == "__main__":
    main()
