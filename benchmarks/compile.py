"""What a watch costs a compiled model: its step over the bare compiled step, beside what the same watch costs the uncompiled model.

    ./dev bench compile [--rounds N] [--layers N] [--hidden N]

A small Llama, forward, backward and SGD, on one thread. Each variant is a model of its own, compiled once by inductor, and attached once,
as it is in use; a round runs one step of each, beside one of the bare model. Reported: the median over the rounds of the ratio of the two.
The statistics are those of each linear layer at every tenth step. The steps between show what a schedule costs that compiles nothing again.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from _machine import describe, write
from inspector import SIX, collect
from torch import nn
from torch._dynamo.utils import counters
from transformers import LlamaConfig, LlamaForCausalLM

import numscope
from numscope.scope.open_scopes import live

WARM_UP = 3


class _Nowhere:
    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        """Writing is not what a watch costs."""


def _statistics(freq: int) -> Callable[[nn.Module], object]:
    asked = collect(SIX, ".*proj")
    for section in asked.values():
        section["statistics"]["freq"] = freq
    return lambda model: numscope.watch(model, on_nonfinite=None, config=asked, loggers=(_Nowhere(),), default_logging=False)


VARIANTS: dict[str, Callable[[nn.Module], object]] = {
    "bare again (noise)": lambda model: None,
    "detection": lambda model: numscope.watch(model),
    "sentinel": lambda model: numscope.watch(model, level="sentinel"),
    "six statistics, every step": _statistics(1),
    "six statistics, every 1000th step": _statistics(1000),
}


def build(layers: int, hidden: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": hidden, "intermediate_size": 3 * hidden, "num_hidden_layers": layers, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=1024, max_position_embeddings=256, **sizes))


def stepper(model: nn.Module, batch: torch.Tensor, compiled: bool) -> Callable[[], float]:
    """What runs a step and returns its seconds."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    call: Any = torch.compile(model) if compiled else model

    def step() -> float:
        start = time.perf_counter()
        call(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - start

    return step


def measure(rounds: int, layers: int, hidden: int, compiled: bool) -> tuple[dict[str, list[float]], float]:
    """For each variant its ratio to the bare step, by round; the bare step's median seconds."""
    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = 64  # each variant's model has graphs of its own, of the same code
    bare = build(layers, hidden)
    batch = torch.randint(0, bare.config.vocab_size, (1, 128), generator=torch.Generator().manual_seed(0))
    base = stepper(copy.deepcopy(bare), batch, compiled)
    steps: dict[str, Callable[[], float]] = {}
    for name, attach in VARIANTS.items():
        model = copy.deepcopy(bare)
        attach(model)
        steps[name] = stepper(model, batch, compiled)
    for step in (base, *steps.values()):
        for _ in range(WARM_UP):
            step()
    graphs = counters["stats"]["unique_graphs"]
    found: dict[str, list[float]] = {name: [] for name in steps}
    bases = []
    for _ in range(rounds):
        for name, step in steps.items():
            bases.append(base())
            found[name].append(step() / bases[-1])
    again = counters["stats"]["unique_graphs"] - graphs
    if again:
        print(f"{again} graphs were compiled again while the clock ran: these figures are not a step's")
    for scope in live():
        scope.close()
    return found, statistics.median(bases)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    given = parser.parse_args()
    torch.set_num_threads(1)
    runs = {kind: measure(given.rounds, given.layers, given.hidden, kind == "compiled") for kind in ("eager", "compiled")}
    results = {kind: {name: statistics.quantiles(values, n=4) for name, values in found.items()} for kind, (found, _) in runs.items()}
    bare = ", ".join(f"{kind} {seconds * 1e3:.0f} ms" for kind, (_, seconds) in runs.items())
    lines = [f"Llama, {given.layers} layers, {given.hidden} wide, 128 tokens, float32. Bare step: {bare}.", ""]
    lines += ["| variant | added to eager, % | added to compiled, % | quartiles |", "|---|---|---|---|"]
    for name in VARIANTS:
        eager, compiled = (results[kind][name] for kind in ("eager", "compiled"))
        low, middle, high = (f"{(value - 1) * 100:+.1f}" for value in compiled)
        lines.append(f"| {name} | {(eager[1] - 1) * 100:+.1f} | {middle} | {low} … {high} |")
    write("compile", {"machine": describe(), "results": results}, "What a watch costs a compiled model", lines)


if __name__ == "__main__":
    main()
