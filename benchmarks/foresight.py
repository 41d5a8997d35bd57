"""How early alerts come before training runs diverge by themselves, and how often they come in healthy ones.

    ./dev bench foresight [--seeds N] [--processes N] [--only WORD]

Each run of ``_scenarios.py`` is watched with numscope's defaults, for 1,000 steps or until it diverges: the mean loss of five steps stands
0.5 nat over its best, or is not finite. Beside it, in the same run, the detector of trainscope 1.8.1 with its defaults, fed with each
step's loss as its ``TrainScope.step`` feeds it (left out where it is not installed: pip install --no-deps trainscope==1.8.1).

Reported for diverging runs: the lead, in steps from the first alert to the divergence; whether the layer that was named last, five steps
ahead or more, is among the three whose outputs have grown most from 128 steps before the first alert to the divergence, by plain hooks of
this script. For healthy runs: alerts in 10,000 steps. A third of the scenarios was kept aside while the rules were made.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import statistics
import warnings
from collections.abc import Iterable
from typing import Any

import _scenarios as scenarios
import torch
from _machine import describe, write
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import numscope

STEPS, LATEST, WITHIN = 1000, 5, 3
OVER_BEST, MEAN_OF = 0.5, 5

GROUPS = {
    "diverging": scenarios.DIVERGING,
    "diverging, kept aside": scenarios.DIVERGING_ASIDE,
    "healthy": scenarios.HEALTHY,
    "healthy, kept aside": scenarios.HEALTHY_ASIDE,
}


class Outputs:
    """The largest magnitudes of each module's output, step by step, by plain hooks."""

    def __init__(self, model: nn.Module) -> None:
        self.steps: list[dict[str, float]] = []
        for name, module in model.named_modules():
            module.register_forward_hook(lambda module, args, output, name=name: self._see(name, output))

    def begin(self) -> None:
        self.steps.append({})

    def _see(self, name: str, output: object) -> None:
        found = [one for one in pytree.tree_leaves(output) if isinstance(one, Tensor) and one.is_floating_point()]
        if found:
            self.steps[-1][name] = max(one.detach().abs().max().item() for one in found)

    def growth(self, first: int, last: int) -> dict[str, float]:
        """Bits by which each has grown between two steps, each the median of the eight steps up to it."""
        levels = [
            {
                name: statistics.median(
                    math.log2(max(step[name], 1e-30)) for step in self.steps[max(0, at - 7) : at + 1] if ok(step.get(name))
                )
                for name in self.steps[at]
                if any(ok(step.get(name)) for step in self.steps[max(0, at - 7) : at + 1])
            }
            for at in (first, last)
        ]
        return {name: levels[1][name] - levels[0][name] for name in levels[1] if name in levels[0]}


def ok(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def run(task: tuple[str, str, int]) -> dict[str, Any]:
    """One run."""
    group, name, seed = task
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    training = GROUPS[group][name]()
    diverges = group.startswith("diverging")
    outputs = Outputs(training.model) if diverges else None
    scopes = [numscope.watch(model, on_nonfinite="warn", replay=False) for model in (training.model, *training.others)]
    peer, heard = detector(), []
    losses: list[float] = []
    best, end = math.inf, None
    for number in range(STEPS):
        if outputs is not None:
            outputs.begin()
        losses.append(training.step(number))
        if peer is not None and math.isfinite(losses[-1]) and peer.update(losses[-1]) is not None:
            heard.append(number)
        if diverges and len(losses) >= MEAN_OF:
            mean = statistics.fmean(losses[-MEAN_OF:])
            if not mean <= best + OVER_BEST:
                end = number
                break
            best = min(best, mean)
    alerts = [alert for scope in scopes for alert in scope.alerts]
    for scope in scopes:
        scope.close()
    found: dict[str, Any] = {
        "group": group, "scenario": name, "seed": seed, "steps": len(losses), "end": end, "loss": losses[-1],
        "alerts": [[alert.step, alert.rule, alert.layer, alert.asks] for alert in alerts],
        "trainscope": None if peer is None else heard,
    }  # fmt: skip
    if end is not None and outputs is not None:
        said = [alert for alert in alerts if not alert.asks and alert.step <= end]
        found["lead"] = end - said[0].step if said else None
        named = [alert.layer for alert in said if alert.step <= end - LATEST and alert.layer]
        if named:
            grown = outputs.growth(max(8, said[0].step - 128), end)
            order = sorted(grown, key=lambda name: -grown[name])
            found["rank"] = order.index(named[-1]) + 1 if named[-1] in order else None
            found["named"] = named
    return found


def detector() -> Any:
    """What ``TrainScope.step`` asks of each loss."""
    try:
        from trainscope.core.detectors import ChangePointDetector
    except ImportError:
        return None
    return ChangePointDetector()


def table(found: list[dict[str, Any]], group: str) -> list[str]:
    diverging = group.startswith("diverging")
    head = "| | runs | steps | median lead (least) | 5 steps ahead | layer | trainscope: median lead, 5 steps ahead |"
    lines = (
        [head, "|---|---|---|---|---|---|---|"]
        if diverging
        else ["| | runs | steps | alerts | which | trainscope |", "|---|---|---|---|---|---|"]
    )
    rows = [one for one in found if one["group"] == group]
    for name in [*dict.fromkeys(one["scenario"] for one in rows), "all"]:
        runs = [one for one in rows if name in (one["scenario"], "all")]
        steps = sum(one["steps"] for one in runs)
        if diverging:
            lines.append(f"| {name} | {len(runs)} | {steps:,} | {_leads(runs)} | {_trainscope(runs)} |")
        else:
            alerts = [alert for one in runs for alert in one["alerts"]]
            which = ", ".join(f"{rule} {sum(alert[1] == rule for alert in alerts)}" for rule in dict.fromkeys(alert[1] for alert in alerts))
            peer = "" if runs[0]["trainscope"] is None else str(sum(len(one["trainscope"]) for one in runs))
            lines.append(f"| {name} | {len(runs)} | {steps:,} | {len(alerts)} | {which} | {peer} |")
    return lines


def _leads(runs: list[dict[str, Any]]) -> str:
    ended = [one for one in runs if one["end"] is not None]
    if not ended:
        return "did not diverge | |"
    leads = [one["lead"] or 0 for one in ended]
    early = sum(lead >= LATEST for lead in leads)
    named = [one for one in ended if one.get("named")]
    right = sum(one["rank"] is not None and one["rank"] <= WITHIN for one in named)
    return f"{statistics.median(leads):.0f} ({min(leads)}) | {early} of {len(ended)} | {right} of {len(named)}"


def _trainscope(runs: list[dict[str, Any]]) -> str:
    ended = [one for one in runs if one["end"] is not None]
    if not ended or ended[0]["trainscope"] is None:
        return ""
    leads = [one["end"] - one["trainscope"][0] if one["trainscope"] else 0 for one in ended]
    return f"{statistics.median(leads):.0f}, {sum(lead >= LATEST for lead in leads)}"


def results_in_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    groups = list(GROUPS)
    return sorted(found, key=lambda one: (groups.index(one["group"]), list(GROUPS[one["group"]]).index(one["scenario"]), one["seed"]))


def every(seeds: Iterable[int], only: str) -> list[tuple[str, str, int]]:
    return [(group, name, seed) for group, found in GROUPS.items() for name in found for seed in seeds if only in name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", help="scenarios whose name has this word; nothing is kept then")
    args = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        found = []
        for one in pool.imap_unordered(run, every(range(args.seeds), args.only)):
            print(one["group"], one["scenario"], one["seed"], one["end"], one.get("lead"), one.get("rank"), one["alerts"][:4], flush=True)
            found.append(one)
    lines = []
    for group in {one["group"]: None for one in results_in_order(found)}:
        lines += [f"## {group.capitalize()}", "", *table(found, group), ""]
    results = {"machine": describe(), "runs": results_in_order(found)}
    if args.only:
        print("\n".join(lines))
    else:
        write("foresight", results, "Alerts before runs diverge", lines)


if __name__ == "__main__":
    main()
