"""Functions of a training loop that are patched: what they warn of names the script's lines, and what can't be called is left alone."""

import functools
import warnings
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import LRScheduler, StepLR

from numscope.probe import loop_calls
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.loop_calls import LoopCall
from numscope.probe.optimizer import StepListener


class Listener(StepListener):
    def __init__(self) -> None:
        self.calls: list[LoopCall] = []

    def called(self, call: LoopCall) -> None:
        self.calls.append(call)


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()
    optimizer_probe.listen(found)
    yield found
    optimizer_probe.unlisten(found)


class Slow(StepLR):
    def step(self, epoch: int | None = None) -> None:
        super().step(epoch)


def early_scheduler() -> None:
    StepLR(SGD([nn.Parameter(torch.ones(1))], lr=0.1), 3).step()


def told_the_epoch() -> None:
    for kind in (StepLR, Slow):
        optimizer = SGD([nn.Parameter(torch.ones(1))], lr=0.1)
        scheduler = kind(optimizer, 3)
        for epoch in (1, 2):
            optimizer.step()
            scheduler.step(epoch)


def nothing_to_clip() -> None:
    torch.nn.utils.clip_grad_norm_((p for p in ()), 1.0)


def again_and_again() -> None:
    for _ in range(3):
        early_scheduler()
        warnings.warn("the script's own", stacklevel=1)


def warned(run: Callable[[], None]) -> list[tuple[str, str, int]]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")  # each line once
        for known in (globals(), vars(torch.optim.lr_scheduler)):
            known.pop("__warningregistry__", None)
        run()
    return [(str(each.message), each.filename, each.lineno) for each in found]


@pytest.mark.parametrize("run", [early_scheduler, told_the_epoch, nothing_to_clip, again_and_again])
def test_warnings_come_as_often_and_name_the_same_lines(run: Callable[[], None]) -> None:
    bare = warned(run)
    found = Listener()
    optimizer_probe.listen(found)
    try:
        watched = warned(run)
    finally:
        optimizer_probe.unlisten(found)
    assert bare and watched == bare
    assert found.calls
    assert isinstance(warnings.warn, BuiltinFunctionType)


class Other:
    """A descriptor that can't be called itself."""

    def __get__(self, scheduler: LRScheduler | None, kind: type) -> Callable[..., None]:
        return functools.partial(LRScheduler.step, scheduler)


class Described(StepLR):
    step = Other()  # type: ignore[assignment]


class Partial(StepLR):
    step = functools.partialmethod(LRScheduler.step)  # type: ignore[assignment]


@pytest.mark.parametrize("kind", [Described, Partial])
def test_scheduler_whose_step_is_no_plain_function_steps(kind: type[StepLR], listener: Listener) -> None:
    optimizer = SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    scheduler = kind(optimizer, 1, gamma=0.5)
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert all(call.target is scheduler for call in listener.calls)


def test_clipping_is_known_of(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_calls, "_clips", False)
    assert not loop_calls.clips()
    torch.nn.utils.clip_grad_norm_([nn.Parameter(torch.ones(1))], 1.0)
    assert loop_calls.clips()


def test_clipping_by_a_norm_that_is_known_is_one_call(listener: Listener) -> None:
    weight = nn.Parameter(torch.ones(4))
    for by_halves in (False, True):
        weight.grad = torch.ones(4)
        if by_halves:
            torch.nn.utils.clip_grads_with_norm_(iter([weight]), 1.0, torch.nn.utils.get_total_norm([weight.grad]))
        else:
            torch.nn.utils.clip_grad_norm_([weight], 1.0)
        assert torch.equal(weight.grad, torch.full((4,), 0.5) / (1 + 5e-7))
    assert [(call.kind, call.given(1, "max_norm")) for call in listener.calls] == [("clip", 1.0)] * 2
