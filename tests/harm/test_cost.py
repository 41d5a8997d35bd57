"""No host sync within a step, nothing kept alive, no growth."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

import numscope
from numscope.detect import journal
from numscope.scope import open_scopes
from numscope.summary import ledger
from tests.harm.training import assert_nothing_left

SYNCS = ("item", "tolist", "cpu", "nonzero", "numpy", "__bool__", "__float__", "__int__", "__index__")


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Dropout(0.1), nn.Linear(4, 1))


@pytest.mark.parametrize("level", ["modules", "sentinel"])
def test_nothing_waits_for_the_device_between_a_steps_start_and_its_end(level: str, monkeypatch: Any) -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model, level=level) as scope:
        for _ in range(3):
            x = torch.randn(3, 4)
            with monkeypatch.context() as m:
                for name in SYNCS:

                    def refuse(*_: Any, name: str = name) -> Any:
                        raise AssertionError(f"Tensor.{name} waits for the device")

                    m.setattr(torch.Tensor, name, refuse)
                for owner in (ledger.Ledger, ledger.Block, journal.Journal):
                    for name in ("read", "bad", "any_bad", "numbers", "summary"):
                        if hasattr(owner, name):
                            m.setattr(owner, name, refuse)
                for owner in (ledger.Ledger, journal.Journal):
                    m.setattr(owner, "on_host", property(lambda _: False))  # as on a device
                loss = model(x).pow(2).mean() * 2
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        assert not scope.closed and scope.step_number == 3


class Remembering(nn.Module):
    """Keeps weak references to what it makes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.made: list[weakref.ref[Tensor]] = []

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
            self.made.append(weakref.ref(x))
            x = x * 2
            self.made.append(weakref.ref(x))
        return x.sum(-1)


def alive_after_each(watched: bool) -> list[list[bool]]:
    torch.manual_seed(0)
    model = Remembering()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scope = numscope.watch(model) if watched else None
    found = []

    def look() -> None:
        found.append([ref() is not None for ref in model.made])

    for _ in range(2):
        out = model(torch.ones(2, 4))
        look()
        loss = out.sum()
        del out
        look()
        loss.backward()
        del loss
        look()
        optimizer.step()
        look()
        with torch.no_grad():
            model(torch.ones(2, 4))
        look()
    if scope is not None:
        assert not scope.closed
        scope.close()
    return found


def test_activations_die_when_they_would_without_a_watch() -> None:
    gc.disable()  # reference counts alone must do
    try:
        assert alive_after_each(True) == alive_after_each(False)
    finally:
        gc.enable()


def tensors() -> tuple[int, int]:
    """How many tensors live, and the bytes of their storages."""
    gc.collect()
    found = [o for o in gc.get_objects() if issubclass(type(o), Tensor)]
    storages = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in found if t.layout is torch.strided and not is_lazy(t)}
    return len(found), sum(storages.values())


def resident_bytes() -> int:
    if not os.path.exists("/proc/self/statm"):
        pytest.skip("no /proc here")
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def with_optimizer(model: nn.Module) -> Callable[[], None]:
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def evaluating(model: nn.Module) -> Callable[[], None]:
    def step() -> None:
        with torch.no_grad():
            model(torch.randn(2, 4)).sum().item()

    return step


def evaluating_with_graphs(model: nn.Module) -> Callable[[], None]:
    def step() -> None:
        model(torch.randn(2, 4)).sum().item()

    return step


def without_optimizer(model: nn.Module) -> Callable[[], None]:
    def step() -> None:
        model(torch.randn(2, 4)).sum().backward()
        for p in model.parameters():
            p.data -= 0.01 * p.grad
            p.grad = None

    return step


def adversarial(model: nn.Module) -> Callable[[], None]:
    other = nn.Linear(1, 4)
    first, second = torch.optim.SGD(model.parameters(), lr=1e-6), torch.optim.SGD(other.parameters(), lr=1e-6)
    numscope.watch(other)

    def play() -> None:
        made = other(torch.randn(2, 1))
        second.zero_grad()
        model(made.detach()).sum().backward()
        first.step()
        first.zero_grad()
        model(made).sum().backward()
        second.step()

    return play


def functional(model: nn.Module) -> Callable[[], None]:
    """New parameters each step, as in meta-learning."""
    weights = {k: v.detach().clone() for k, v in model.named_parameters()}
    stand_in = dict(weights)

    def run() -> None:
        nonlocal stand_in
        stand_in = {k: (v * 0.99).requires_grad_() for k, v in stand_in.items()}
        loss = torch.func.functional_call(model, stand_in, (torch.randn(2, 4),)).sum()
        torch.autograd.grad(loss, list(stand_in.values()))
        stand_in = {k: v.detach() for k, v in stand_in.items()}

    return run


@pytest.mark.parametrize(
    "course", [with_optimizer, evaluating, evaluating_with_graphs, without_optimizer, adversarial, functional], ids=lambda f: f.__name__
)
def test_nothing_grows(course: Callable[[nn.Module], Callable[[], None]]) -> None:
    model = small()
    with numscope.watch(model) as scope:
        run = course(model)
        for _ in range(50):
            run()
        count, live = tensors()
        ledgers, resident = scope._watch.nbytes, resident_bytes()
        for _ in range(70):
            run()
        assert not scope.closed and not scope.findings
        later_count, later_live = tensors()
        assert later_count <= count + 2 and later_live <= live + 256, "tensors pile up"
        assert scope._watch.nbytes == ledgers
        state = scope._watch._detection.evidence
        assert len(state.calls) <= 2 and len(state.journal.events) < 110 and len(state.outside.tape.records) <= 5120
        assert len(state.journal.weights.ledger) < 100
        assert len(scope.events) == len(scope.contained) == 0
        assert resident_bytes() - resident < 16 << 20
    for other in open_scopes.live():
        other.close()
    assert_nothing_left()


def test_many_micro_batches_keep_little_and_nothing_after_their_step() -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def step(micro_batches: int) -> None:
        for _ in range(micro_batches):
            model(torch.randn(2, 4)).sum().backward()
        kept.append(tensors())
        optimizer.step()

    with numscope.watch(model) as scope:
        kept: list[tuple[int, int]] = []
        for micro_batches in (2, 2, 150, 2, 2):  # the step after one of many still writes down what runs between calls, as that one needed
            step(micro_batches)
        _, (few, few_bytes), (_, many_bytes), _, (few_again, few_again_bytes) = kept
        assert many_bytes - few_bytes < 2 << 20
        assert few_again <= few + 2 and few_again_bytes <= few_bytes + 256
        assert not scope.closed and len(scope._watch._detection.evidence.journal.events) < 100


def test_an_agents_step_leaves_nothing_to_the_collector() -> None:
    """Scripts that switch it off, or run it every hundredth step, would grow by each act."""
    model = nn.Linear(4, 4)

    def step() -> None:
        loss = torch.zeros(())
        for _ in range(50):
            loss = loss + (model(torch.ones(2, 4)) * 2.0).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with numscope.watch(model):
        for _ in range(3):
            step()
        gc.collect()
        gc.disable()
        try:
            for _ in range(4):
                step()
            assert gc.collect() < 50
        finally:
            gc.enable()
