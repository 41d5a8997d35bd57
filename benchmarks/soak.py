"""A hundred thousand steps of a small model under detection and statistics: what grows?

    ./dev bench soak [--steps N]

Ten times over the run: resident memory, Python's allocated blocks, open files, threads, hooks on the model. The first tenth warms up.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import threading
import time
from typing import Any

import torch
from _machine import describe, write
from torch import nn

import numscope

STATS = {"enabled": True, "stats": ["mean", "std", "max", "l2_norm"], "tensors": ["activation", "weight", "gradient"], "freq": 50}
CONFIG = {"all": {"enabled": True, "layers": {"layer_types": ["Linear"]}, "statistics": STATS}}


def held(model: nn.Module) -> dict[str, int]:
    """What the process and the model hold now."""
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    hooks = sum(len(hooks) for m in model.modules() for name, hooks in vars(m).items() if name.endswith("_hooks"))
    return {
        "resident memory, KiB": resident >> 10,
        "Python's blocks": sys.getallocatedblocks(),
        "open files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "hooks": hooks,
    }


def measure(steps: int, folder: str) -> tuple[list[dict[str, int]], float]:
    """What is held after each tenth of the steps, and microseconds a step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = torch.randn(8, 16), torch.randn(8, 4)
    found = []
    began = time.perf_counter()
    with numscope.watch(model, config=CONFIG, log_dir=folder):
        for step in range(steps):
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()
            if (step + 1) % (steps // 10) == 0:
                found.append(held(model))
    return found, (time.perf_counter() - began) / steps * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found, us = measure(steps, folder)
    result: dict[str, Any] = {"machine": describe(), "steps": steps, "us_per_step": us, "held": found}
    lines = [f"{steps:,} steps, {us:.0f} µs each; statistics of every 50th step.", ""]
    lines += ["| after | " + " | ".join(found[0]) + " |", "|---|" + "---|" * len(found[0])]
    lines += [f"| {(i + 1) * 10} % | " + " | ".join(f"{value:,}" for value in row.values()) + " |" for i, row in enumerate(found)]
    write("soak", result, "What a long run under detection and statistics holds", lines)


if __name__ == "__main__":
    main()
