"""The script's own exceptions strike in the middle of our code: they reach the script, are no error of ours, and training goes on."""

from __future__ import annotations

import ctypes
import gc
import logging
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn

import numscope
from numscope.detect.detection import Detection
from numscope.probe.calls import finalizing, guard
from numscope.replay import outside
from numscope.sinks.loggers import BaseLogger
from tests.effort import examples
from tests.harm.training import Notes, Watch, assert_nothing_left, bare, seed

pytestmark = pytest.mark.tried

NUM_STEPS = 4
STRUCK, BAD = 1, 3  # steps


class Late(TimeoutError):
    """A kind that guards for files would catch too."""


def late(signum: int, frame: FrameType | None) -> None:
    raise Late("the batch took too long")


class Quiet(BaseLogger):
    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        return None


STATISTICS = {"section": {"enabled": True, "layers": {"layer_name_regex_pattern": "."}, "statistics": {
    "enabled": True, "stats": ["max", "l2_norm"], "tensors": ["activation", "gradient", "weight", "wgrad"]}}}  # fmt: skip

WATCHES: dict[str, Watch] = {
    "modules": lambda model: numscope.watch(model, on_nonfinite="warn"),
    "sentinel": lambda model: numscope.watch(model, on_nonfinite="warn", level="sentinel"),
}

# Called by Python as trace functions of a frame: the exception comes up as its next line begins, and ends the tracing.
_raise_async = ctypes.PyDLL(None).PyThreadState_SetAsyncExc  # a function object of its own
_raise_async.argtypes = [ctypes.c_ulong, *[ctypes.py_object] * 4]
_raise_signal = getattr(ctypes.CDLL(None), "raise")
_raise_signal.argtypes = [ctypes.c_int, *[ctypes.py_object] * 3]
for _function in (_raise_async, _raise_signal):
    _function.restype = lambda result: None  # type: ignore[assignment]

PASSING_ON = ("numscope.records.faults", "numscope.probe.patching", "numscope.probe.loop_calls")

KINDS: dict[str, Callable[[], Any]] = {
    "thread": lambda: partial(_raise_async, threading.get_ident(), Late),
    "signal": lambda: partial(_raise_signal, int(signal.SIGUSR1)),
}


class Striker:
    """Strikes at one of the lines of ours that run while it is armed."""

    def __init__(self, at: int, how: Any) -> None:
        self.num, self.at, self.how = 0, at, how
        self.where = ""

    def __enter__(self) -> None:
        sys.settrace(self._call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, arg: object) -> Any:
        if self.where or not _is_ours(frame) or frame.f_code is guard.__code__:
            return None  # a tracer's own exception, at the first line inside of a ``with``, does not end the context; a signal's does
        return self._line(frame, event, arg)

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        self.num += event in ("line", "call")
        if self.num != self.at:
            return self._line
        self.where = f"{frame.f_globals['__name__']}:{frame.f_lineno}"
        return self.how


def _is_ours(frame: FrameType | None) -> bool:
    """Whether it runs code of ours, or what that calls but for the script's and torch's own calls that we pass on."""
    for _ in range(4):
        name = "" if frame is None else str(frame.f_globals.get("__name__"))
        if name.startswith("numscope.") or frame is None:
            return name.startswith("numscope.") and name not in (
                "numscope.records.faults",
                "numscope.probe.patching",
                "numscope.probe.loop_calls",
            )
        if name not in ("torch.autograd.grad_mode", "torch.utils._python_dispatch", "torch.utils._contextlib", "contextlib", "weakref"):
            return False
        frame = frame.f_back
    return False


def training(watch: Watch, striker: Striker | None, notes: Notes, bad: bool) -> tuple[Any, list[BaseException]]:
    """A training that begins anew from a checkpoint after a step that was struck."""
    seed()
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    data: list[Tensor] = [torch.randn(8, 4) for _ in range(NUM_STEPS)]
    reached: list[BaseException] = []
    with watch(model) as scope:
        for step, batch in enumerate(data):
            try:
                if step == STRUCK and striker is not None:
                    with striker:
                        one_step(model, optimizer, batch, 1.0)
                else:
                    one_step(model, optimizer, batch, torch.nan if bad and step == BAD else 1.0)
            except Late as error:
                reached.append(error)
                if step > STRUCK:  # it struck a finalizer as the step before went, and reached the script at the first call after that
                    one_step(model, optimizer, batch, torch.nan if bad and step == BAD else 1.0)
            if step == STRUCK:  # struck or not, from here on all runs are to be the same
                torch.manual_seed(1)
                with torch.no_grad():
                    for t in (*model.parameters(), *model.buffers()):
                        t.fill_(1)
                optimizer.state.clear()
            else:
                notes.state(model, optimizer)
        optimizer.zero_grad()
    notes.add("output", model.eval()(data[0]))
    return scope, reached


def one_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Tensor, factor: float) -> None:
    optimizer.zero_grad()
    loss = model(batch).pow(2).mean() * factor
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    was = signal.signal(signal.SIGUSR1, late)
    yield
    signal.signal(signal.SIGUSR1, was)
    gc.collect()
    outside.current().take_off()
    assert torch._C._is_torch_function_enabled() and torch.is_grad_enabled() and not torch._C._len_torch_dispatch_stack()
    assert torch._dynamo.config.skip_nnmodule_hook_guards, "torch's own setting"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", WATCHES)
def test_it_reaches_the_script_from_wherever_it_strikes(level: str, kind: str, caplog: Any, capfd: Any) -> None:
    caplog.set_level(logging.WARNING, "numscope")
    expected = Notes()
    training(bare, None, expected, bad=False)
    counted = Striker(-1, None)
    training(WATCHES[level], counted, Notes(), bad=False)
    assert counted.num > 1000
    lost: list[str] = []
    unraisable, sys.unraisablehook = sys.unraisablehook, lambda args: lost.append(str(args.object))
    try:
        for number in range(examples(15)):
            striker = Striker(1 + (number * 7919 + 3 * len(kind) * len(level)) % counted.num, KINDS[kind]())
            notes = Notes()
            scope, reached = training(WATCHES[level], striker, notes, bad=False)
            assert [type(error) for error in reached] == [Late] or lost, (striker.where, reached)
            assert not scope.fault and not scope.findings, (striker.where, scope.fault, scope.findings)
            assert notes.values == expected.values, striker.where
            assert_nothing_left()
    finally:
        sys.unraisablehook = unraisable
    assert not [record for record in caplog.records if "numscope is off" in record.message or "off after an error" in record.message]


def test_the_watch_goes_on_and_finds_what_comes_later(capfd: Any) -> None:
    counted = Striker(-1, None)
    training(WATCHES["modules"], counted, Notes(), bad=False)
    for number in range(examples(8)):
        striker = Striker(1 + number * 6007 % counted.num, KINDS["signal"]())
        scope, _ = training(WATCHES["modules"], striker, Notes(), bad=True)
        (finding,) = scope.findings
        assert finding.culprit is not None and finding.culprit.code == "loss = model(batch).pow(2).mean() * factor", striker.where


def test_a_timer_at_any_time_strikes_the_script_and_nothing_else(caplog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As users do it: an alarm for each batch."""
    gc.collect()  # what is left of other tests has finalizers
    struck: list[str] = []
    lost: list[str] = []  # in finalizers and callbacks of the garbage collector, torch's or hypothesis's, Python discards an exception
    monkeypatch.setattr(sys, "unraisablehook", lambda args: lost.append(str(args.object)))

    def alarm(signum: int, frame: FrameType | None) -> None:
        struck[:] = [line.strip() for line in traceback.format_stack(frame, limit=8)]
        late(signum, frame)

    callbacks = gc.callbacks[:]  # hypothesis's would take what strikes in it, in the more collections the more
    gc.callbacks[:] = [one for one in callbacks if not one.__module__.startswith("hypothesis")]
    was = signal.signal(signal.SIGALRM, alarm)
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    due = reached = 0
    one_step(model, optimizer, torch.ones(2, 4), 1.0)  # torch catches what strikes while it imports a profiler
    try:
        with numscope.watch(model) as scope:
            for step in range(60):
                due += 1
                end = time.monotonic() + 20
                try:
                    signal.setitimer(signal.ITIMER_REAL, 2e-4 * (1 + step % 10))
                    while time.monotonic() < end:
                        one_step(model, optimizer, torch.ones(2, 4), 1.0)
                    assert lost, struck
                except Late:
                    reached += 1
                    torch.set_grad_enabled(True)  # torch's own optimizers leave it off when they are struck as they begin or end
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            assert not scope.closed and not scope.findings and not scope.fault
    finally:
        signal.signal(signal.SIGALRM, was)
        gc.callbacks[:] = callbacks
    assert reached + len(lost) >= due
    assert not [name for name in lost if "numscope" in name] and len(lost) < 5
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("kind", KINDS)
def test_it_reaches_the_script_from_statistics(kind: str, caplog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def watch(model: nn.Module) -> Any:
        return numscope.watch(model, config=STATISTICS, loggers=[Quiet()])

    expected = Notes()
    training(bare, None, expected, bad=False)
    counted = Striker(-1, None)
    training(watch, counted, Notes(), bad=False)
    lost: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: lost.append(str(args.object)))
    for number in range(examples(12)):
        striker, notes = Striker(1 + number * 7919 % counted.num, KINDS[kind]()), Notes()
        scope, reached = training(watch, striker, notes, bad=False)
        assert [type(error) for error in reached] == [Late] or lost, striker.where
        assert not scope.fault and not scope._watch.inspector.fault and not scope.findings, (
            striker.where,
            scope.fault,
            scope._watch.inspector.fault,
        )
        assert notes.values == expected.values, striker.where
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_what_strikes_where_python_drops_exceptions_reaches_the_script_at_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a graph goes, numscope notes it in a finalizer: a loop that waits for its timeout must end all the same."""
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: lost.append(args.object))
    model = nn.Linear(4, 1)
    num = [0]

    def strike(detection: Any) -> bool:
        num[0] += 1
        if num[0] == 2:
            signal.raise_signal(signal.SIGUSR1)
        return False

    original = Detection._graph_gone
    monkeypatch.setattr(Detection, "_graph_gone", lambda self, ref: (strike(self), original(self, ref))[1])
    with numscope.watch(model) as scope:
        with pytest.raises(Late):
            for _ in range(5):
                model(torch.ones(2, 4)).sum()
        assert (num[0], lost, scope.fault) == (2, [], "")
        model(torch.ones(2, 4)).sum().backward()


def test_what_strikes_as_a_finalizer_begins_is_kept() -> None:
    """A signal that came in C code is handled first of all where the next Python function begins: here that is the finalizer's."""
    model, called = nn.Linear(4, 1), []
    send = getattr(ctypes.CDLL(None), "raise")  # no Python function is called on the way
    send.argtypes, send.restype = [ctypes.c_int, ctypes.py_object], None
    dying = nn.Identity()
    references = [
        weakref.ref(dying, finalizing(lambda ref: called.append(ref))),
        weakref.ref(dying, partial(send, int(signal.SIGUSR1))),  # the later one is called first
    ]
    with numscope.watch(model):
        del dying
        assert not called and all(reference() is None for reference in references)
        with pytest.raises(Late):
            model(torch.ones(2, 4))
        model(torch.ones(2, 4)).sum().backward()
