"""What reading a compiled model's activations could cost if inductor fused the reductions with what makes the tensors.

    ./dev bench fused [--rounds N]

A chain of Linear layers and GELU, compiled by inductor, forward and backward, on one thread. Beside the bare graph: the same with the
operator that numscope puts into graphs (``numscope::tap``), which reads each output in one pass of its own kernel; with plain torch
reductions of the same numbers (counts and extrema); and with the two reductions that detection could not do without. Reported: the median
over interleaved rounds of what each adds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from _machine import describe, write
from torch import Tensor, nn

import numscope

WIDTH, BATCH, LAYERS = 512, 1024, 6


def extrema(x: Tensor) -> Tensor:
    """Largest and smallest element: nan or infinite if any element is."""
    return torch.stack([x.amax(), x.amin()])


def health(x: Tensor) -> Tensor:
    """What a summary's row holds without sums."""
    magnitude, finite = x.abs(), x.isfinite()
    counts = [x.isnan().sum(), (x == torch.inf).sum(), (x == -torch.inf).sum(), (x == 0).sum(), ((magnitude < 2**-126) & (x != 0)).sum()]
    low, high = torch.where(finite, x, torch.inf).amin(), torch.where(finite, x, -torch.inf).amax()
    small, large = torch.where(finite & (x != 0), magnitude, torch.inf).amin(), torch.where(finite, magnitude, -torch.inf).amax()
    return torch.stack([*(count.to(x.dtype) for count in counts), low, high, small, large])


class Model(nn.Module):
    def __init__(self, reduce: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH)) for _ in range(LAYERS))
        self.reduce = reduce

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        rows = []
        for layer in self.layers:
            for part in layer:
                x = part(x)
                if self.reduce is not None:
                    rows.append(self.reduce(x.detach()))
        return x, rows


def stepper(model: nn.Module) -> Callable[[], float]:
    compiled, batch = torch.compile(model), torch.randn(BATCH, WIDTH)

    def step() -> float:
        start = time.perf_counter()
        compiled(batch)[0].square().mean().backward()
        taken = time.perf_counter() - start
        model.zero_grad(set_to_none=True)
        return taken

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    bare, watched = Model(), Model()
    numscope.watch(watched, gradients=False)
    steps = {
        "bare again (noise)": stepper(Model()),
        "detection (numscope::tap)": stepper(watched),
        "counts and extrema as torch reductions": stepper(Model(health)),
        "largest and smallest element as torch reductions": stepper(Model(extrema)),
    }
    base = stepper(bare)
    for step in (base, *steps.values()):
        for _ in range(3):
            step()
    found: dict[str, list[float]] = {name: [] for name in steps}
    bases = []
    for _ in range(rounds):
        for name, step in steps.items():
            bases.append(base())
            found[name].append(100 * (step() / bases[-1] - 1))
    results = {name: statistics.quantiles(values, n=4) for name, values in found.items()}
    lines = [
        f"{LAYERS} x (Linear {WIDTH}, GELU, LayerNorm), batch {BATCH}, float32. Bare step: {statistics.median(bases) * 1e3:.0f} ms.",
        "",
    ]
    lines += ["| variant | added, % | quartiles |", "|---|---|---|"]
    lines += [f"| {name} | {middle:+.1f} | {low:+.1f} … {high:+.1f} |" for name, (low, middle, high) in results.items()]
    write("fused", {"machine": describe(), "results": results}, "Reductions fused by inductor", lines)


if __name__ == "__main__":
    main()
