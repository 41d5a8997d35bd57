"""Models that a script drops: nothing of ours keeps them, and what was found in them is not lost."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import numscope
from numscope.config.options import WatchOptions
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.step import MOST_AT_WORK
from numscope.scope import open_scopes
from numscope.scope.autowatch import AutoWatch

STATISTIC = {"enabled": True, "stats": ["max"], "tensors": ["output", "weight"], "freq": 2}
STATISTICS = {"all": {"enabled": True, "layers": {"layer_types": "all"}, "statistics": STATISTIC}}


MANY = MOST_AT_WORK + 8  # models: more than are kept


def build(width: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 2))


def train(model: nn.Module) -> None:
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def evaluate(model: nn.Module) -> None:
    with torch.no_grad():
        model(torch.randn(3, 4)).square().mean()


def leave_without_backward(model: nn.Module) -> None:
    model(torch.randn(3, 4)).square().mean()


def fail(model: nn.Module) -> None:
    train(model)
    with contextlib.suppress(RuntimeError):
        model(torch.randn(3, 5))


def train_and_leave(model: nn.Module) -> None:
    train(model)
    leave_without_backward(model)


@pytest.mark.parametrize(
    "options", [{}, {"config": STATISTICS}, {"config": STATISTICS, "on_nonfinite": None}], ids=["detect", "both", "stats"]
)
@pytest.mark.parametrize(
    ("course", "most"),
    [(train, 0), (evaluate, 0), (fail, 0), (leave_without_backward, 2), (train_and_leave, 2)],
    ids=lambda c: getattr(c, "__name__", ""),
)
def test_dropped_models_go(
    options: dict[str, Any], course: Callable[[nn.Module], None], most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dropped: list[weakref.ref[nn.Module]] = []
    with AutoWatch(WatchOptions.of(**options)) as auto:
        for _ in range(4):
            model = build()
            dropped.append(weakref.ref(model))
            course(model)
            del model
        gc.collect()
        assert sum(ref() is not None for ref in dropped) <= most, "one that waits for its backward may be kept until the next one comes"
        assert len(auto.scopes) <= most
    watched = auto.coverage.watched()
    assert watched.models == ["Sequential"]
    assert watched.steps == (3 if course in (train, train_and_leave, fail) else 0) or course is leave_without_backward
    assert not watched.findings and not watched.contained
    gc.collect()
    assert not any(ref() is not None for ref in dropped)
    assert not optimizer_probe._undo, "torch is as it was"


def loss_of(model: nn.Module) -> torch.Tensor:
    return model(torch.randn(3, 4)).square().mean()


def losses_alone(make: Callable[[], nn.Module]) -> None:
    for _ in range(MANY):
        loss_of(make())


def losses_with_backward(make: Callable[[], nn.Module]) -> None:
    for _ in range(MANY):
        loss_of(make()).backward()


def losses_of_two_batches(make: Callable[[], nn.Module]) -> None:
    for _ in range(MANY):
        model = make()
        loss_of(model).backward()
        (loss_of(model) + loss_of(model)).backward()


def loss_kept_over_the_next_model(make: Callable[[], nn.Module]) -> None:
    loss = torch.zeros(())
    for _ in range(MANY):
        last, loss = loss, loss_of(make())
        del last
        loss.backward()


def losses_without_gradients(make: Callable[[], nn.Module]) -> None:
    for _ in range(MANY):
        with torch.no_grad():
            loss_of(make())


def optimizers_that_go_too(make: Callable[[], nn.Module]) -> None:
    for _ in range(MANY):
        model = make()
        torch.optim.SGD(model.parameters(), lr=0.1)
        loss_of(model).backward()


@pytest.mark.parametrize(
    "course",
    [
        losses_alone,
        losses_with_backward,
        losses_of_two_batches,
        loss_kept_over_the_next_model,
        losses_without_gradients,
        optimizers_that_go_too,
    ],
    ids=lambda c: c.__name__,
)
@pytest.mark.parametrize("automatic", [False, True], ids=["watch", "run"])
def test_function_that_returns_a_loss_leaves_no_model(course: Callable[[Any], None], automatic: bool) -> None:
    dropped: list[weakref.ref[nn.Module]] = []

    def make() -> nn.Module:
        model = build()
        dropped.append(weakref.ref(model))
        if not automatic:
            numscope.watch(model)
        return model

    with AutoWatch(WatchOptions()) if automatic else contextlib.nullcontext():
        course(make)
        gc.collect()
        assert sum(ref() is not None for ref in dropped) == 0
    assert not open_scopes.live()


class Short(nn.Linear):
    """Has no room for many rows."""

    def __init__(self, error: Exception) -> None:
        super().__init__(4, 2)
        self.error = error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        activations = super().forward(x)
        if len(x) > 4:
            raise self.error
        return activations


NO_ROOM = [MemoryError(), torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("DefaultCPUAllocator: can't allocate memory")]


@pytest.mark.parametrize("error", NO_ROOM, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("automatic", [False, True], ids=["watch", "run"])
def test_what_has_run_out_of_memory_leaves_its_room_to_the_next_try(error: Exception, automatic: bool) -> None:
    gone: list[weakref.ref[nn.Module]] = []

    def attempt(rows: int) -> None:
        model = Short(error)
        if not automatic:
            numscope.watch(model)
        gone.append(weakref.ref(model))
        model(torch.ones(rows, 4)).sum().backward()

    with AutoWatch(WatchOptions()) if automatic else contextlib.nullcontext():
        for rows in (8, 6, 4):
            try:
                attempt(rows)
            except type(error):
                error.__traceback__ = None
            gc.collect()
            assert gone[-1]() is None or rows == 4


@pytest.mark.parametrize("collects", [False, True])
def test_bad_loss_of_a_model_that_is_gone_is_found(collects: bool, capfd: Any) -> None:
    """Such a model is kept until it is judged: when there are many, or at the end."""

    def step(x: torch.Tensor) -> None:
        build()(x).square().mean().sub(1e9).log().backward()
        if collects:
            gc.collect()

    with pytest.raises(numscope.NonFiniteError) as caught, AutoWatch(WatchOptions()):
        step(torch.zeros(3, 4))
    culprit = caught.value.finding.culprit
    assert culprit is not None and culprit.op == "aten.log"


def test_models_whose_graphs_a_script_keeps_are_judged_before_they_go(capfd: Any) -> None:
    with pytest.raises(numscope.NonFiniteError) as caught, AutoWatch(WatchOptions()):
        losses = []
        for number in range(MANY):
            losses.append(build()(torch.full((3, 4), torch.inf if number == 3 else 1.0)).square().mean())
            losses[-1].backward()
    assert len(losses) < MANY and caught.value.finding.site.slot == "input[0]"


def test_tensors_without_a_module_go_with_their_optimizer() -> None:
    dropped: list[weakref.ref[torch.Tensor]] = []
    with AutoWatch(WatchOptions()) as auto:
        for _ in range(5):
            weight = torch.zeros(3, requires_grad=True)
            dropped.append(weakref.ref(weight))
            optimizer = torch.optim.SGD([weight], lr=0.1)
            for _ in range(2):
                (weight - 1).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            del weight, optimizer
        gc.collect()
        assert not any(ref() is not None for ref in dropped)
    assert auto.coverage.watched().steps == 2


def test_what_was_found_in_a_dropped_model_is_kept(capfd: Any) -> None:
    with AutoWatch(WatchOptions.of(on_nonfinite="warn")) as auto:
        for width in (4, 5, 6):
            model = build(width)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            x = torch.randn(3, 4)
            if width == 5:
                x[0, 0] = torch.inf
            model(x).square().mean().backward()
            optimizer.step()
            del model, optimizer
            gc.collect()
        assert len(auto.scopes) == 0
    (finding,) = auto.coverage.findings
    assert finding.culprit is not None
    assert auto.coverage.watched().findings == [finding.headline()]


def test_watch_lives_though_its_scope_is_not_kept() -> None:
    model = build()
    numscope.watch(model)
    gc.collect()
    with torch.no_grad():
        model[0].weight[0, 0] = torch.nan
    with pytest.raises(numscope.NonFiniteError):
        train(model)


def test_copies_and_files_of_a_watched_model_have_no_watch(tmp_path: Path) -> None:
    model = build()
    scope = numscope.watch(model)
    other = copy.deepcopy(model)
    assert all(torch.equal(a, b) for a, b in zip(other.state_dict().values(), model.state_dict().values(), strict=True))
    model.state_dict()
    ref = weakref.ref(scope)
    del model, scope
    gc.collect()
    assert ref() is None, "the copy does not keep it"
    other.state_dict()


def saved(model: nn.Module) -> bytes:
    file = io.BytesIO()
    torch.save(model, file)
    return file.getvalue()


def test_between_scheduled_steps_a_watched_model_s_file_is_the_bare_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = build()
    train(model)
    model.zero_grad()
    bare = saved(model)
    with numscope.watch(model, config=STATISTICS, on_nonfinite=None) as scope:
        scope.step()  # the next step collects nothing
        assert saved(model) == saved(copy.deepcopy(model)) == bare
        again = numscope.watch(model, config=STATISTICS, on_nonfinite=None)
        handle = model.register_state_dict_pre_hook(lambda *_: None)  # somebody else's, while ours is there
        again.close()
    handle.remove()
    assert saved(model) == bare


def test_judging_is_not_taken_for_the_script_s_own_operations(capfd: Any) -> None:
    """From a step's 9th stretch on functions are watched, also those that a read of bad rows calls."""
    model = build().eval()
    with AutoWatch(WatchOptions()) as auto:
        for _ in range(MANY):
            model(torch.randn(3, 4))
            with torch.no_grad():
                model(torch.randn(3, 4)).square().mean()
    assert "aten.index" not in capfd.readouterr().err
    assert not auto.coverage.findings


def test_watch_that_the_collector_ends_while_modes_are_away_leaves_none() -> None:
    from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack

    model = build()
    numscope.watch(model)
    loss = model(torch.randn(3, 4)).square().mean()  # watched operation by operation from here on
    assert len(_get_current_dispatch_mode_stack()) == 1
    del loss
    scope = open_scopes.live()[0]
    scope.settle()  # nothing can have a backward any more, so that the model may go
    del scope
    with _disable_current_modes():
        del model
        gc.collect()
        assert not open_scopes.live()
    other = build()
    with numscope.watch(other):
        train(other)
    assert _get_current_dispatch_mode_stack() == []
