"""Statistics by configuration: added time of a whole training step, ours and nvdlfw-inspect's, interleaved in one process.

    ./dev bench inspector                                  the main table; python benchmarks/inspector.py --rounds N for more
    python benchmarks/inspector.py --mode sweep            own time against the number of layers and of statistics
    python benchmarks/inspector.py --mode ranks            own time against the number of ranks (gloo)

Model and step are those of ``step.py``: Llama, 8 layers, hidden 512, batch 4 x 256, AdamW, float32. In each round every variant is attached
to the same model, runs a step to warm up and two by the clock, and is detached. Reported: the median over rounds of (variant / bare),
with quartiles, and a second bare step as the noise floor. Since a virtual machine's noise is larger than most of what is measured, the
time spent inside ours (and inside the peer's calls) is summed as well, by a clock around each hook and each step's end; what hooks cost
torch itself is not in it.

The peer is called as its documentation says: the user's own hooks hand tensors to ``debug_api.log_tensor_stats``.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from _machine import RESULTS, describe, write
from step import build
from torch import Tensor, nn

import numscope
from numscope.inspect.inspector import Inspector
from numscope.probe.module import ModuleProbe

SIX = ["min", "max", "mean", "std", "l1_norm", "l2_norm"]
ALL = [
    "max", "min", "mean", "std", "sample_std", "l1_norm", "l2_norm", "cur_amax", "dynamic_range", "abs_min", "rms", "skewness", "kurtosis",
    "num_nan", "num_inf", "zero_pct", "subnormal_pct",
]  # fmt: skip
TENSORS = ["activation", "weight", "gradient"]
LINEAR = r".*(_proj|lm_head)$"  # every linear layer of the model

# The reference document's example, its pattern widened to the names of this model's layers.
EXAMPLE = {
    "stat_collection": {
        "enabled": True,
        "layers": {"layer_name_regex_pattern": ".*(gate_proj|up_proj|down_proj|fc1|fc2)"},
        "collect_tensor_stats": {"enabled": True, "type": ["l1_norm", "l2_norm"], "tensors": ["activation"], "freq": 100},
        "transformer_engine": {
            "collect_tensor_stats": {
                "enabled": True, "type": ["cur_amax", "dynamic_range"], "tensors": ["activation", "gradient"], "freq": 100,
            },
            "collect_fp8_tensor_stats": {
                "enabled": True, "type": ["overflows", "underflows"], "tensors": ["activation", "gradient"], "freq": 100,
            },
        },
    }
}  # fmt: skip


def example(freq: int) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(EXAMPLE).replace('"freq": 100', f'"freq": {freq}'))
    return changed


def collect(stats: list[str], pattern: str = LINEAR, tensors: list[str] = TENSORS) -> dict[str, Any]:
    feature = {"enabled": True, "stats": stats, "tensors": tensors}
    return {"bench": {"enabled": True, "layers": {"layer_name_regex_pattern": pattern}, "statistics": feature}}


class Clock:
    """Sums the time, and this thread's CPU time, inside some functions; one called by another of them counts once."""

    def __init__(self) -> None:
        self.inside = False
        self.reset()

    def reset(self) -> None:
        self.spent_s = 0.0
        self.cpu_s = 0.0
        self.num_calls = 0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self.inside:
                return function(*args, **kwargs)
            self.inside = True
            cpu = time.thread_time()
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.spent_s += time.perf_counter() - start
                self.cpu_s += time.thread_time() - cpu
                self.num_calls += 1
                self.inside = False

        return timed


OURS = Clock()
THEIRS = Clock()


def put_clock() -> None:
    """Around everything of ours that a step calls."""
    for cls, names in (
        (ModuleProbe, ("_before", "_after")),
        (Inspector, ("begin", "observe", "before_backward", "before_step", "after_step", "skipped_step", "end")),
    ):
        for name in names:
            setattr(cls, name, OURS.around(getattr(cls, name)))


Attach = Callable[[nn.Module], contextlib.AbstractContextManager[Any]]


@contextlib.contextmanager
def bare(model: nn.Module) -> Iterator[None]:
    yield


def watched(config: dict[str, Any] | None = None) -> Attach:
    @contextlib.contextmanager
    def attach(model: nn.Module) -> Iterator[Any]:
        with tempfile.TemporaryDirectory() as folder:
            given = {} if config is None else {"config": config, "log_dir": folder}
            with numscope.watch(model, on_nonfinite=None, **given) as scope:
                yield scope

    return attach


class Peer:
    """nvdlfw-inspect, initialized once; its hooks are the user's."""

    def __init__(self) -> None:
        import nvdlfw_inspect.api as debug_api

        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "config.yaml"
        path.write_text(
            f"peer:\n  enabled: True\n  layers:\n    layer_name_regex_pattern: '.*'\n  LogTensorStats:\n    enabled: True\n"
            f"    tensors: [{', '.join(TENSORS)}]\n    stats: [{', '.join(SIX)}]\n    freq: 1\n    start_step: 0\n    end_step: -1\n"
        )
        debug_api.initialize(config_file=str(path), log_dir=self._folder.name, default_logging_enabled=True)
        self.api = debug_api

    @contextlib.contextmanager
    def attach(self, model: nn.Module) -> Iterator[None]:
        def log(name: str, kind: str, tensor: Tensor) -> None:
            self.api.log_tensor_stats(layer_name=name, tensor_name=kind, tensor=tensor.detach(), skip_reduction=True)

        log_timed = THEIRS.around(log)

        def after(name: str, module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            log_timed(name, "activation", args[0])
            log_timed(name, "weight", module.weight)
            output.register_hook(lambda gradient: log_timed(name, "gradient", gradient))

        handles = [m.register_forward_hook(functools.partial(after, name)) for name, m in model.named_modules() if isinstance(m, nn.Linear)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


class Bench:
    """The step, and what one variant's costs."""

    def __init__(self) -> None:
        self.model = build(torch.float32)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.ids = torch.randint(0, 8192, (4, 256), generator=torch.Generator().manual_seed(1))

    def step(self) -> float:
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(input_ids=self.ids, labels=self.ids).loss
        loss.backward()
        self.optimizer.step()
        return time.perf_counter() - start

    def run(
        self, attach: Attach, clock: Clock = OURS, after_step: Callable[[], object] = lambda: None, times: int = 2
    ) -> tuple[float, float]:
        """Seconds of a step, and of these inside the clock; means of two steps after one to warm up."""
        with attach(self.model):
            self.step()
            after_step()
            clock.reset()
            total = 0.0
            for _ in range(times):
                total += self.step()
                start = time.perf_counter()
                after_step()
                total += time.perf_counter() - start
            return total / times, clock.spent_s / times


def quartiles(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


def main_table(rounds: int) -> None:
    bench, peer = Bench(), Peer()
    variants: dict[str, tuple[Attach, Clock, Callable[[], object]]] = {
        "bare again (noise)": (bare, OURS, int),
        "(a) watch without config, detection off": (watched(), OURS, int),
        "(b) the document's example, a step off its schedule": (watched(example(100)), OURS, int),
        "(b) the document's example, a scheduled step": (watched(example(1)), OURS, int),
        "(c) all 17 statistics of all linear layers, every step": (watched(collect(ALL)), OURS, int),
        "(c') six statistics of all linear layers, every step": (watched(collect(SIX)), OURS, int),
        "(d) nvdlfw-inspect: the same six": (peer.attach, THEIRS, peer.api.step),
    }
    for attach, clock, after in variants.values():
        bench.run(attach, clock, after, times=1)
    ratios: dict[str, list[float]] = {name: [] for name in variants}
    inside: dict[str, list[float]] = {name: [] for name in variants}
    bare_s: list[float] = []
    names = list(variants)
    for number in range(rounds):
        gc.collect()
        base, _ = bench.run(bare)
        bare_s.append(base)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            attach, clock, after = variants[name]
            taken, spent = bench.run(attach, clock, after)
            ratios[name].append(taken / base)
            inside[name].append(spent)
    base = statistics.median(bare_s)
    result: dict[str, Any] = {"bare_s": base, "rounds": rounds, "num_linear": sum(isinstance(m, nn.Linear) for m in bench.model.modules())}
    lines = [f"| variant | added (quartiles) | inside | of the bare step |\n|---|---|---|---|\n| bare step | {base * 1e3:.0f} ms | | |"]

    def row(name: str, ratio: list[float], spent_s: float) -> None:
        low, middle, high = (100 * (x - 1) for x in quartiles(ratio))
        own = 100 * spent_s / base
        result[name] = {
            "added_pct": round(middle, 2),
            "quartiles_pct": [round(low, 2), round(high, 2)],
            "inside_ms": spent_s * 1e3,
            "inside_pct": own,
        }
        lines.append(f"| {name} | {middle:+.2f} % ({low:+.1f} … {high:+.1f}) | {spent_s * 1e3:.3f} ms | {own:.3f} % |")

    for name in names:
        row(name, ratios[name], statistics.median(inside[name]))
    off, on = (f"(b) the document's example, a {kind}" for kind in ("step off its schedule", "scheduled step"))
    weighed = [0.99 * a + 0.01 * b for a, b in zip(ratios[off], ratios[on], strict=True)]
    row(
        "(b) weighed by the schedule: one step in 100",
        weighed,
        0.99 * statistics.median(inside[off]) + 0.01 * statistics.median(inside[on]),
    )
    ours, theirs = statistics.median(inside[names[-2]]), statistics.median(inside[names[-1]])
    added = [(a - 1, b - 1) for a, b in zip(ratios[names[-2]], ratios[names[-1]], strict=True)]
    ours_added, theirs_added = (statistics.median(side) for side in zip(*added, strict=True))
    by_wall = theirs_added / ours_added if ours_added > 0 else None  # None: ours is below the noise
    result["peer_over_ours_inside"], result["peer_over_ours_wall"] = theirs / ours, by_wall
    whole = f"{by_wall:.1f} times" if by_wall else "ours below the noise"
    lines += ["", f"(d) / (c'), added time: {theirs / ours:.1f} times by the clock inside, {whole} by the whole step."]
    write("inspector", {"machine": describe(), "results": result}, "Statistics by configuration: added time against the bare step", lines)


def sweep(rounds: int) -> None:
    bench = Bench()
    blocks = {f"{count} of 8 blocks": collect(SIX, rf".*layers\.[0-{count - 1}]\..*_proj$") for count in (1, 2, 4, 8)}
    counts = {f"{len(stats)} statistics": collect(stats) for stats in (["l2_norm"], SIX, ALL)}
    variants = {**blocks, **counts}
    inside: dict[str, list[float]] = {name: [] for name in variants}
    read: dict[str, int] = {}
    for number in range(rounds + 1):
        gc.collect()
        for name, config in variants.items():
            with watched(config)(bench.model) as scope:
                bench.step()
                OURS.reset()
                bench.step()
                if number:
                    inside[name].append(OURS.spent_s)
                read[name] = sum(int(o.fields["numel"] or 0) * 4 for o in scope._watch.inspector.last)
    result = {name: {"inside_ms": statistics.median(values) * 1e3, "mib": read[name] / 2**20} for name, values in inside.items()}
    lines = ["| what | inside | MiB observed | ms per GiB |", "|---|---|---|---|"]
    lines += [f"| {n} | {r['inside_ms']:.2f} ms | {r['mib']:.0f} | {r['inside_ms'] / r['mib'] * 1024:.0f} |" for n, r in result.items()]
    keep("inspector_sweep", result, "Time inside a step against layers and statistics", lines)


def one_rank(rank: int, world: int, meeting: str, steps: int, answers: Any) -> None:
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    put_clock()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world)
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(128, 128), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(32, 128, generator=torch.Generator().manual_seed(rank))
    taken: dict[str, list[tuple[float, float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, stats in (("1 statistic", ["l2_norm"]), ("17 statistics", ALL)):
            with numscope.watch(model, config=collect(stats, ".*"), on_nonfinite=None, log_dir=f"{folder}/{len(stats)}"):
                for number in range(steps):
                    OURS.reset()
                    dist.barrier()  # so that what is waited for is ours, not another rank's forward
                    start = time.perf_counter()
                    optimizer.zero_grad()
                    model(x).square().mean().backward()
                    optimizer.step()
                    if number >= 5:
                        taken.setdefault(name, []).append((OURS.spent_s, OURS.cpu_s, time.perf_counter() - start))
    if rank == 0:
        answers.put({name: [statistics.median(x) for x in zip(*times, strict=True)] for name, times in taken.items()})
    dist.destroy_process_group()


def ranks(rounds: int) -> None:
    context = multiprocessing.get_context("spawn")
    result: dict[str, Any] = {}
    for world in (1, 2, 4):
        with tempfile.TemporaryDirectory() as folder:
            answers = context.Queue()
            args = (world, f"file://{folder}/meeting", 10 * rounds, answers)
            processes = [context.Process(target=one_rank, args=(rank, *args)) for rank in range(world)]
            for process in processes:
                process.start()
            result[str(world)] = answers.get(timeout=300)
            for process in processes:
                process.join()
    names = list(result["1"])
    lines = ["| ranks | " + " | ".join(f"{name}: inside, of it CPU" for name in names) + " |", "|---|" + "---|" * len(names)]
    for world, found in result.items():
        lines.append(f"| {world} | " + " | ".join(f"{found[n][0] * 1e3:.2f} ms, {found[n][1] * 1e3:.2f} ms" for n in names) + " |")
    lines += [
        "",
        "DDP over gloo, 8 linear layers, 24 sites; rank 0's median step. More ranks than cores wait for each other: CPU time is ours.",
    ]
    keep("inspector_ranks", result, "Time inside a step against ranks", lines)


def keep(name: str, result: dict[str, Any], title: str, lines: list[str]) -> None:
    RESULTS.mkdir(exist_ok=True)
    write(name, {"machine": describe(), "results": result}, title, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--mode", choices=("table", "sweep", "ranks"), default="table")
    args = parser.parse_args()
    put_clock()
    {"table": main_table, "sweep": sweep, "ranks": ranks}[args.mode](args.rounds)


if __name__ == "__main__":
    main()
