"""What low precision does to gradients (``--check precision``), on two small models: does the check say so before training goes wrong?

    ./dev bench low_precision

*Proxy*: the model of arXiv 2506.20752, smaller: a residual MLP (layer norm, 4d hidden units, GELU) learns a random teacher without norms
from Gaussian inputs, by Adam. GEMMs are MXFP8 or MXFP4, and the norms' weights are rounded to MX blocks as in the paper. Diverged: the loss
is 20 times the least so far.

*Outliers*: is it wgrad that suffers (arXiv 2605.09825)? A two-layer MLP on sequences of 32 tokens; the first token is ``size`` times as
large and has no part in the loss, as a sink token of a language model. Each GEMM of MXFP4 is switched back, alone; numscope's numbers
beside the loss after 300 steps, and beside what ``numscope precision bisect`` keeps in high precision.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from _machine import describe, write
from torch import Tensor, nn

import numscope
from numscope.detect.low_precision import Weighed, total
from numscope.precision import MXFP4, MXFP8, Custom, Recipe, Scaling, autocast, convert, quantize_current, states
from numscope.records.layer import GEMMS

BLOCKS = Scaling("block", (1, 32), scale_format="e8m0")
RULE = "gradient is mostly rounding"
RECIPES: dict[str, Recipe | None] = {
    "float32": None,
    "MXFP8 e4m3": MXFP8(),
    "MXFP8 e4m3, gradients e5m2": MXFP8("hybrid"),
    "MXFP8 e5m2": MXFP8("e5m2"),
    "MXFP4": MXFP4(),
}
# depth, rate, seed, steps; each in the precisions named
PROXIES = (
    (4, 1e-2, 0, 800, ("float32", "MXFP8 e4m3", "MXFP8 e4m3, gradients e5m2")),
    (4, 2.5e-2, 0, 500, tuple(RECIPES)[:4]),
    (4, 2.5e-2, 1, 500, ("float32", "MXFP8 e4m3, gradients e5m2")),
    (8, 2e-2, 0, 500, ("float32", "MXFP8 e4m3, gradients e5m2", "MXFP4")),
)


class Norm(nn.LayerNorm):
    """Its weights are rounded while the layer behind it is in low precision; gradients pass straight through."""

    behind: tuple[nn.Module, ...] = ()

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias
        if any(not state.current_plan().high for state in states(self.behind[0]).values()):
            weight, bias = (t + (quantize_current(t.detach(), "e4m3", BLOCKS).dequantize() - t.detach()) for t in (weight, bias))
        return F.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.fc1, self.fc2 = Norm(width), nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width)
        self.norm.behind = (self.fc1,)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))


@contextlib.contextmanager
def all_kept() -> Iterator[list[tuple[int, Weighed]]]:
    """What the checks of all steps find."""
    kept: list[tuple[int, Weighed]] = []
    made = Weighed.alert

    def alert(self: Weighed, step: int) -> Any:
        kept.append((step, self))
        return made(self, step)

    Weighed.alert = alert  # type: ignore[method-assign]
    try:
        yield kept
    finally:
        Weighed.alert = made  # type: ignore[method-assign]


def proxy(depth: int, rate: float, seed: int, steps: int, recipe: Recipe | None, width: int = 64, batch: int = 128) -> dict[str, Any]:
    torch.manual_seed(seed)
    layers = [(nn.Linear(width, width, bias=False), nn.GELU(), nn.Linear(width, width, bias=False)) for _ in range(depth)]
    teacher = nn.Sequential(*(layer for block in layers for layer in block)).requires_grad_(False)
    student = nn.Sequential(*(Block(width) for _ in range(depth)))
    if recipe is not None:
        convert(student, recipe, backend="emulate")
    optimizer = torch.optim.Adam(student.parameters(), rate)
    losses: list[float] = []
    with all_kept() as kept, numscope.watch(student, check="precision:every=50", on_nonfinite="warn", alerts="note") as scope:
        for step in range(steps):
            numbers = torch.Generator().manual_seed(step)
            x = torch.randn(batch, width, generator=numbers)
            loss = F.mse_loss(student(x), teacher(x) + 0.005 * torch.randn(batch, width, generator=numbers))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            if step > 100 and losses[-1] > 20 * min(losses):
                break
    diverged = losses[-1] > 20 * min(losses)
    before = [one for step, one in kept if not diverged or step < len(losses) - 1]
    return {
        "diverged": len(losses) - 1 if diverged else None,
        "loss": sum(losses[-20:]) / 20,
        "error": max((total(one.gaps).relative_error for one in before), default=None),
        "last_bin": max((share for one in before for share in one.last_bin.values()), default=None),
        "said": next((alert.step for alert in scope.alerts if alert.rule == RULE), None),
        "others": [f"{alert.rule} at {alert.step}" for alert in scope.alerts if alert.rule != RULE],
    }


SCRIPT = """
import sys
import torch
import torch.nn.functional as F
from torch import nn

size, steps = float(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(0)
first, second = torch.randn(64, 128) / 7, torch.randn(128, 64) / 10
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
optimizer = torch.optim.Adam(model.parameters(), 3e-3)


def teacher(x):
    return F.gelu(x @ first) @ second


def batch(seed):
    x = torch.randn(8, 32, 64, generator=torch.Generator().manual_seed(seed))
    clean = x.clone()
    x[:, 0] *= size
    return x, clean


def train(model, losses):
    for step in range(steps):
        x, _ = batch(step)
        loss = F.mse_loss(model(x)[:, 1:], teacher(x)[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())


if __name__ == "__main__":
    train(model, [])
"""


def outliers(size: float, steps: int, recipe: Recipe | None) -> dict[str, Any]:
    made: dict[str, Any] = {"__name__": "script"}
    before, sys.argv = sys.argv, ["script", str(size), str(steps)]
    try:
        exec(compile(SCRIPT, "script", "exec"), made)
    finally:
        sys.argv = before
    model, losses = made["model"], list[float]()
    if recipe is not None:
        convert(model, recipe, backend="emulate")
    with all_kept() as kept, numscope.watch(model, check="precision:at=5,10,15,20,25,30,100,200,299", alerts="note") as scope:
        made["train"](model, losses)
    _, clean = made["batch"](10**6)
    with torch.no_grad(), autocast(enabled=False):
        high = F.mse_loss(model(clean), made["teacher"](clean)).item()
    return {
        "losses": losses,
        "loss": sum(losses[-20:]) / 20,
        "high": high,
        "errors": {step: total(one.gaps).relative_error for step, one in kept},
        "said": next((alert.step for alert in scope.alerts if alert.rule == RULE), None),
        "advice": next((alert.advice.partition(":")[0] for alert in scope.alerts if alert.rule == RULE), ""),
        "with_high": next((dict(alert.evidence["with_high"]) for alert in scope.alerts if alert.rule == RULE), {}),
    }


def bisected(size: float, steps: int, tolerance: float) -> dict[str, Any]:
    """What ``numscope precision bisect`` keeps in high precision."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(SCRIPT)
        Path(folder, "settings.yaml").write_text(f"tolerance: {tolerance}\n")
        words = ["precision", "bisect", "--recipe", "mxfp4", "--steps", str(steps), "--settings", "settings.yaml", "--json", "found.json"]
        command = [sys.executable, "-m", "numscope", *words, "train.py", str(size), str(steps)]
        subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found: dict[str, Any] = json.loads(Path(folder, "found.json").read_text())
        return {key: value for key, value in found.items() if key != "output"}


def _kept(found: dict[str, Any]) -> str:
    kept = ", ".join(f"{one['gemm']} of layer {one['layer']}" for one in found["high_precision"]) or "nothing"
    drifts = f"{found['drift']:+.0%}, with it {found['drift_with_high_precision']:+.0%}"
    return f"{kept} is kept in high precision (of {found['num_gemms']} GEMMs, in {found['num_runs']} runs; loss {drifts})."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=float, default=300.0)
    parser.add_argument("--steps", type=int, default=300)
    given = parser.parse_args()
    torch.set_num_threads(1)  # the operations are small
    proxies = [
        {"depth": depth, "rate": rate, "seed": seed, "steps": steps, "precision": name, **proxy(depth, rate, seed, steps, RECIPES[name])}
        for depth, rate, seed, steps, names in PROXIES
        for name in names
    ]
    lines = ["## The proxy model of arXiv 2506.20752 (width 64, batch 128)", ""]
    lines += [
        "| layers | rate | seed | precision | diverged at step | largest error of a gradient before | last bin | mostly rounding said |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for one in proxies:
        shown = [*(str(one[key]) for key in ("depth", "rate", "seed", "precision")), str(one["diverged"] or f"no, in {one['steps']}")]
        shown += ["" if one["error"] is None else f"{one['error']:.0%}", "" if one["last_bin"] is None else f"{one['last_bin']:.0%}"]
        lines.append(f"| {' | '.join([*shown, str(one['said'] or 'no')])} |")
    plan = MXFP4().plan()
    recipes: dict[str, Recipe | None] = {"float32": None, "MXFP4": MXFP4()}
    recipes |= {f"MXFP4, {gemm} in high precision": Custom(plan.with_high([gemm])) for gemm in GEMMS}
    recipes |= {f"MXFP4, rotation {name}": MXFP4(rotation=name) for name in ("hadamard", "random_hadamard")}  # type: ignore[arg-type]
    recipes |= {"MXFP4, gradients rounded stochastically": MXFP4(stochastic_rounding=True)}
    found = {name: outliers(given.size, given.steps, recipe) for name, recipe in recipes.items()}
    lines += ["", f"## Tokens {given.size:g} times as large", ""]
    lines += [
        "| precision | loss, last 20 steps | loss of the weights in float32 | error of the gradient, median | said at step |",
        "|---|---|---|---|---|",
    ]
    for name, one in found.items():
        middle = sorted(one["errors"].values())
        shown = [f"{one['loss']:.4f}", f"{one['high']:.4f}", f"{middle[len(middle) // 2]:.0%}" if middle else "", str(one["said"] or "")]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    low, high = (found[name]["losses"] for name in ("MXFP4", "float32"))
    smooth = [[sum(run[i - 10 : i]) / 10 for i in range(10, len(run))] for run in (low, high)]
    parts = next((i + 10 for i, (a, b) in enumerate(zip(*smooth, strict=True)) if a > 1.25 * b and i > 20), None)
    said = found["MXFP4"]
    numbers = ", ".join(f"{gemm} {one['relative_error']:.0%}" for gemm, one in said["with_high"].items())
    lines += [
        "",
        f"Under MXFP4 the loss is 25 % above float32's from step {parts} on; the alert is at step {said['said']}: error of the gradient",
    ]
    lines[-1] += f" with one GEMM in high precision: {numbers}. Its advice: {said['advice']}."
    kept = bisected(given.size, given.steps, 0.3)
    lines += ["", f"`numscope precision bisect --recipe mxfp4`, tolerance 30 %: {_kept(kept)}"]
    results = {
        "machine": describe(),
        "proxy": proxies,
        "outliers": {n: {k: v for k, v in f.items() if k != "losses"} for n, f in found.items()},
    }
    write("low_precision", {**results, "parts": parts, "bisect": kept}, "What low precision does to gradients", lines)


if __name__ == "__main__":
    main()
