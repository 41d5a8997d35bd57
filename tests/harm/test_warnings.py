"""Warnings name the same lines with a watch as without one, whoever gives them, at whatever level of the stack."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import LBFGS, SGD, Optimizer
from torch.optim.lr_scheduler import StepLR

import numscope

X = torch.linspace(-1, 1, 12).view(3, 4)
warn = warnings.warn  # as scripts import it: this one is Python's own


def say(text: str, level: int) -> None:
    warnings.warn(text, stacklevel=level + 1)


class Net(nn.Module):
    level = 0

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        if self.level:
            say("forward", self.level)
        return self.b(y)


class Stepped(SGD):
    def step(self, closure: Any = None) -> Any:
        for level in (2, 3):
            say("step", level)
        return super().step(closure)


class Owner(Optimizer):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    def add_param_group(self, group: dict[str, Any]) -> None:
        for level in (2, 3, 4):
            say("group", level)
        super().add_param_group(group)


class Slow(StepLR):
    def step(self, epoch: int | None = None) -> None:
        say("scheduler", 2)
        super().step(epoch)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        say("custom forward", 2)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        say("custom backward", 2)
        return gradient * 2


class Implicit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        return F.softmax(y) + F.mse_loss(y, y[:1])


def forwards(net: Net) -> None:
    for level in (1, 3, 4, 5):
        net.level = level
        net(X).sum().backward()
        with torch.no_grad():
            net(X)


def hooked_forwards(net: Net) -> None:
    """The script has a hook on the module itself: torch goes the longer way with and without a watch."""
    handle = net.register_forward_hook(lambda *_: say("hook", 2))
    for level in (2, 3, 4, 5):
        net.level = level
        net(X)
    handle.remove()


def hooks(net: Net) -> None:
    for level in (2, 3, 4):
        for register in (net.a.register_forward_hook, net.a.register_forward_pre_hook, net.register_full_backward_hook):
            handle = register(lambda *_: say("hook", level))  # noqa: B023
            net(X).sum().backward()
            handle.remove()
        output = net(X)
        output.register_hook(lambda _: say("gradient", level))  # noqa: B023
        output.sum().backward()


def optimizers(net: Net) -> None:
    optimizer, scheduler = Stepped(net.parameters(), 0.1), None
    scheduler = Slow(optimizer, 1)
    net(X).sum().backward()
    optimizer.step()
    scheduler.step()
    scheduler.step(3)
    Owner(net.parameters())


def closures(net: Net) -> None:
    for optimizer in (SGD(net.parameters(), 0.1), LBFGS(net.parameters(), max_iter=2)):

        def closure() -> Tensor:
            net.zero_grad()
            loss = net(X).square().mean()
            loss.backward()
            for level in (2, 3, 4):
                say("closure", level)
            return loss

        optimizer.step(closure)


def custom(net: Net) -> None:
    Twice.apply(net(X)).sum().backward()
    torch.autograd.grad(Twice.apply(net(X)).sum(), list(net.parameters()))


def losses(net: Net) -> None:
    F.mse_loss(net(X), torch.zeros(3, 1)).backward()
    nn.L1Loss()(net(X), torch.zeros(3, 1)).backward()
    nn.KLDivLoss()(net(X).log_softmax(1), torch.rand(3, 2)).backward()
    F.softmax(net(X)).sum().backward()
    nn.LogSoftmax()(net(X)).sum().backward()


def inside(net: Net) -> None:
    Implicit()(X).sum().backward()
    nn.Sequential(net, nn.Softmax())(X).sum().backward()


def of_torch(net: Net) -> None:
    net(X).grad
    torch.tensor(net(X))
    nn.init.uniform(torch.ones(2))
    nn.utils.clip_grad_norm_((p for p in ()), 1.0)


def of_a_script_that_has_imported_it(net: Net) -> None:
    net(X).register_hook(lambda _: warn("imported", stacklevel=1))
    net(X).sum().backward()


def of_torchs_c_code(net: Net) -> None:
    """After backwards that no step follows: the last one leaves a mode of ours where it can't be taken off at once."""
    optimizer, penalty = SGD(net.parameters(), 0.01), torch.zeros(())
    for _ in range(24):
        penalty = torch.stack([(p**2).sum() for p in net.parameters()]).sum()
        optimizer.zero_grad()
        (net(X).sum() + penalty).backward()
        optimizer.step()
    for _ in range(6):
        net.zero_grad()
        F.nll_loss(F.log_softmax(net(X), 1), net(X).argmax(1)).backward()
        [p.grad**2 for p in net.parameters() if p.grad is not None]
    torch.set_warn_always(True)
    try:
        float(penalty)
    finally:
        torch.set_warn_always(False)


PLACES = (
    forwards,
    hooked_forwards,
    hooks,
    optimizers,
    closures,
    custom,
    losses,
    inside,
    of_torch,
    of_torchs_c_code,
    of_a_script_that_has_imported_it,
)


def warned(net: Net, run: Callable[[Net], None]) -> list[tuple[str, str, str, int]]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run(net)
    return [(each.category.__name__, str(each.message), each.filename, each.lineno) for each in found]


def made() -> Net:
    torch.manual_seed(0)
    net = Net()
    net(X).sum().backward()
    net.zero_grad()
    return net


@pytest.mark.parametrize("run", PLACES)
def test_warnings_name_the_same_lines(run: Callable[[Net], None]) -> None:
    bare, net = warned(made(), run), made()
    with numscope.watch(net, on_nonfinite="warn", alerts="off"):
        watched = warned(net, run)
    assert watched == bare
    assert (bare or run is of_a_script_that_has_imported_it) and warnings.warn is warn


def test_level_beyond_the_script_is_as_without_a_watch(tmp_path: Path) -> None:
    script = tmp_path / "deep.py"
    script.write_text(
        "import torch, warnings\nwarnings.showwarning = lambda m, c, f, n, *_: print(m, f, n)\n"
        "class Net(torch.nn.Linear):\n    def forward(self, x):\n        for n in range(4, 8): warnings.warn(str(n), stacklevel=n)\n"
        "        return super().forward(x)\nNet(2, 2)(torch.ones(1, 2)).sum().backward()\n"
    )
    done = subprocess.run([sys.executable, "-m", "numscope", "run", str(script)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"4 {script} 7", "5 sys 1", "6 sys 1", "7 sys 1"]
