"""An optimizer's step that was taken twice: equal where it is right, named where it is not."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import nn

import numscope
from numscope.detect import update_again
from numscope.detect.again import bits_of, flipped
from numscope.detect.experiments import HARDWARE, NOT_THE_SAME
from tests.detect.test_again import Flip

HERE = os.getpid()
OPTIMIZERS: dict[str, Any] = {
    "SGD": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9, nesterov=True),
    "AdamW": lambda p: torch.optim.AdamW(p, 1e-2, amsgrad=True),
    "Adam for": lambda p: torch.optim.Adam(p, 1e-2, foreach=True),
    "Adam fused": lambda p: torch.optim.Adam(p, 1e-2, fused=True),
    "Adafactor": lambda p: torch.optim.Adafactor(p, 1e-2),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 1e-3, centered=True),
    "Muon": lambda p: torch.optim.Muon([w for w in p if w.ndim == 2], 1e-2),
}


class FlipHere(Flip):
    """In the run's own process alone, as a machine that fails once."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        written = func(*args, **(kwargs or {}))
        if os.getpid() == HERE and not self.done and func.__name__.partition(".")[0] == self.op:
            self.done = True
            result = written if written is not None else args[0]
            one = result[0] if isinstance(result, list | tuple) else result
            one.view(-1)[:1].view(torch.int32).bitwise_xor_(1 << self.bit)
        return written


def train(make: Any, *, flip: FlipHere | None = None, at: int = 4, **options: Any) -> Any:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 6, bias=False), nn.ReLU(), nn.Linear(6, 1, bias=False))
    optimizer = make([*net.parameters()])
    with numscope.watch(net, **options) as scope:
        for step in range(8):
            net(torch.randn(16, 8)).square().mean().backward()
            if flip is not None and step == at:
                with flip:
                    optimizer.step()
            else:
                optimizer.step()
            optimizer.zero_grad()
    return scope, {**net.state_dict(), "drawn": torch.rand(3)}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_healthy_step_is_the_same_and_the_run_is_as_without(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    original = update_again.UpdateAgain.after

    def noting(self: Any, optimizer: Any) -> Any:
        found = original(self, optimizer)
        compared.append(found[1])
        return found

    monkeypatch.setattr(update_again.UpdateAgain, "after", noting)
    scope, weights = train(OPTIMIZERS[name], check="again:at=0,1,3")
    _, bare = train(OPTIMIZERS[name], alerts="off")
    assert not scope.alerts and all(torch.equal(weights[key], bare[key]) for key in bare)
    assert min(compared[0], compared[1], compared[3]) >= 2 and compared[2] == compared[4] == 0


class Centered(torch.optim.SGD):
    """Takes a mean of very many numbers, whose bits depend on how many threads add them up."""

    def step(self, closure: Any = None) -> Any:
        for p in self.param_groups[0]["params"]:
            p.grad.sub_(p.grad.sum() / 3)
        return super().step(closure)


def test_a_step_of_several_threads_is_the_same_with_as_many() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch.manual_seed(0)
        net = nn.Linear(1 << 20, 1, bias=False)
        optimizer = Centered(net.parameters(), 1e-3)
        with numscope.watch(net, check="again:every=1") as scope:
            for _ in range(4):
                net(torch.randn(2, 1 << 20)).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
    finally:
        torch.set_num_threads(before)
    assert [alert.text for alert in scope.alerts if alert.rule in (HARDWARE, NOT_THE_SAME)] == []


@pytest.mark.parametrize(("dtype", "lost"), [(torch.float32, 0), (torch.bfloat16, 16), (torch.float16, 13)])
def test_a_bit_is_counted_from_the_lowest_of_the_dtype_that_was_rounded_to(dtype: torch.dtype, lost: int) -> None:
    torch.manual_seed(0)
    one = torch.randn(7).to(dtype).float()
    one[3] = one[3] + 2**-9 * (lost == 0)
    other = one.clone()
    other.view(torch.int32)[3] ^= 1 << 17
    was, now = (bits_of({"": t})[""] for t in (one, other))
    said, bit = flipped(was, now)
    assert bit == 17 - lost and said.endswith(f"{other[3]:.6g} again: bit 17")


@pytest.mark.parametrize(
    ("name", "op", "bit", "state"),
    [
        ("SGD", "_foreach_add_", 20, ""),
        ("AdamW", "lerp_", 5, "exp_avg"),
        ("Adam for", "_foreach_addcdiv_", 12, ""),
        ("AdamW", "addcdiv_", 3, ""),
    ],
)
def test_a_flipped_bit_of_an_update_is_suspected_hardware(name: str, op: str, bit: int, state: str) -> None:
    make = OPTIMIZERS[name] if name != "SGD" else lambda p: torch.optim.SGD(p, 1e-2, foreach=True)
    scope, _ = train(make, flip=FlipHere(op, bit), check="again:every=2")
    [alert] = [one for one in scope.alerts if one.rule in (HARDWARE, NOT_THE_SAME)]
    assert (alert.rule, alert.step, alert.layer) == (HARDWARE, 4, "0")
    kind = type(make([torch.zeros(1, 1, requires_grad=True)])).__name__
    assert alert.evidence["op"].startswith(f"{kind}.step: aten.") and "(optimizer) at " in alert.text
    assert (f": {state}: other bits" if state else ": other bits") in alert.text and "2 steps after it" in alert.text
    assert alert.evidence["line"].startswith(__file__)
