"""Whose an exception is, told from its traceback."""

from __future__ import annotations

import ctypes
import functools
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, ClassVar

import pytest
import torch

from numscope.records.faults import had_no_room, is_ours, ours, suppress


class Late(Exception):
    """A script's own."""


class LateWithText(Exception):
    def __init__(self) -> None:
        super().__init__("it took too long")


class Handlers:
    calls: ClassVar[list[int]] = []

    def method(self, signum: int, frame: FrameType | None) -> None:
        raise TimeoutError("late")

    def __call__(self, *given: Any) -> None:
        self._raise()

    def _raise(self) -> None:
        raise ValueError("deeper")

    @staticmethod
    def with_name(name: str, signum: int, frame: FrameType | None) -> None:
        raise RuntimeError(name)


def in_fault(signum: int, frame: FrameType | None) -> None:
    {}["missing"]  # type: ignore[index]  # the handler's own mistake is the script's too


HANDLERS: dict[str, Any] = {
    "function": lambda signum, frame: (_ for _ in ()).throw(Late()),
    "method": Handlers().method,
    "callable object": Handlers(),
    "partial": functools.partial(Handlers.with_name, "late"),
    "own fault": in_fault,
}


@pytest.fixture(params=HANDLERS)
def handler(request: pytest.FixtureRequest) -> Iterator[None]:
    was = signal.signal(signal.SIGUSR1, HANDLERS[request.param])
    yield
    signal.signal(signal.SIGUSR1, was)


def loop() -> None:
    signal.raise_signal(signal.SIGUSR1)
    while True:
        sum(range(10))


def test_what_a_signals_handler_raises_is_the_scripts(handler: None) -> None:
    with pytest.raises(Exception) as raised:
        loop()
    assert not is_ours(raised.value)


def test_no_guard_catches_it(handler: None) -> None:
    def guarded() -> None:
        with suppress(Exception):
            try:
                loop()
            except ours(OSError, RuntimeError, ValueError, LookupError, Late):
                pass
            except ours():
                pass

    with pytest.raises(Exception):  # noqa: B017
        guarded()


def strike(kind: type[Exception], work: Callable[[], object]) -> Exception:
    """What reaches a thread that works, when another one has an exception raised in it."""
    reached: list[Exception] = []
    begun = threading.Event()

    def run() -> None:
        try:
            begun.set()
            end = time.monotonic() + 30
            while time.monotonic() < end:
                work()
        except Exception as error:
            reached.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    begun.wait()
    time.sleep(0.02)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(kind))
    thread.join()
    return reached[0]


@pytest.mark.parametrize("kind", [Late, LateWithText, TimeoutError, RuntimeError, ValueError, Exception])
@pytest.mark.parametrize("work", [lambda: None, lambda: [i for i in range(50)], lambda: torch.ones(2).sum(), lambda: len("x")])
def test_what_another_thread_has_raised_here_is_the_scripts(kind: type[Exception], work: Callable[[], object]) -> None:
    assert not is_ours(strike(kind, work))


def test_what_a_trace_function_raises_is_the_scripts() -> None:
    def traced() -> None:
        return None

    def trace(frame: FrameType, event: str, arg: object) -> None:
        if frame.f_code is traced.__code__:
            raise Late

    was = sys.gettrace()
    sys.settrace(trace)
    try:
        with pytest.raises(Late) as raised:
            traced()
    finally:
        sys.settrace(was)
    assert not is_ours(raised.value)


def raises() -> None:
    raise Late


def asserts() -> None:
    assert not sys.argv, sys.argv


class Odd:
    def __getattr__(self, name: str) -> Any:
        raise Late

    def __bool__(self) -> bool:
        raise LateWithText


OWN: list[Callable[[], object]] = [
    raises, asserts, lambda: 1 / 0, lambda: {}["a"], lambda: torch.ones(2) @ torch.ones(3), lambda: Odd().name, lambda: bool(Odd()),
    lambda: int("x"), lambda: open("/nowhere/at/all"), lambda: next(iter(())), lambda: bytearray(1 << 62), lambda: object().missing,  # type: ignore[attr-defined]
    lambda: torch.load("/nowhere/at/all"),
]  # fmt: skip


@pytest.mark.parametrize("fault", OWN)
def test_what_our_code_does_is_ours_also_where_it_calls_the_scripts(fault: Callable[[], object]) -> None:
    try:
        fault()
    except ours() as error:
        assert is_ours(error)
        return
    pytest.fail("it was not caught")


def test_an_error_in_a_handlers_shadow_is_ours() -> None:
    """The script handles its timeout, and calls us there."""
    was = signal.signal(signal.SIGUSR1, Handlers().method)
    try:
        loop()
    except TimeoutError:
        with suppress(ZeroDivisionError):
            1 / 0
    finally:
        signal.signal(signal.SIGUSR1, was)


def test_what_is_meant_for_the_script_goes_through() -> None:
    with pytest.raises(Late):
        try:
            raises()
        except ours(but=(Late,)):
            pass


def _sink(left: int) -> int:
    return left and _sink(left - 1)


def test_depth_of_the_script_s_own_calls_is_told_from_a_recursion_of_ours() -> None:
    def at_the_end(depth: int) -> bool:
        try:
            return at_the_end(depth + 1)
        except RecursionError:
            try:
                _sink(20)
            except RecursionError as error:
                return had_no_room(error)
            raise

    assert at_the_end(0)
    with pytest.raises(RecursionError) as caught:
        _sink(sys.getrecursionlimit())
    assert not had_no_room(caught.value)
    assert not had_no_room(ValueError("deep"))
    assert had_no_room(ctypes.ArgumentError("argument 2: RecursionError: maximum recursion depth exceeded"))
