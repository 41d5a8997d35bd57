"""What a tensor on a device costs the host: everything from seeing it to its launch, with the launch itself left out.

    ./dev bench launch [--rounds N]

Tensors are on the simulated accelerator of the tests. The ledger, the place of each tensor, the shares of programs, scratch memory, tables
and arguments are those of CUDA; the compiled kernel is replaced by a function that does nothing. Reported: the median over the rounds, in
the thread's own time.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import torch  # noqa: E402
from _machine import describe, write  # noqa: E402

from numscope.summary import device_batch  # noqa: E402
from numscope.summary.ledger import Ledger  # noqa: E402
from tests.simulated import accelerator  # noqa: E402, F401

COUNT, GOAL_US = 240, 8.0


class _Compiled(dict):  # type: ignore[type-arg]
    """A kernel for every variant, which does nothing."""

    def get(self, variant: object, default: object = None) -> object:
        return self

    def __getitem__(self, grid: object) -> object:
        return lambda *arguments, stream: None


def measure(rounds: int) -> dict[str, float]:
    device = torch.device("simulated:0")
    launcher = importlib.import_module("numscope.summary.triton_launch").Launcher(device, 132, 32, lambda: 0, lambda: False)
    launcher._compiled = _Compiled()
    device_batch.KERNELS["simulated"] = lambda _: launcher
    tensors = [torch.zeros(64, 64, device=device) for _ in range(COUNT)]
    ledger = Ledger(capacity=COUNT)
    found: dict[str, list[float]] = {"alone": [], "two in a call": [], "four in a call": [], "all in one launch": []}
    for _ in range(rounds):
        for name, each in (("alone", 1), ("two in a call", 2), ("four in a call", 4), ("all in one launch", COUNT)):
            ledger.reset()
            start = time.thread_time()
            if each == COUNT:
                ledger.observe_many(tensors)
            else:
                for at in range(0, COUNT, each):
                    with device_batch.DeviceBatch():
                        for tensor in tensors[at : at + each]:
                            ledger.observe(tensor)
            found[name].append((time.thread_time() - start) / COUNT * 1e6)
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=101)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(given.rounds)
    lines = [
        f"The goal is {GOAL_US:.0f} µs. The launch itself is left out; no GPU is involved.",
        "",
        "| tensors | µs of the host, each |",
        "|---|---|",
    ]
    lines += [f"| {name} | {time:.1f} |" for name, time in found.items()]
    write("launch", {"machine": describe(), "goal_us": GOAL_US, "results": found}, "What a tensor on a device costs the host", lines)


if __name__ == "__main__":
    main()
