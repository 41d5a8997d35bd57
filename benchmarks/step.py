"""A whole training step, bare, under numscope, and under transformers' own detector: interleaved in one process, medians of pairs.

    ./dev bench step [--rounds N] [--steps N]

Llama, 8 layers, hidden 512, batch 4 x 256, AdamW. In each round every variant is attached once to the same model, runs a step to warm up
and then ``--steps`` by the clock, and is detached: all of them see the same weights, caches, memory and machine, and a watch is measured
as it is used, attached for many steps. Of a variant's steps in a round the fastest counts: what else the machine does can only add to a
step. Reported: median over rounds of (variant / mean of the bare steps before and after), with the quartiles, and the same of a further
bare variant as the noise floor.

Like for like with transformers' class means forward and weights alone, so there the gradients are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from _machine import describe, write
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.debug_utils import DebugUnderflowOverflow

import numscope
from numscope.scope.scope import Scope


def build(dtype: torch.dtype) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=8192, hidden_size=512, intermediate_size=1376, num_hidden_layers=8, num_attention_heads=8, max_position_embeddings=512
    )
    return LlamaForCausalLM(config).to(dtype)


@contextlib.contextmanager
def bare(model: torch.nn.Module) -> Iterator[None]:
    yield


def watched(**options: Any) -> Callable[[torch.nn.Module], contextlib.AbstractContextManager[Any]]:
    @contextlib.contextmanager
    def attach(model: torch.nn.Module) -> Iterator[Scope]:
        with numscope.watch(model, **options) as scope:
            yield scope

    return attach


@contextlib.contextmanager
def peer(model: torch.nn.Module) -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()):
        DebugUnderflowOverflow(model)
        yield
    for module in model.modules():
        module._forward_hooks.clear()


VARIANTS = {
    "bare again (noise)": bare,
    "numscope modules": watched(level="modules"),
    "numscope modules, forward and weights": watched(level="modules", gradients=False),
    "numscope sentinel": watched(level="sentinel"),
    "transformers DebugUnderflowOverflow": peer,
}


def measure(dtype: torch.dtype, rounds: int, steps: int) -> dict[str, Any]:
    model = build(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(0, 8192, (4, 256), generator=torch.Generator().manual_seed(1))

    def step() -> float:
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        return time.perf_counter() - start

    def run(attach: Callable[[torch.nn.Module], contextlib.AbstractContextManager[Any]]) -> float:
        with attach(model):
            step()  # the first under a watch makes rows and caches that all later ones use
            return min(step() for _ in range(steps))

    for attach in (bare, *VARIANTS.values()):  # warm
        run(attach)
    ratios: dict[str, list[float]] = {name: [] for name in VARIANTS}
    bare_s: list[float] = []
    names = list(VARIANTS)
    for number in range(rounds):
        gc.collect()
        bare_s.append(run(bare))
        for name in names[number % len(names) :] + names[: number % len(names)]:  # no variant is always the one after the collector
            found = run(VARIANTS[name])
            bare_s.append(run(bare))
            ratios[name].append(2 * found / (bare_s[-2] + bare_s[-1]))
    result: dict[str, Any] = {"bare_s": statistics.median(bare_s), "rounds": rounds, "steps": steps}
    for name, values in ratios.items():
        low, middle, high = statistics.quantiles(values, n=4)
        result[name] = {"added_pct": round(100 * (middle - 1), 2), "quartiles_pct": [round(100 * (low - 1), 2), round(100 * (high - 1), 2)]}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=4)
    given = parser.parse_args()
    results = {str(dtype).removeprefix("torch."): measure(dtype, given.rounds, given.steps) for dtype in (torch.float32, torch.bfloat16)}
    lines = ["| variant | float32 | bfloat16 |", "|---|---|---|"]
    lines.append("| bare step | " + " | ".join(f"{r['bare_s'] * 1e3:.0f} ms" for r in results.values()) + " |")
    for name in VARIANTS:
        cells = [
            f"{r[name]['added_pct']:+.2f} % ({r[name]['quartiles_pct'][0]:+.1f} … {r[name]['quartiles_pct'][1]:+.1f})"
            for r in results.values()
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    write("step", {"machine": describe(), "results": results}, "Whole training step, added time against the bare step", lines)


if __name__ == "__main__":
    main()
