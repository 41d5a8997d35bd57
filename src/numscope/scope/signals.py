"""SIGTERM and SIGHUP: what is recorded is written, then they do what they do."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

PATIENCE_S = 5.0
"""To wait for files; what holds them up may be the very code that the signal interrupted."""

_NUMBERS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]

_write: Callable[[], None] | None = None  # everything that is held
_num_ending = 0  # watches that the main thread is ending, one within the other
_due = 0  # the signal that came meanwhile


def listen(write: Callable[[], None]) -> None:
    """Call ``write`` before one of the signals ends the process. A handler of the script's own stays, and one that comes later counts.

    As with every handler of Python's, the process ends when the operation that is running has returned to the interpreter.
    """
    global _write
    _write = write
    if threading.current_thread() is threading.main_thread():
        for number in _NUMBERS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _write_and_end)


def unlisten() -> None:
    """Put back what was there; where a watch is being ended, after it."""
    global _write
    _write = None
    if threading.current_thread() is threading.main_thread() and not _num_ending:
        for number in _NUMBERS:
            if signal.getsignal(number) is _write_and_end:
                signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """The block ends a watch: a signal that comes meanwhile ends the process after it, as the block writes what is recorded; a second one
    ends it at once."""
    global _num_ending
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _num_ending += 1
    try:
        yield
    finally:
        _num_ending -= 1
        if not _num_ending:
            if _write is None:
                unlisten()
            if _due:
                _end(_due)


def _write_and_end(number: int, frame: FrameType | None) -> None:
    global _due
    if signal.getsignal(number) is not _write_and_end:
        return  # a handler of the script's calls this one, which was there before: what happens is the script's to say
    if _num_ending:
        if _due:
            _end(number)
        _due = number
        return
    writer = threading.Thread(target=_write, daemon=True)
    writer.start()
    writer.join(PATIENCE_S)
    _end(number)


def _end(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
