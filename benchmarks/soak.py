"""A hundred thousand steps of a small model under detection and statistics, with a finding now and then: does anything grow?

Every hundredth step a function makes a model, watches it, returns its loss and leaves it, unclosed.

    ./dev bench soak      (soak.py --steps N for fewer)

A hundred times over the run: resident memory, Python's allocated blocks, open files, threads, child processes, hooks. Of each tenth the
least counts, since what is bounded comes and goes (the tape's rows, a dropped model until it is collected). The first three tenths warm up:
checksums of the last 16,384 batches are kept. What grows by more than ``ALLOWED`` is an error (exit status 1). Files of the run are
counted, and may grow.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import itertools
import logging
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch
from _machine import describe, write
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

import numscope

STATS = {"enabled": True, "stats": ["mean", "std", "max", "l2_norm"], "tensors": ["activation", "weight", "gradient"], "freq": 50}
CONFIG = {"all": {"enabled": True, "layers": {"layer_types": ["Linear"]}, "statistics": STATS}}
NUM_FINDINGS = 1  # in each tenth: a finding and its report stay in memory (about 20 KiB), and each costs a replay in a forked process
# From one tenth to the next, and from the first to the last. What grows with each step shows in the middle of the growths of seven tenths:
# 512 KiB in 10,000 steps are 52 bytes a step, less than any record of a step. What happens once (the first time that parts are merged,
# Arrow's memory pool takes some MiB and keeps them) shows in the whole alone.
ALLOWED = {
    "resident memory, KiB": (512, 16384), "Python's blocks": (500, 5000),
    "open files": (0, 0), "threads": (0, 0), "children": (0, 0), "hooks": (0, 0),
}  # fmt: skip


def held(model: nn.Module, folder: Path) -> dict[str, int]:
    """What the process, the model and the run's folder hold now."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    hooks = sum(len(hooks) for m in model.modules() for name, hooks in vars(m).items() if name.endswith("_hooks"))
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        "resident memory, KiB": resident >> 10,
        "Python's blocks": sys.getallocatedblocks(),
        "open files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "children": len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()),
        "hooks": hooks + len(_global_optimizer_pre_hooks) + len(_global_optimizer_post_hooks),
        "files of the run": len(files),
        "their size, KiB": sum(path.stat().st_size for path in files) >> 10,
    }


def loss_of_a_model_that_goes(x: torch.Tensor) -> torch.Tensor:
    model = nn.Linear(8, 1)
    numscope.watch(model, on_nonfinite="warn")
    loss: torch.Tensor = model(x).mean()
    return loss


def measure(steps: int, folder: Path) -> tuple[list[dict[str, int]], float, int]:
    """What is held after each tenth of the steps, microseconds a step, and the number of findings."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    x, y = torch.randn(4, 8), torch.randn(4, 4)
    bad = x / 0
    good = {name: value.clone() for name, value in model.state_dict().items()}
    every = max(1, steps // (10 * NUM_FINDINGS))
    found = []
    samples: list[dict[str, int]] = []
    began = time.perf_counter()
    with numscope.watch(model, config=CONFIG, log_dir=folder, on_nonfinite="warn") as scope:
        for step in range(1, steps + 1):
            optimizer.zero_grad()
            loss = (model(bad if step % every == every // 2 else x) - y).square().mean()
            loss.backward()
            optimizer.step()
            if not loss.isfinite():
                model.load_state_dict(good)
                optimizer.state.clear()
            if step % 100 == 0:
                left = loss_of_a_model_that_goes(x)
                if step % 200 == 0:
                    left.backward()
                del left
            if step % (steps // 100) == 0:
                samples.append(held(model, folder))
            if step % (steps // 10) == 0:
                found.append({name: min(sample[name] for sample in samples) for name in samples[0]})
                samples = []
        num_findings = len(scope.findings)
        assert not scope.closed
    return found, (time.perf_counter() - began) / steps * 1e6, num_findings


def grown(found: list[dict[str, int]]) -> list[str]:
    """What has grown too much, in words."""
    wrong = []
    for name, allowed in ALLOWED.items():
        growths = [later[name] - earlier[name] for earlier, later in itertools.pairwise(found[2:])]
        for what, growth, most in zip(("in a tenth", "in all"), (int(statistics.median(growths)), sum(growths)), allowed, strict=True):
            if growth > most:
                wrong.append(f"{name}: grown by {growth:,} {what}, allowed {most:,}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        found, us, num_findings = measure(steps, Path(folder))
    wrong = grown(found)
    verdict = "Nothing grows with the steps." if not wrong else f"Grows: {'; '.join(wrong)}."
    result: dict[str, Any] = {"machine": describe(), "steps": steps, "us_per_step": us, "findings": num_findings, "held": found}
    lines = [f"{steps:,} steps, {us:.0f} µs each; statistics of every 50th step; {num_findings} findings kept. {verdict}", ""]
    lines += ["| after | " + " | ".join(found[0]) + " |", "|---|" + "---|" * len(found[0])]
    lines += [f"| {(i + 1) * 10} % | " + " | ".join(f"{value:,}" for value in row.values()) + " |" for i, row in enumerate(found)]
    write("soak", result | {"wrong": wrong}, "What a long run under detection and statistics holds", lines)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
