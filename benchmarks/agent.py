"""A step of many tiny forwards, as an agent's is that acts before it learns: bare and under numscope, interleaved, medians of pairs.

    ./dev bench agent [--rounds N]

REINFORCE with a policy of two layers: 150 times a forward of one observation, a categorical distribution, a sample and its log
probability; then one backward and one step of Adam. What costs here is neither the model nor its tensors but the Python around each call.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time

import torch
from _machine import describe, write
from step import bare, watched
from torch import nn

ACTS = 150
VARIANTS = {"bare again (noise)": bare, "numscope modules": watched(level="modules"), "numscope sentinel": watched(level="sentinel")}


def measure(rounds: int) -> dict[str, float]:
    """Median of variant / bare over the rounds, by variant; the bare step in seconds under "bare"."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 128), nn.Dropout(0.6), nn.ReLU(), nn.Linear(128, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step() -> float:
        start = time.perf_counter()
        kept: list[torch.Tensor] = []
        for _ in range(ACTS):
            actions = torch.distributions.Categorical(torch.softmax(model(torch.randn(1, 4)), 1))
            action = actions.sample()
            kept.append(actions.log_prob(action))
            action.item()
        returns = torch.linspace(1, 0, ACTS)
        returns = (returns - returns.mean()) / (returns.std() + 1e-8)
        optimizer.zero_grad()
        torch.cat([-one * weight for one, weight in zip(kept, returns, strict=True)]).sum().backward()
        optimizer.step()
        return time.perf_counter() - start

    found: dict[str, list[float]] = {name: [] for name in ("bare", *VARIANTS)}
    for _ in range(rounds):
        gc.collect()
        step()
        found["bare"].append(step())
        for name, attach in VARIANTS.items():
            with attach(model):
                step()
                found[name].append(step() / found["bare"][-1])
    return {name: statistics.median(values) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    torch.set_num_threads(1)
    found = measure(parser.parse_args().rounds)
    lines = [f"A bare step of {ACTS} acts: {found['bare'] * 1e3:.0f} ms.", "", "| variant | times bare |", "|---|---|"]
    lines += [f"| {name} | {found[name]:.2f} |" for name in VARIANTS]
    write("agent", {"machine": describe(), "results": found}, "A step of many tiny forwards", lines)


if __name__ == "__main__":
    main()
