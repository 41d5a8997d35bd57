"""What a watch costs each of many ranks, and how long a bad value on one of them takes to stop them all.

Real processes over gloo, with a tiny model under DDP, FSDP2 or tensor parallelism, so that what a rank pays for the others stands out:
sockets, threads, the first step, and a healthy step, bare and watched in turns. All of them share this machine's cores.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import os
import pickle
import random
import socket
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from _machine import describe, write
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel as DDP

import numscope

STEPS = 8  # of a turn
KINDS = {"reduced": "in a gradient that DDP reduces", "alone": "in a loss whose gradient is good"}
LINES = {kind: next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith(f"# {kind}")) for kind in KINDS}


PARALLEL = ("ddp", "fsdp2", "tp")
HOW: dict[str, dict[str, Any]] = {
    "bare": {},
    "watched": {},
    "statistics": {  # of each layer's tensors in every step, merged over the ranks
        "config": {
            "all": {
                "enabled": True,
                "layers": {"layer_name_regex_pattern": ".+"},
                "statistics": {"enabled": True, "stats": ["max", "mean", "std"], "tensors": ["activation", "output", "weight", "wgrad"]},
            }
        },
        "loggers": [type("Nothing", (), {"write": lambda *_: None, "flush": lambda _: None, "close": lambda _: None})()],
    },
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        width = max(16, dist.get_world_size())  # tensor parallelism gives each rank a column
        self.first, self.last = nn.Linear(16, width), nn.Linear(width, 4)

    def forward(self, x: Tensor, bad: bool = False) -> Tensor:
        h = self.first(x).relu()
        if bad:
            h = h + torch.log(-h.abs() - 1)  # reduced
        y: Tensor = self.last(h)
        return y


class Training:
    """A model in training, watched or not: see ``HOW``."""

    def __init__(self, parallel: str, how: str) -> None:
        torch.manual_seed(0)
        self.model = parallelized(Net(), parallel)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.scope = numscope.watch(self.model, **HOW[how]) if how != "bare" else None
        torch.manual_seed(0 if parallel == "tp" else dist.get_rank())  # of its data

    def step(self, bad: str = "") -> tuple[float, float]:
        """Seconds that a step takes, and seconds of this rank's CPU."""
        start, cpu = time.perf_counter(), time.process_time()
        self.optimizer.zero_grad()
        loss = self.model(torch.randn(8, 16), bad == "reduced").square().mean()
        if bad == "alone":
            loss = loss + torch.log(-loss.detach() - 1)  # alone
        loss.backward()
        self.optimizer.step()
        return time.perf_counter() - start, time.process_time() - cpu


def parallelized(net: Net, parallel: str) -> nn.Module:
    if parallel == "ddp":
        return DDP(net)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    if parallel == "fsdp2":
        sharded: nn.Module = fully_shard(net, mesh=mesh)
        return sharded
    return parallelize_module(net, mesh, {"first": ColwiseParallel(), "last": RowwiseParallel()})


def held() -> tuple[int, int]:
    """This process's sockets and threads."""
    sockets = 0
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            sockets += os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
    return sockets, len(os.listdir("/proc/self/task"))


def healthy(parallel: str, turns: int) -> dict[str, Any]:
    trainings, first, more, before = {}, {}, {}, (0, 0)
    for how in HOW:
        training = trainings[how] = Training(parallel, how)
        first[how] = training.step()
        training.step()  # DDP arranges its buckets anew
        dist.barrier()
        after = held()
        more[how], before = (after[0] - before[0], after[1] - before[1]), after
    times: dict[str, list[tuple[float, float]]] = {how: [] for how in HOW}
    for _ in range(turns):
        for how, training in trainings.items():
            dist.barrier()
            times[how] += [training.step() for _ in range(STEPS)]
            if training.scope is not None and training.scope._watch.inspector is not None:
                training.scope._watch.inspector.settle()  # what is still under way is not the next one's
    for training in trainings.values():
        if training.scope is not None:
            training.scope.close()
    return {"more": more, "first": first, "steps": {how: _middle(of) for how, of in times.items()}}


def _middle(times: list[tuple[float, float]]) -> tuple[float, ...]:
    return tuple(map(statistics.median, zip(*times, strict=True)))


def stopped(parallel: str, kind: str, at_fault: int) -> dict[str, Any]:
    """When the bad value was made, when this rank stopped, and what it was told."""
    rank = dist.get_rank()
    training = Training(parallel, "watched")
    made, end, told = 0.0, 0.0, None
    stderr = io.StringIO()
    with contextlib.redirect_stderr(stderr):
        try:
            for step in range(20):
                is_bad = step == 3 and rank == at_fault
                made = time.monotonic() if is_bad else made
                training.step(kind if is_bad else "")
        except numscope.NonFiniteError as error:
            end = time.monotonic()
            culprit = error.finding.culprit
            told = error.finding.step, error.finding.rank, culprit and culprit.op, culprit and culprit.line
    return {"made": made, "end": end, "told": told, "printed": f"ranks.py:{LINES[kind]}" in stderr.getvalue()}


def work(rank: int, world: int, port: int, pipe: int, scenario: Callable[[], Any]) -> None:
    """One rank's process."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", timeout=timedelta(minutes=10), world_size=world, rank=rank)
    told = scenario()
    with os.fdopen(pipe, "wb") as out:
        pickle.dump(told, out)
    time.sleep(1 if rank == 0 else 0)  # the store goes with the first rank
    os._exit(0)


def run(world: int, scenario: Callable[[], Any]) -> list[Any]:
    """What the scenario returns on each rank."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    children = []
    for rank in range(world):
        out, into = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(out)
            try:
                work(rank, world, port, into, scenario)
            finally:
                os._exit(1)
        os.close(into)
        children.append((pid, out))
    told = []
    for pid, out in children:
        with os.fdopen(out, "rb") as file:
            data = file.read()
        os.waitpid(pid, 0)
        assert data, "a rank has died"
        told.append(pickle.loads(data))
    return told


def measured(parallel: str, world: int, turns: int, repeats: int) -> dict[str, Any]:
    ranks = run(world, lambda: healthy(parallel, turns))
    found: dict[str, Any] = {}
    for index, what in enumerate(("sockets", "threads")):
        more = {how: [one["more"][how][index] for one in ranks] for how in HOW if how != "bare"}
        found[what] = {how: [statistics.median(of), max(of)] for how, of in more.items()}
    for what in ("first", "steps"):
        found[what] = {how: _middle([one[what][how] for one in ranks]) for how in HOW}
    for kind in KINDS:
        seconds = []
        for repeat in range(repeats):
            at_fault = random.Random(100 * world + repeat).randrange(world)
            told = run(world, lambda kind=kind, at_fault=at_fault: stopped(parallel, kind, at_fault))  # type: ignore[misc]
            expected = (3, at_fault, "aten.log", LINES[kind])
            assert all(one["told"] == expected for one in told), [one["told"] for one in told]
            assert all(one["printed"] for one in told)
            seconds.append(max(one["end"] for one in told) - told[at_fault]["made"])
        found[kind] = statistics.median(seconds)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 8, 32, 64])
    parser.add_argument("--parallel", nargs="+", choices=PARALLEL, default=PARALLEL)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    results: dict[str, Any] = {"machine": describe(), "options": vars(options), "ranks": {}}
    lines = [
        "A watch on a tiny model, real processes over gloo that share these cores. What it adds to each rank (median, most), and",
        "how long a bad value on one rank takes until all of them have stopped and named that rank, operation and line. With statistics:",
        "of four tensors of each layer in every step, merged over the ranks, in another watch beside the first.",
        "",
        "| ranks | model | sockets | threads | first step, bare | watched | a rank's CPU | a step, bare | watched | ratio | more CPU "
        "| with statistics: sockets | threads | a step | ratio | more CPU "
        + "".join(f"| stopped: {what} " for what in KINDS.values())
        + "|",
        "|---" * (16 + len(KINDS)) + "|",
    ]
    for parallel, world in itertools.product(options.parallel, options.ranks):
        one = results["ranks"][f"{parallel} {world}"] = measured(parallel, world, options.turns, options.repeats)
        first, steps = one["first"], one["steps"]
        (bare, bare_cpu), (watched, watched_cpu), (full, full_cpu) = (steps[how] for how in HOW)
        held_by = {how: [f"{of[how][0]:.0f}, {of[how][1]}" for of in (one["sockets"], one["threads"])] for how in one["sockets"]}
        lines.append(
            f"| {world} | {parallel} | {' | '.join(held_by['watched'])} | {first['bare'][0]:.2f} s "
            f"| {first['watched'][0]:.2f} s | {first['watched'][1] * 1e3:.0f} ms "
            f"| {bare * 1e3:.1f} ms | {watched * 1e3:.1f} ms | {watched / bare:.2f} | {(watched_cpu - bare_cpu) * 1e3:+.2f} ms "
            f"| {' | '.join(held_by['statistics'])} | {full * 1e3:.1f} ms | {full / bare:.2f} | {(full_cpu - bare_cpu) * 1e3:+.2f} ms "
            + "".join(f"| {one[kind]:.2f} s " for kind in KINDS)
            + "|"
        )
        print(lines[-1], flush=True)
    write("ranks", results, "Many ranks: what a watch adds to each of them", lines)


if __name__ == "__main__":
    main()
