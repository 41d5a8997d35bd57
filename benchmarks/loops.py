"""Loops of many tiny operations outside the model's calls: bare, under numscope, and under transformers' class, interleaved.

    ./dev bench loops [--rounds N]

What costs here is neither the model nor its tensors but what is noted of each operation of the loss, of the script's own work on
gradients, and of what an agent computes of its policy's output. transformers' class sees none of these: it hooks modules alone.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import time
from collections.abc import Callable

import torch
from _machine import describe, write
from step import bare, peer, watched
from torch import Tensor, nn

VARIANTS = {
    "bare again (noise)": bare,
    "numscope": watched(),
    "numscope without alerts": watched(alerts="off"),
    "transformers DebugUnderflowOverflow": peer,
}

Loop = tuple[nn.Module, Callable[[], None]]


def perceptron(*widths: int) -> nn.Module:
    layers = [part for a, b in itertools.pairwise(widths) for part in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


def chain(length: int) -> Loop:
    """A loss of so many elementwise operations after the model."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        loss = model(torch.randn(2, 4))
        for _ in range(length):
            loss = loss + 1e-6
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()

    return model, step


def surgery() -> Loop:
    """Each gradient is scaled by hand before the update."""
    model = perceptron(*[32] * 26)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(8, 32)).square().mean().backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.mul_(1 / (1 + parameter.grad.norm()))
        optimizer.step()

    return model, step


def physics() -> Loop:
    """A physics-informed loss: first and second derivatives of the model's output by its coordinates."""
    model = perceptron(2, 20, 20, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def gradient(of: Tensor, by: Tensor) -> Tensor:
        return torch.autograd.grad(of.sum(), by, create_graph=True)[0]

    def step() -> None:
        x = torch.rand(64, 2, requires_grad=True)
        u = model(x)
        first = gradient(u, x)
        second = gradient(first[:, 0], x)
        optimizer.zero_grad()
        (first[:, 1] + u[:, 0] * first[:, 0] - 0.01 * second[:, 0]).square().mean().backward()
        optimizer.step()

    return model, step


def policy() -> Loop:
    """Four updates of a clipped policy gradient, as PPO does them."""
    model = perceptron(8, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        for _ in range(4):
            chosen = torch.distributions.Categorical(logits=model(torch.randn(64, 8)))
            likely = chosen.log_prob(chosen.sample())
            advantage = torch.randn(64)
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            ratio = (likely - likely.detach() + 0.01).exp()
            gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean() + 0.01 * chosen.entropy().mean()
            optimizer.zero_grad()
            (-gain).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()

    return model, step


LOOPS: dict[str, tuple[Callable[[], Loop], int]] = {
    "a loss of 200 operations": (lambda: chain(200), 20),
    "a loss of 60,000 operations": (lambda: chain(60_000), 2),
    "gradients changed one by one, 50 weights": (surgery, 20),
    "physics in the loss": (physics, 20),
    "a clipped policy gradient": (policy, 10),
}


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """By loop: the bare step in seconds under "bare", and the median over the rounds of variant / bare."""
    found: dict[str, dict[str, float]] = {}
    for name, (make, steps) in LOOPS.items():
        torch.manual_seed(0)
        model, step = make()
        taken: dict[str, list[float]] = {variant: [] for variant in ("bare", *VARIANTS)}

        def run(step: Callable[[], None] = step, steps: int = steps) -> float:
            gc.collect()
            step()
            times = []
            for _ in range(steps):
                start = time.thread_time()
                step()
                times.append(time.thread_time() - start)
            return statistics.median(times)

        for _ in range(rounds):
            for variant, attach in VARIANTS.items():
                base = run()
                taken["bare"].append(base)
                with attach(model):
                    taken[variant].append(run() / base)
        found[name] = {variant: statistics.median(values) for variant, values in taken.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    torch.set_num_threads(1)
    found = measure(parser.parse_args().rounds)
    lines = [f"| loop | bare step | {' | '.join(VARIANTS)} |", f"|---|---|{'---|' * len(VARIANTS)}"]
    for name, ratios in found.items():
        lines.append(f"| {name} | {ratios['bare'] * 1e3:.2f} ms | {' | '.join(f'{ratios[variant]:.2f}' for variant in VARIANTS)} |")
    write("loops", {"machine": describe(), "results": found}, "Loops of many tiny operations outside the model, times bare", lines)


if __name__ == "__main__":
    main()
