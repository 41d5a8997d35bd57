"""What a watch costs the host for each module: microseconds of Python around a module's call, its backward and its update.

    ./dev bench host [--rounds N] [--modules N]

A ``Sequential`` of small Linear layers on one thread, forward, backward and SGD: the tensors cost next to nothing, so what is left is what
a GPU would wait for. In each round every variant is attached once, runs two steps to warm up and ten by the clock, and is detached; beside
it ten steps of the bare model. Reported, in the thread's own time: the median over the rounds of what a variant adds, by module.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from _machine import describe, write
from inspector import SIX, collect
from step import bare, peer, watched
from torch import nn

import numscope

WIDTH, STEPS = 8, 10


@contextlib.contextmanager
def statistics_of(model: nn.Module) -> Iterator[None]:
    """Six statistics of each layer's activation, gradient and weight, at every step, and no detection."""
    with numscope.watch(model, on_nonfinite=None, config=collect(SIX, ".*"), loggers=(_Nowhere(),)):
        yield


class _Nowhere:
    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        """Writing is not the host path."""


VARIANTS: dict[str, Callable[[nn.Module], contextlib.AbstractContextManager[Any]]] = {
    "bare again (noise)": bare,
    "detection": watched(),
    "detection without alerts": watched(alerts="off"),
    "sentinel": watched(level="sentinel"),
    "six statistics": statistics_of,
    "transformers DebugUnderflowOverflow": peer,
}


def measure(rounds: int, modules: int) -> dict[str, list[float]]:
    """Microseconds a module that each variant adds, by round; of the bare step under "bare"."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(modules)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(4, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    def run() -> float:
        taken = []
        for number in range(2 + STEPS):
            start = time.thread_time()
            step()
            if number >= 2:
                taken.append(time.thread_time() - start)
        return statistics.median(taken) / modules * 1e6

    found: dict[str, list[float]] = {name: [] for name in ("bare", *VARIANTS)}
    for _ in range(rounds):
        for name, attach in VARIANTS.items():
            gc.collect()
            base = run()
            found["bare"].append(base)
            with attach(model):
                found[name].append(run() - base)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--modules", type=int, default=100)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(given.rounds, given.modules)
    results = {name: statistics.quantiles(values, n=4) for name, values in found.items()}
    lines = [f"{given.modules} Linear layers; a bare step takes {results['bare'][1]:.0f} µs a module.", ""]
    lines += ["| variant | added, µs a module | quartiles |", "|---|---|---|"]
    lines += [f"| {name} | {results[name][1]:+.1f} | {results[name][0]:+.1f} … {results[name][2]:+.1f} |" for name in VARIANTS]
    write("host", {"machine": describe(), "results": results}, "What a watch costs the host", lines)


if __name__ == "__main__":
    main()
