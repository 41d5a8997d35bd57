"""Advice is tried: the code that a report gives to paste is evaluated, and forward and backward are finite with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import numscope
from tests.tape import traced

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
POWERS = {"pow_-2": -2.0, "pow_-7": -7.0, "pow_-0.5": -0.5, "pow_0.3": 0.3, "pow_3": 3.0}
UNARY: dict[str, tuple[Callable[[Tensor], Tensor], tuple[float, ...]]] = {  # arguments at which it or its gradient is not finite
    "log": (torch.log, (0.0, -1.0)),
    "log2": (torch.log2, (0.0, -1.0)),
    "log10": (torch.log10, (0.0, -2.0)),
    "log1p": (torch.log1p, (-1.0, -3.0)),
    "logit": (torch.logit, (0.0, 1.0, 2.0)),
    "sqrt": (torch.sqrt, (0.0, -1.0)),
    "rsqrt": (torch.rsqrt, (0.0, -1.0)),
    "acos": (torch.acos, (1.0, -1.0, 1.5)),
    "asin": (torch.asin, (1.0, -1.0, -1.5)),
    "atanh": (torch.atanh, (1.0, -1.0, 2.0)),
    "acosh": (torch.acosh, (1.0, 0.5)),
    "lgamma": (torch.lgamma, (0.0,)),
    "digamma": (torch.digamma, (0.0, -1.0)),
    "erfinv": (torch.erfinv, (1.0, -1.0, 2.0)),
    "exp": (torch.exp, (1000.0,)),
    "exp2": (torch.exp2, (2000.0,)),
    "sinh": (torch.sinh, (1000.0, -1000.0)),
    "cosh": (torch.cosh, (1000.0,)),
    "pow_-2": (lambda x: x**-2.0, (0.0,)),
    "pow_-7": (lambda x: x**-7.0, (0.0,)),
    "pow_-0.5": (lambda x: x**-0.5, (0.0, -1.0)),
    "pow_0.3": (lambda x: x**0.3, (0.0, -1.0)),
    "pow_3": (lambda x: x**3.0, (1e30,)),
    "reciprocal": (lambda x: 1 / x, (0.0,)),
    "div": (lambda x: torch.ones(2) / x, (0.0,)),
    "div_signed": (lambda x: torch.ones(3) / torch.cat([x, -x[1:]]), (0.0,)),
}


def advised(advice: str) -> str:
    """The expression in the advice: from its colon to the end of the sentence."""
    found = re.search(r": ((?:torch\.|\(?x).*?)\.(?: [A-Z]|$)", advice)
    assert found is not None, advice
    return found[1]


def finite(x: Tensor | None) -> bool:
    return x is not None and bool(x.isfinite().all())


CASES = [
    (name, value, dtype) for name, (_, values) in UNARY.items() for value in values for dtype in DTYPES[: 1 if name == "pow_3" else None]
]


@pytest.mark.parametrize("name, value, dtype", CASES)
def test_code_to_paste_is_finite_in_forward_and_backward(name: str, value: float, dtype: torch.dtype) -> None:
    fn = UNARY[name][0]
    x = torch.tensor([value, 0.25], dtype=dtype, requires_grad=True)
    run = traced(lambda: fn(x).sum(), backward=True)
    assert not (finite(run.result) and finite(x.grad)), "the case must be a fault"
    culprit = run.culprit(run.result) or run.culprit(x.grad)
    assert culprit is not None
    cured = x.detach().requires_grad_()
    around = {"torch": torch, "x": 1 if " y" in culprit.advice or "(y" in culprit.advice else cured, "y": cured, "p": POWERS.get(name)}
    result = eval(advised(culprit.advice), around)
    if advised(culprit.advice).startswith("x.clamp("):
        result = fn(result)
    result.sum().backward()
    assert finite(result) and finite(cured.grad), (culprit.advice, result, cured.grad)


class Block(nn.Module):
    """A pre-norm block of a residual stream; ``scale`` makes its branch large."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        branch: Tensor = self.down(F.relu(self.up(self.norm(x))))
        return x + branch * self.scale


class Stack(nn.Module):
    def __init__(self, scales: Sequence[float], norm: bool) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 8)
        self.blocks = nn.ModuleList(map(Block, scales))
        self.norm = nn.LayerNorm(8) if norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        y: Tensor = self.norm(x)
        return y


class Model(nn.Module):
    def __init__(self, scales: Sequence[float], *, norm: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = Stack(scales, norm), nn.Linear(8, 2)
        self.half()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.body(x))
        return y


class Feeding(nn.Module):
    """A branch whose own layers are too large within it, and whose result is small."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.up, self.down, self.head = nn.Linear(4, 8), nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 2)
        with torch.no_grad():
            self.up.weight *= 1e6
            self.down.weight *= 1e-6
        self.block = nn.Sequential(self.up, nn.ReLU(), self.down)
        self.half()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.block(self.stem(x)))
        return y


class Leaving(nn.Module):
    """Its last layer's result is too large."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.head = nn.Linear(4, 8), nn.Linear(8, 2)
        with torch.no_grad():
            self.head.weight.fill_(6e4)
            self.stem.bias.fill_(8)
        self.half()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.stem(x))
        return y


@pytest.mark.parametrize(
    "make, where",
    [
        (lambda: Model([1, 3e5, 1, 1]), "model.body)"),
        (lambda: Model([3e5, 1]), "model.body)"),
        (Leaving, "model.head, output_dtype=torch.float32)"),
    ],
)
def test_high_precision_that_is_advised_cures_this_batch(make: Callable[[], nn.Module], where: str) -> None:
    def step(model: nn.Module) -> Tensor:
        loss: Tensor = model(torch.ones(3, 4, dtype=torch.float16)).float().mean()
        loss.backward()
        torch.optim.SGD(model.parameters(), lr=0.0).step()
        return loss

    model = make()
    with numscope.watch(model), pytest.raises(numscope.NonFiniteError) as raised:
        step(model)
    assert raised.value.finding.culprit is not None
    advice = raised.value.finding.culprit.advice
    call = re.search(r"numscope\.high_precision\(\S+?(, \S+)?\)(?=[,. ])", advice)
    assert call is not None and call[0].endswith(where), advice
    model = make()
    eval(call[0], {"numscope": numscope, "model": model, "torch": torch})
    assert finite(step(model)), advice
