"""Training on a real GPU: the same bits, one wait a step, and the line at fault."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import numscope

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="asks for a CUDA or ROCm device")
if torch.cuda.is_available():
    from tests.gpu.models import DEVICE, GPT, LOOPS, STEPS, ids, watching

SIX = ["min", "max", "mean", "std", "l1_norm", "l2_norm"]


@pytest.fixture(autouse=True)
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    yield
    torch.use_deterministic_algorithms(False)


class Kept:
    """A logger that keeps what it is given."""

    def __init__(self) -> None:
        self.values: dict[tuple[int, str], float] = {}

    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        self.values[iteration, name] = value


def asked(freq: int = 1) -> dict[str, Any]:
    feature = {"enabled": True, "stats": SIX, "tensors": ["activation", "weight", "gradient"], "freq": freq}
    return {"all": {"enabled": True, "layers": {"layer_name_regex_pattern": ".*"}, "statistics": feature}}


WATCHES: dict[str, dict[str, Any]] = {
    "modules": {},
    "sentinel": {"level": "sentinel"},
    "alerts off": {"alerts": False},
    "statistics": {"config": asked(), "loggers": (Kept(),)},
}


def left(name: str, options: dict[str, Any] | None) -> tuple[list[Tensor], Tensor, Tensor]:
    torch._dynamo.reset()
    results = LOOPS[name](options)
    return results, torch.cuda.get_rng_state(), torch.get_rng_state()


@pytest.mark.parametrize("watch", WATCHES)
@pytest.mark.parametrize("name", LOOPS if torch.cuda.is_available() else ())
def test_training_computes_the_same_bits(name: str, watch: str) -> None:
    torch.use_deterministic_algorithms("compiled" in name)  # else inductor adds up an embedding's gradient in any order
    bare, again = left(name, None), left(name, None)
    assert all(map(torch.equal, bare[0], again[0])), "the loop itself gives other bits each time"
    watched = left(name, WATCHES[watch])
    if name == "compiled" and watch != "sentinel":  # taps in a graph make inductor fuse its loops elsewhere: docs/promises.md
        assert all(torch.allclose(a, b, rtol=1e-2) for a, b in zip(bare[0][:STEPS], watched[0][:STEPS], strict=True))
        watched = bare[0], *watched[1:]
    differing = [index for index, (a, b) in enumerate(zip(bare[0], watched[0], strict=True)) if not torch.equal(a, b)]
    assert not differing, (differing, len(bare[0]))
    assert torch.equal(bare[1], watched[1]) and torch.equal(bare[2], watched[2])


def calls_of(steps: Any) -> collections.Counter[str]:
    """Calls of CUDA's runtime and driver, by name."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as profile:
        steps()
    return collections.Counter(event.name for event in profile.events() if event.name.startswith(("cuda", "cu")))


def waits(calls: collections.Counter[str]) -> int:
    return sum(count for name, count in calls.items() if "Synchronize" in name)


@pytest.mark.parametrize("watch", WATCHES)
def test_the_host_waits_once_a_step(watch: str) -> None:
    torch.manual_seed(0)
    model = GPT().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    batches = [ids(step) for step in range(8)]

    def train() -> None:
        for tokens in batches:
            F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()

    train()
    bare = waits(calls_of(train))
    with watching(model, WATCHES[watch]):
        train()
        calls = calls_of(train)
    print(watch, bare, calls)
    assert waits(calls) <= bare + 8 * (2 if watch == "statistics" else 1), (bare, calls)


class Faulty(nn.Module):
    """A GPT's block whose line fails when it is told to."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.fails = how, False
        self.lower, self.upper = nn.Linear(32, 32), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.lower(x)
        if self.how == "forward":
            hidden = torch.log(hidden.square() + (-1.0 if self.fails else 0.1))
        elif self.how == "backward":
            hidden = hidden * torch.sqrt(hidden.square() * (0.0 if self.fails else 1.0))
        elif self.how == "overflow":
            hidden = (hidden.half() * (60000.0 if self.fails else 1.0)).exp().to(x.dtype)
        return self.upper(hidden)


EXPECTED = {
    "forward": ("aten.log", "torch.log(hidden.square()"),
    "backward": ("aten.div", "hidden * torch.sqrt(hidden.square()"),
    "overflow": ("", "hidden = (hidden.half() * (60000.0"),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("how", EXPECTED)
def test_a_fault_is_named_by_its_operation_and_line(how: str, compiled: bool) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Faulty(how).to(DEVICE)
    call = torch.compile(model) if compiled else model
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with pytest.raises(numscope.NonFiniteError) as caught, numscope.watch(model, on_nonfinite="raise"):
        for step in range(6):
            model.fails = step == 3
            optimizer.zero_grad()
            call(torch.randn(16, 32, device=DEVICE)).square().mean().backward()
            optimizer.step()
    finding = caught.value.finding
    op, line = EXPECTED[how]
    assert finding.step == 3 and finding.culprit is not None, finding
    assert op in finding.culprit.op.lower() and line in str(finding.culprit), str(finding.culprit)


def test_statistics_on_the_gpu_are_those_of_the_host() -> None:
    from tests.gpu import models

    def run(device: str) -> dict[tuple[int, str], float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)).to(device).double()
        kept = Kept()
        with numscope.watch(model, on_nonfinite=None, config=asked(), loggers=(kept,)):
            for step in range(models.STEPS):
                x = torch.randn(16, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(step)).to(device)
                model(x).square().mean().backward()
        return kept.values

    here, there = run("cpu"), run("cuda")
    assert here.keys() == there.keys() and len(here) >= STEPS * 3 * len(SIX)
    wrong = {key: (value, there[key]) for key, value in here.items() if abs(value - there[key]) > 1e-3 * max(abs(value), 1e-6)}
    assert not wrong, wrong


def test_a_replay_moves_no_random_state_of_the_device() -> None:
    """The bad step is done again in this process; afterwards dropout draws what it would have drawn."""

    def run(options: dict[str, Any] | None) -> tuple[list[Tensor], Tensor]:
        torch.manual_seed(0)
        model = GPT().to(DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        with watching(model, options):
            for step in range(5):
                tokens = ids(step)
                loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
                (loss * (float("inf") if step == 2 else 1.0)).backward()
                if step != 2:
                    optimizer.step()
                optimizer.zero_grad()
        return [p.detach() for p in model.parameters()], torch.cuda.get_rng_state()

    bare, watched = run(None), run({"on_nonfinite": "warn"})
    assert all(map(torch.equal, bare[0], watched[0])) and torch.equal(bare[1], watched[1])


SCRIPT = """
import os, sys, torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
how, backend = sys.argv[1:]
dist.init_process_group(backend)
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).to("cuda")
if how == "ddp":
    model = DDP(model)
else:
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(8):
    x = torch.randn(16, 32, device="cuda")
    hidden = model(x)
    if step == 5 and rank == dist.get_world_size() - 1:
        hidden = torch.log(hidden - 1e6)
    hidden.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("finished", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("how", "backend", "ranks"), [("ddp", "nccl", 1), ("fsdp", "nccl", 1), ("ddp", "gloo", 2)])
def test_ranks_on_a_gpu_name_the_rank_and_the_line(how: str, backend: str, ranks: int, tmp_path: Any) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "-m", "numscope", "run"]
    run = subprocess.run(
        [*command, str(script), how, backend], capture_output=True, text=True, timeout=150, env=os.environ | {"COLUMNS": "150"}
    )
    assert "torch.log(hidden - 1e6)" in run.stderr and run.returncode, run.stderr[-4000:]
    assert f"rank {ranks - 1}" in run.stderr.lower() or ranks == 1, run.stderr[-4000:]
