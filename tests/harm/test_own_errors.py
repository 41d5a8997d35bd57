"""An error in the tool turns it off, is said once, and training goes on bitwise the same."""

from __future__ import annotations

import contextlib
import inspect
import logging
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.detect import buffers, detection, diagnosis, evidence, journal, judge, optimizer_states, parameters
from numscope.probe import module as module_probe
from numscope.probe import optimizers, step, walk
from numscope.replay import call as replay
from numscope.replay import derivatives, named, op, outside
from numscope.report import delivery
from numscope.summary import dispatch, ledger, parameter_rows
from tests.harm.training import Notes, Watch, assert_equal, assert_no_hooks, bare, noted


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 2


def training(watch: Watch, notes: Notes) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.2), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    with watch(model):
        for step in range(4):
            for _ in range(2):
                x = torch.randn(4, 4, requires_grad=True)
                loss = Scale.apply(model(x).pow(2)).mean()
                loss = loss + torch.autograd.grad(loss, x, create_graph=True)[0].square().sum()
                if step == 2:
                    loss = loss * torch.nan
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                model(torch.randn(4, 4))
            notes.state(model, optimizer)
    assert_no_hooks(model)


@cache
def expected() -> Notes:
    return noted(training, bare)


class Planted(Exception):
    pass


PLACES = [
    (ledger.Ledger, "_observe_any"), (ledger.Ledger, "_block_of"), (ledger.Ledger, "observe_many"), (ledger.Ledger, "rewrite_many"),
    (ledger.Ledger, "read"), (ledger.Ledger, "bad"), (ledger.Ledger, "reset"), (ledger.Ledger, "numbers"),
    (journal.Journal, "tap"), (journal.Journal, "add_gradient"), (journal.Journal, "add_handles"), (journal.Journal, "bad"),
    (journal.Journal, "reset"), (journal.Journal, "frames"),
    (parameter_rows.Weights, "observe"), (parameter_rows.Weights, "observe_many"),
    (dispatch, "observe"), (dispatch, "observe_many"),
    (walk, "leaves"), (walk, "tensors"), (walk, "visit"),
    (replay.Call, "capture"), (replay.Call, "keep"), (replay.RandomState, "capture"), (replay.BufferCopies, "capture"),
    (replay, "replay_call"),
    (judge.Judge, "before_step"), (judge.Judge, "after_step"), (judge.Judge, "alone"), (judge.Judge, "_read"), (diagnosis, "diagnose"),
    (judge, "escaped"), (judge, "contained"), (evidence.Evidence, "forget"),
    (module_probe.ModuleProbe, "_see"), (module_probe.ModuleProbe, "refresh"),
    (op.OpProbe, "_before"), (op.OpProbe, "_after"),
    (outside.Outside, "begin"), (outside.Outside, "pause"), (outside.Outside, "call_begins"), (outside.Outside, "_begin_step"),
    (derivatives.Derivatives, "begin"), (derivatives.Derivatives, "end"), (derivatives.Derivatives, "_node_begins"),
    (derivatives.Derivatives, "_node_ran"), (derivatives.Derivatives, "_put"), (op.OpProbe, "follow"), (outside.Outside, "after_gradients"),
    (derivatives.Derivatives, "_custom_begins"), (derivatives.Derivatives, "_custom_ran"),
    (outside.Outside, "begin_between"), (outside.Outside, "look_again"), (outside.Outside, "has_news"),
    (outside.Outside, "call_ends"), (named.Named, "add"), (outside.Outside, "states"), (outside.Outside, "before_backward"),
    (parameters.Parameters, "follow"), (parameters.Parameters, "see_weights"), (parameters.Parameters, "see_gradients"),
    (buffers.Buffers, "see"), (buffers.Buffers, "note"), (optimizer_states.OptimizerStates, "see"), (judge, "left_bad"),
    (detection.Detection, "enter"), (detection.Detection, "leave"), (detection.Detection, "_between_calls"),
    (detection.Detection, "before_backward"), (detection.Detection, "_own_loss"), (detection.Detection, "end"),
    (detection.Detection, "before_step"), (detection.Detection, "after_step"), (detection.Detection, "round"),
    (step.Step, "forward_begins"), (step.Step, "end"), (step.Step, "_over"), (step.Step, "before_backward"),
    (optimizers.Optimizers, "owns"), (optimizers.Optimizers, "search"), (optimizers.Optimizers, "are_all_in"),
    (delivery.Delivery, "finding"), (delivery.Delivery, "contained"), (delivery.Delivery, "close"),
]  # fmt: skip


# Called less often: an error after seven calls would be none.
SELDOM = {
    (journal.Journal, "frames"), (parameter_rows.Weights, "observe"), (walk, "leaves"), (replay, "replay_call"),
    (judge.Judge, "before_step"), (judge.Judge, "after_step"), (judge.Judge, "alone"), (diagnosis, "diagnose"), (judge, "contained"),
    (outside.Outside, "_begin_step"), (parameters.Parameters, "follow"), (parameters.Parameters, "see_weights"),
    (parameters.Parameters, "see_gradients"), (optimizer_states.OptimizerStates, "see"), (detection.Detection, "_between_calls"),
    (detection.Detection, "end"), (detection.Detection, "before_step"), (detection.Detection, "after_step"), (detection.Detection, "round"),
    (step.Step, "end"), (step.Step, "_over"), (optimizers.Optimizers, "owns"), (optimizers.Optimizers, "are_all_in"),
    (delivery.Delivery, "finding"), (delivery.Delivery, "contained"), (delivery.Delivery, "close"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [(*place, after) for after in (0, 7) for place in PLACES if not after or place not in SELDOM],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_error_in_the_tool_turns_it_off_and_training_goes_on(
    owner: Any, name: str, after: int, monkeypatch: Any, caplog: Any, capfd: Any, in_python: None
) -> None:
    original = inspect.getattr_static(owner, name)
    decorated = original
    if not isinstance(original, classmethod):
        original = getattr(original, "__wrapped__", original)  # inside ``guarded``, where an error of the method arises
    calls = 0
    planted = False

    def count() -> None:
        nonlocal calls, planted
        calls += 1
        if armed and calls > after:
            planted = True
            raise Planted("planted")

    if isinstance(original, classmethod):

        def broken(cls: Any, *args: Any, **kwargs: Any) -> Any:
            count()
            return original.__func__(cls, *args, **kwargs)

        replacement: Any = classmethod(broken)
    else:

        def replacement(*args: Any, **kwargs: Any) -> Any:
            count()
            return original(*args, **kwargs)

    armed = False
    if decorated is original:
        monkeypatch.setattr(owner, name, replacement)
    else:
        cell = next(cell for cell in decorated.__closure__ if cell.cell_contents is original)
        monkeypatch.setattr(cell, "cell_contents", replacement)
    caplog.set_level(logging.ERROR, "numscope")

    def watch(model: nn.Module) -> Any:
        nonlocal armed
        scope = numscope.watch(model, on_nonfinite="warn")
        armed = True
        return scope

    got = noted(training, watch)
    monkeypatch.undo()
    assert_equal(got, expected())
    said = [record for record in caplog.records if "numscope is off" in record.message or "could not write" in record.message]
    assert len(said) <= 1
    of_checks = [record for record in caplog.records if "is off after an error of its own" in record.message]  # one check alone is off
    if planted and "replay_call" not in name:
        assert "planted" in (said or of_checks)[0].message


def test_error_between_calls_leaves_the_tape_to_other_watches(capfd: Any) -> None:
    """The probe's error is handed on when the next call begins, which ends the watch in the middle of this."""

    def train(error: Exception | None) -> Any:
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        with numscope.watch(model, on_nonfinite="warn") as scope:
            for step in range(2):
                first = model(torch.ones(2, 4))
                mode = outside.current()._mode
                if mode is not None and error is not None:
                    mode.error = error
                loss = (model(torch.ones(2, 4)) + first).mean()
                if step == 1:
                    loss = (loss - loss.detach()).log()  # FAULT
                loss.backward()
                if step == 0:
                    optimizer.step()
                optimizer.zero_grad()
        return scope

    assert train(Planted("planted")).fault == "Planted: planted"
    found = train(None).findings
    assert [f.culprit and f.culprit.code.endswith("# FAULT") for f in found] == [True], capfd.readouterr().err


class Nest(nn.Module):
    """Calls itself as often as it is told, or for ever."""

    def __init__(self, depth: float) -> None:
        super().__init__()
        self.fc, self.depth = nn.Linear(4, 4), depth

    def forward(self, x: Tensor, level: int = 0) -> Tensor:
        x = self.fc(x).tanh()
        y: Tensor = x if level >= self.depth else self(x, level + 1)
        return y


def test_script_that_runs_out_of_stack_keeps_its_exception_and_its_watch(caplog: pytest.LogCaptureFixture) -> None:
    model = Nest(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with caplog.at_level(logging.WARNING, "numscope"), numscope.watch(model, on_nonfinite="warn") as scope:
        for step in range(4):
            model.depth = float("inf") if step == 1 else 3
            loss: Any = torch.zeros(())
            with pytest.raises(RecursionError) if step == 1 else contextlib.nullcontext():
                loss = model(torch.ones(2, 4)).mean() * (float("nan") if step == 3 else 1)
            if step != 1:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        assert not scope.fault and len(scope.findings) == 1 and "turned off" not in caplog.text
    assert_no_hooks(model)
