"""The frame of checks: which steps they are asked at, what becomes of their errors, and what is left when they go."""

from __future__ import annotations

import gc
import logging
import sys
import weakref
from typing import Any, Literal

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad, clip_grad_norm_
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau, StepLR

import numscope
from numscope.alerts.checks import check
from numscope.alerts.checks.check import EVERY, FIRST, STRETCH, Check, Subject
from numscope.alerts.checks.checker import CHECKS, Checker
from numscope.config import options
from numscope.config.options import how_to_set
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.loop_calls import LoopCall
from numscope.records.alert import Alert
from numscope.replay import stack


class Thorough(Check):
    name = "thorough"

    def __init__(self, subject: Subject, speaks: bool = False) -> None:
        super().__init__(subject)
        self.steps: list[int] = []
        self.speaks = speaks
        made.append(self)

    def after_step(self, optimizer: Optimizer) -> None:
        self.steps.append(self.subject.step)
        if self.speaks:
            self.say("It was asked.", "", asks=True)


class Cheap(Thorough):
    name = "cheap"
    cheap = check.OCCASIONS


class Rhythmic(Thorough):
    name = "rhythmic"
    rhythm = True


class Failing(Check):
    name = "failing"
    cheap = check.OCCASIONS

    def before_step(self, optimizer: Optimizer) -> None:
        raise ValueError("my own fault")


class Occasions(Check):
    name = "occasions"

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.told: list[str] = []
        made.append(self)

    def enter(self, module: nn.Module, args: object, kwargs: object) -> None:
        self.told.append("enter")

    def leave(self, module: nn.Module, output: object) -> None:
        self.told.append("leave")

    def before_backward(self, roots: object) -> None:
        self.told.append("before backward")

    def before_step(self, optimizer: Optimizer) -> None:
        self.told.append("before step")

    def after_step(self, optimizer: Optimizer) -> None:
        self.told.append("after step")

    def called(self, call: LoopCall) -> None:
        self.told.append(call.kind)

    def end(self, closing: bool) -> None:
        self.told.append("end")

    def close(self) -> None:
        self.told.append("close")


made: list[Check] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    made.clear()


def use(monkeypatch: pytest.MonkeyPatch, *checks: type[Check]) -> None:
    monkeypatch.setattr("numscope.scope.model_watch.CHECKS", checks)


def train(model: nn.Module, steps: int, stepper: Optimizer | None = None) -> None:
    stepper = stepper or torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        stepper.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        stepper.step()


def test_thorough_checks_are_asked_at_the_first_steps_and_then_one_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Thorough, Cheap, Rhythmic)
    model = nn.Linear(3, 1)
    with numscope.watch(model):
        train(model, 2 * EVERY + 1)
    thorough, cheap, rhythmic = made
    assert isinstance(thorough, Thorough) and isinstance(cheap, Cheap) and isinstance(rhythmic, Rhythmic)
    assert thorough.steps == [*range(FIRST), EVERY, 2 * EVERY]
    assert cheap.steps == [*range(2 * EVERY + 1)]
    assert rhythmic.steps == [*range(STRETCH), *range(EVERY, EVERY + STRETCH), 2 * EVERY]


def test_error_in_a_check_switches_it_off_and_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    use(monkeypatch, Failing, Thorough)
    model = nn.Linear(3, 1)
    with caplog.at_level(logging.ERROR, "numscope"), numscope.watch(model) as scope:
        train(model, 3)
        assert not scope.fault
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert said[0].startswith("numscope: the check 'failing' is off after an error of its own: ValueError: my own fault\n")
    assert isinstance(made[0], Thorough)
    assert made[0].steps == [0, 1, 2]


def test_occasions_come_in_the_order_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Occasions)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = StepLR(optimizer, 1)
    with numscope.watch(model):
        model(torch.ones(2, 3)).sum().backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
    assert isinstance(made[0], Occasions)
    step = ["enter", "leave", "before backward", "clip", "before step", "after step", "end"]
    assert made[0].told == [*step, "scheduler", "close"]


def test_schedulers_made_of_schedulers_step_once(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Occasions)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model):
        parts: list[LRScheduler] = [StepLR(optimizer, 1), StepLR(optimizer, 2)]
        together = torch.optim.lr_scheduler.SequentialLR(optimizer, parts, [5])
        train(model, 1, optimizer)
        assert isinstance(made[0], Occasions)
        before = len(made[0].told)
        together.step()
        ReduceLROnPlateau(optimizer).step(1.0)
        assert made[0].told[before:] == ["scheduler", "scheduler"]


def test_functions_of_torch_are_as_they_were_when_the_watch_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = clip_grad_norm_.__closure__, clip_grad.clip_grad_value_.__closure__
    contents = [cell.cell_contents for closure in cells if closure is not None for cell in closure]
    assert contents
    were = LRScheduler.step, ReduceLROnPlateau.step, torch.amp.GradScaler.scale, torch.amp.GradScaler.unscale_
    use(monkeypatch, Occasions)
    scope = numscope.watch(nn.Linear(3, 1))
    assert LRScheduler.step is not were[0]
    assert [cell.cell_contents for closure in cells if closure is not None for cell in closure] != contents
    scope.close()
    assert (LRScheduler.step, ReduceLROnPlateau.step, torch.amp.GradScaler.scale, torch.amp.GradScaler.unscale_) == were
    assert [cell.cell_contents for closure in cells if closure is not None for cell in closure] == contents
    assert not optimizer_probe._undo


def test_nothing_listens_when_the_watch_has_gone() -> None:
    model = nn.Linear(3, 1)
    with numscope.watch(model):
        train(model, 2)
        assert len(optimizer_probe._listeners) > 1
    assert not len(optimizer_probe._listeners)
    assert not optimizer_probe._undo


def test_model_and_checks_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Occasions)
    model = nn.Linear(3, 1)
    numscope.watch(model)
    train(model, 1)
    check = weakref.ref(made[0])
    made.clear()
    del model
    gc.collect()
    assert check() is None


def test_names_of_checks_differ() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)


def test_check_is_switched_off_by_its_name_gets_its_arguments_and_rests_when_it_has_spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(3, 1)
    use(monkeypatch)
    with numscope.watch(model) as scope:
        assert scope._watch._checker is not None
        subject = scope._watch._checker._subject
        found: list[Alert] = []
        checker = Checker(subject, found.extend, (Thorough, Cheap), {"thorough": False, "cheap": {"speaks": True}})
        train(model, 3)
        checker.detach()
    (cheap,) = made
    assert isinstance(cheap, Cheap) and cheap.steps == [0]
    assert [(a.step, a.rule, a.asks) for a in found] == [(0, "cheap", True)]
    assert found[0].advice == 'If this is intended, switch it off: watch(alerts={"cheap": False}).'


def test_advice_under_numscope_run_names_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: tuple[Literal[False], dict[str, int]] = (False, {"finding": 2})
    assert [how_to_set("scale falls", one) for one in settings] == [
        'watch(alerts={"scale falls": False})',
        'watch(alerts={"scale falls": {"finding": 2}})',
    ]
    monkeypatch.setattr(options, "_served", True)
    assert [how_to_set("scale falls", one) for one in settings] == [
        '--alerts "scale falls: off"',
        '--alerts "scale falls: {finding: 2}"',
    ]


def test_the_line_at_work_is_found_without_resolving_what_called_it(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = []
    real = stack.resolve
    monkeypatch.setattr(stack, "resolve", lambda *pair: resolved.append(pair) or real(*pair))  # type: ignore[func-returns-value]
    of_a_package: dict[str, Any] = {}
    exec(compile("def call(it):\n    return it()\n", "/venv/lib/python3.11/site-packages/package/calls.py", "exec"), of_a_package)
    line = of_a_package["call"](check.current_line)  # HERE
    with open(__file__, encoding="utf-8") as file:
        here = next(number for number, text in enumerate(file, 1) if text.endswith("# HERE\n"))
    assert (line.file, line.number) == (__file__, here) and "current_line" in line.code
    assert len(resolved) == 1 < len(stack.capture(sys._getframe()).frames)
