"""A whole training step in emulated fp8, ours and torchao's float8 emulation, against the bare step: interleaved in one process.

    ./dev bench precision [--rounds N]

The model is that of ``step.py``: Llama, 8 layers, hidden 512, batch 4 x 256, AdamW; all its linear layers but the head compute in fp8. Each
variant has a copy of the model of its own. In each round every variant runs a step by the clock, in an order that turns. Reported: the
median over rounds of (variant / bare), with quartiles; a second bare step is the noise. That both sides quantize to the same values is
checked before: codes and scales of the same tensors.

``at rest`` is a converted model with every GEMM switched to high precision, ``watched`` one whose fp8 statistics are collected at each
step. Memory is that of live tensors at its highest in a step, counted by torch's own allocation events, parameters included.
"""

from __future__ import annotations

import argparse
import copy
import gc
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from _machine import describe, write
from _peers import peer
from step import build
from torch import Tensor, nn

import numscope
from numscope import precision

PEER = "torchao==0.18.0"
LAYERS = r".*_proj$"
STATISTICS = {
    "fp8": {
        "enabled": True,
        "layers": {"layer_name_regex_pattern": LAYERS},
        "transformer_engine": {
            "collect_fp8_tensor_stats": {
                "enabled": True, "type": ["underflows", "overflows"], "tensors": ["activation", "gradient", "weight"], "freq": 1,
            },
        },
    }
}  # fmt: skip
HIGH = {
    "high": {
        "enabled": True,
        "layers": {"layer_name_regex_pattern": LAYERS},
        "transformer_engine": {"disable_fp8_layer": {"enabled": True}},
    }
}


def ours(recipe: precision.Recipe) -> Callable[[nn.Module], nn.Module]:
    return lambda model: precision.convert(model, recipe, layers=LAYERS, backend="emulate")


def watched(config: dict[str, Any], recipe: precision.Recipe) -> Callable[[nn.Module], nn.Module]:
    def prepare(model: nn.Module) -> nn.Module:
        precision.convert(model, recipe, layers=LAYERS, backend="emulate")
        numscope.watch(model, config=config, on_nonfinite=None, log_dir=tempfile.mkdtemp(prefix="numscope-bench-"))
        return model

    return prepare


def theirs(recipe: str) -> Callable[[nn.Module], nn.Module]:
    def prepare(model: nn.Module) -> nn.Module:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        config = Float8LinearConfig.from_recipe_name(recipe)
        config = type(config)(**{**vars(config), "emulate": True})
        return convert_to_float8_training(model, config=config, module_filter_fn=lambda _, name: name.endswith("_proj"))

    return prepare


VARIANTS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "bare": lambda model: model,
    "bare again (noise)": lambda model: model,
    "current scaling": ours(precision.CurrentScaling()),
    "delayed scaling": ours(precision.DelayedScaling()),
    "rowwise": ours(precision.RowwiseScaling()),
    "1x128 and 128x128 blocks": ours(precision.BlockScaling()),
    "MXFP8": ours(precision.MXFP8()),
    "current scaling, watched: fp8 statistics of every operand": watched(STATISTICS, precision.CurrentScaling()),
    "at rest: every GEMM switched to high precision": watched(HIGH, precision.CurrentScaling()),
    "torchao tensorwise (current scaling), emulated": theirs("tensorwise"),
    "torchao rowwise, emulated": theirs("rowwise"),
}
SLOW = {"torchao rowwise, emulated": 3}  # rounds that are enough of it


class Course:
    """One variant's model and what trains it."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        self.ids = torch.randint(0, 8192, (4, 256), generator=torch.Generator().manual_seed(1))

    def step(self) -> float:
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        self.model(input_ids=self.ids, labels=self.ids).loss.backward()
        self.optimizer.step()
        return time.perf_counter() - start


def peak_bytes(course: Course) -> int:
    """The most that live tensors take in a step, above what lives before the model's copy was made being no part of it."""
    from torch.profiler import ProfilerActivity, profile

    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        course.step()
    now = peak = 0
    for event in profiler.profiler.kineto_results.events():  # in order of time
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    gradients = sum(p.grad.nbytes for p in course.model.parameters() if p.grad is not None)
    state = sum(v.nbytes for s in course.optimizer.state.values() for v in s.values() if isinstance(v, Tensor))
    return peak + sum(p.nbytes for p in course.model.parameters()) + gradients + state


def measure(dtype: torch.dtype, rounds: int) -> dict[str, Any]:
    model = build(dtype)
    courses = {name: Course(prepare(copy.deepcopy(model))) for name, prepare in VARIANTS.items()}
    for course in courses.values():
        course.step()
    times: dict[str, list[float]] = {name: [] for name in courses}
    names = list(courses)
    for number in range(rounds):
        turned = names[number % len(names) :] + names[: number % len(names)]
        for name in turned:
            if name not in SLOW or number < SLOW[name]:
                times[name].append(courses[name].step())
    found: dict[str, Any] = {"bare_ms": 1e3 * statistics.median(times["bare"])}
    bare_bytes = peak_bytes(courses["bare"])
    found["bare_mib"] = bare_bytes / 2**20
    for name in names[1:]:
        ratios = [t / b for t, b in zip(times[name], times["bare"], strict=False)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        found[name] = {"ratio": middle, "quartiles": [low, high], "memory": peak_bytes(courses[name]) / bare_bytes}
    return found


def check_same_values() -> int:
    """How many tensors both sides quantize to the same codes under the same scale; every one has to."""
    from torchao.float8.float8_scaling_utils import hp_tensor_to_float8_dynamic
    from torchao.float8.float8_training_tensor import GemmInputRole, LinearMMConfig

    from numscope.precision.casting.cast import cast

    count = 0
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16):
        for code in (torch.float8_e4m3fn, torch.float8_e5m2):
            for magnitude in (1e-6, 1e-2, 1.0, 300.0, 1e5):
                x = (torch.randn(256, 384, generator=generator) * magnitude).to(dtype)
                peer_cast = hp_tensor_to_float8_dynamic(x, code, LinearMMConfig(), gemm_input_role=GemmInputRole.INPUT)
                how = precision.CurrentScaling(fp8_format="e4m3" if code == torch.float8_e4m3fn else "e5m2").plan()["dgrad", "gradient"]
                assert how is not None
                mine = cast(x, how, codes=True)
                assert mine.codes is not None
                assert torch.equal(mine.codes.view(torch.uint8), peer_cast._data.view(torch.uint8)), (dtype, code, magnitude)
                assert torch.equal(1 / mine.scale_inv, peer_cast._scale) or torch.equal(mine.scale_inv, 1 / peer_cast._scale)
                count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    rounds = parser.parse_args().rounds
    warnings.filterwarnings("ignore")
    peer(PEER)
    same = check_same_values()
    results = {str(dtype).removeprefix("torch."): measure(dtype, rounds) for dtype in (torch.float32, torch.bfloat16)}
    lines = [
        f"Median of {rounds} rounds, quartiles in brackets; {same} of {same} tensors quantized to the same codes and scales as {PEER}.", "",
    ]  # fmt: skip
    for name, found in results.items():
        lines += [f"## {name}: bare step {found['bare_ms']:.0f} ms, {found['bare_mib']:.0f} MiB at its highest", ""]
        lines += ["| step | time / bare | memory / bare |", "|---|---|---|"]
        for variant, one in found.items():
            if isinstance(one, dict):
                low, high = one["quartiles"]
                lines.append(f"| {variant} | {one['ratio']:.2f} ({low:.2f} … {high:.2f}) | {one['memory']:.2f} |")
        lines.append("")
    write("precision", {"machine": describe(), "rounds": rounds, "peer": PEER, "results": results}, "Training steps in emulated fp8", lines)


if __name__ == "__main__":
    main()
