"""How faults are planted: a small model hosts a faulty function in its middle, armed at one step only, and trains until it is found."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import numscope
from numscope.records.errors import NonFiniteError
from numscope.records.finding import Finding, Reason
from numscope.records.site import Phase

MARK = "# FAULT"
ARMED_AT = 1  # the step at which a hosted fault goes off: one clean step lies before it


@dataclass
class Training:
    """A training at hand: ``step(i)`` does one whole step, optimizer's included."""

    model: nn.Module
    step: Callable[[int], object]
    steps: int = 3


@dataclass(frozen=True)
class Fault:
    """What is planted and what must be said of it.

    Args:
        plant: builds the training.
        op, reason, phase, module, step: of the finding's culprit, and the step it must be found in. ``op`` may list several names with
            ``|``: torch picks among them by version or device.
        file, line: of the one line marked ``# FAULT``.
        code: a part of the line's text, where it lies in a library instead.
        in_model: the fault lies within the model's forward or its backward, so checkpointing it makes sense.
    """

    name: str
    plant: Callable[[], Training]
    op: str
    reason: Reason
    phase: Phase = Phase.FORWARD
    module: str = ""
    step: int = ARMED_AT
    file: str = ""
    line: int = 0
    code: str = ""
    in_model: bool = True

    def check(self, finding: Finding) -> None:
        """Assert that a finding is this fault's."""
        culprit = finding.culprit
        assert culprit is not None, finding.headline()
        said = f"{finding.headline()}\n{culprit}"
        if self.file:
            assert (culprit.file, culprit.line) == (self.file, self.line), said
        assert self.code in culprit.code, said
        assert culprit.op.removeprefix("aten.").rstrip("_") in self.op.split("|"), said
        assert culprit.reason == self.reason, said
        assert culprit.phase == self.phase, said
        assert culprit.module == self.module, said
        assert finding.step == self.step, said
        assert not finding.contained
        assert finding.replay == "reproduced"
        assert culprit.detail.endswith(".") and culprit.advice.endswith((".", ".)")), said
        assert f"{culprit.file}:{culprit.line}" in str(NonFiniteError(finding))


def marked_line(fn: Any) -> tuple[str, int]:
    """File and line of the one ``# FAULT`` in a function's or class's source."""
    lines, start = inspect.getsourcelines(fn)
    found = [start + i for i, text in enumerate(lines) if text.rstrip().endswith(MARK)]
    assert len(found) == 1, (fn, found)
    return inspect.getsourcefile(fn) or "", found[0]


class Body(nn.Module):
    """Where a fault sits."""

    def __init__(self, fn: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.fn = fn
        self.armed = False

    def forward(self, x: Tensor) -> Tensor:
        return self.fn(x) if self.armed else x


class Host(nn.Module):
    """A layer, the fault, a layer; 8 features at the fault."""

    def __init__(self, fn: Callable[[Tensor], Tensor], dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 8, dtype=dtype)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Tanh(), Body(fn))])
        self.head = nn.Linear(8, 2, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.blocks[0](self.stem(x)))
        return y


BODY = "blocks.0.1"


def train(model: nn.Module, loss_of: Callable[[int], Tensor], optimizer: torch.optim.Optimizer | None = None) -> Training:
    """The common course: loss, backward, optimizer."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(i: int) -> None:
        optimizer.zero_grad()
        loss_of(i).backward()
        optimizer.step()

    return Training(model, step)


def host(fn: Callable[[Tensor], Tensor], dtype: torch.dtype = torch.float32, batch: int = 3) -> Training:
    """A training of the host in which ``fn`` is armed at one step."""
    model = Host(fn, dtype)
    body = model.get_submodule(BODY)

    def loss_of(i: int) -> Tensor:
        body.armed = i == ARMED_AT
        return model(torch.randn(batch, 4, dtype=dtype)).square().mean()

    return train(model, loss_of)


def hosted(
    catalog: list[Fault], op: str, reason: Reason, *, phase: Phase = Phase.FORWARD, dtype: torch.dtype = torch.float32, batch: int = 3
) -> Callable[[Callable[[Tensor], Tensor]], Callable[[Tensor], Tensor]]:
    """Put a function with a marked line into a catalog as a fault in the host's body."""

    def register(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        file, line = marked_line(fn)
        catalog.append(Fault(fn.__name__, lambda: host(fn, dtype, batch), op, reason, phase, BODY, ARMED_AT, file, line))
        return fn

    return register


def planted(catalog: list[Fault], op: str, reason: Reason, **expected: Any) -> Callable[[Callable[[], Training]], Callable[[], Training]]:
    """Put a function that builds a training into a catalog; the marked line lies in its source, unless ``code`` says which line it is."""

    def register(plant: Callable[[], Training]) -> Callable[[], Training]:
        file, line = ("", 0) if "code" in expected else marked_line(plant)
        catalog.append(replace(Fault(plant.__name__, plant, op, reason, file=file, line=line), **expected))
        return plant

    return register


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Reports go to stderr, which pytest keeps; warnings of models on tiny configs are of no interest."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def found(plant: Callable[[], Training], *, checkpointed: bool = False, **options: Any) -> Finding:
    """Train under a watch until it raises; the finding."""
    torch.manual_seed(0)
    training = plant()
    if checkpointed:
        checkpoint_whole(training.model)
    with quiet(), numscope.watch(training.model, **options):
        try:
            for i in range(training.steps):
                training.step(i)
        except NonFiniteError as error:
            return error.finding
    raise AssertionError("no finding")


def watched(plant: Callable[[], Training], **options: Any) -> numscope.Scope:
    """Train under a watch that only warns, to the end; the closed scope."""
    torch.manual_seed(0)
    training = plant()
    with quiet(), numscope.watch(training.model, on_nonfinite="warn", **options) as scope:
        for i in range(training.steps):
            training.step(i)
    return scope


def checkpoint_whole(model: nn.Module) -> None:
    """The model's forward is computed anew in backward."""
    forward = model.forward

    def recomputed(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    model.forward = recomputed  # type: ignore[method-assign]
