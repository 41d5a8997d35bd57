"""Whose an exception is: the tool's own, which its guards keep from the script, or the script's, which always reaches the script.

Python may run the script's code between any two lines of ours: a signal's handler, a trace function. And another thread may have an
exception raised in this one (``PyThreadState_SetAsyncExc``). What comes of these is no error of ours, wherever it strikes.
"""

from __future__ import annotations

import contextlib
import dis
import logging
import sys
import traceback
from types import FrameType, FunctionType, TracebackType
from typing import Any, TypeVar, overload

from numscope.records import bare_log

Kind = TypeVar("Kind", bound=BaseException)
bare_log.install()  # here, since all that warns imports this

_RAISES = {dis.opmap[name] for name in ("RAISE_VARARGS", "RERAISE")}
_WITHOUT_WORDS = (MemoryError, StopIteration, StopAsyncIteration)  # Python itself raises these without arguments
_MOST_FRAMES = 50  # our own frames in a row; endless recursion has hundreds
_VARARGS, _VARKEYWORDS = 0x04, 0x08  # flags of code


@overload
def ours(*, but: tuple[type[Exception], ...] = ()) -> tuple[type[Exception], ...]: ...
@overload
def ours(kind: type[Kind], /, *kinds: type[Kind]) -> tuple[type[Kind], ...]: ...
def ours(*kinds: Any, but: tuple[type[Exception], ...] = ()) -> Any:
    """The exceptions that our guards catch, for ``except ours():``. Evaluated when an exception arrives: none if it is the script's.

    Args:
        kinds: these only; without them, every Exception.
        but: exceptions that are meant for the script.
    """
    wanted = kinds or (Exception,)
    error = sys.exc_info()[1]
    return wanted if not isinstance(error, wanted) or (not isinstance(error, but) and is_ours(error)) else ()


class suppress(contextlib.suppress):
    """``contextlib.suppress``, but for what is the script's."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        return bool(super().__exit__(kind, error, trace)) and error is not None and is_ours(error)


def _call_handlers(record: logging.LogRecord) -> None:
    """A script's own filters and handlers may be made for its own records alone, and raise at ours: that is no error of its run."""
    try:
        logging.Logger.callHandlers(_log, record)
    except ours():
        with suppress(OSError, ValueError):
            print(bare_log.worded(record.getMessage()), file=sys.stderr)


_log = logging.getLogger("numscope")
_log.callHandlers = _call_handlers  # type: ignore[method-assign]


def told(error: BaseException) -> str:
    """``ValueError: its text`` for a script's exception, whose own ``__str__`` may raise."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def traced(error: BaseException) -> str:
    """``told``, and the traceback in the lines after it."""
    return f"{told(error)}\n{''.join(traceback.format_exception(error))}"


def is_ours(error: BaseException) -> bool:
    """Whether an exception that has come up through our code was made by what our code did. *Cost:* about 1 µs a frame of its traceback.

    Python hands the frame that it interrupts to what it runs there. So where a frame of the traceback was called with an earlier one, it is
    a signal's handler or a trace function. An exception from another thread has no frame of its own: no ``raise`` has raised it, and it is
    what its class makes without arguments, while Python's own errors and torch's have a text.
    """
    frames: list[FrameType] = []
    trace = last = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frames and not str(frame.f_globals.get("__name__")).startswith("numscope.") and _was_handed(frame, frames):
            return False
        frames.append(frame)
        last, trace = trace, trace.tb_next
    return last is None or not _was_injected(error, last)


def had_no_room(error: BaseException) -> bool:
    """Whether an exception came of the script's own depth of calls: at the end of Python's stack, anything of ours may be the last straw.

    What has too many frames of ours is no such thing.
    """
    num, trace = 0, error.__traceback__
    while trace is not None:
        num, trace = num + 1, trace.tb_next
    is_depth = isinstance(error, RecursionError) or RecursionError.__name__ in str(error)  # ctypes wraps it into its own error
    return is_depth and num < _MOST_FRAMES


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that there is no memory left, on the host or on a device."""
    text = str(error) if type(error) is RuntimeError else ""
    return (
        isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "out of memory" in text or "can't allocate" in text
    )


def _was_handed(frame: FrameType, frames: list[FrameType]) -> bool:
    """Whether one of these frames is an argument of the call that a frame is."""
    code = frame.f_code
    num = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & _VARARGS) + bool(code.co_flags & _VARKEYWORDS)
    given = frame.f_locals
    for name in code.co_varnames[:num]:
        value = given.get(name)
        if any(one is known for one in (value if type(value) is tuple else (value,)) for known in frames):
            return True
    return False


def _was_injected(error: BaseException, last: TracebackType) -> bool:
    """Whether an exception came from another thread; ``last``: where it struck."""
    if last.tb_frame.f_code.co_code[last.tb_lasti] in _RAISES or isinstance(error, _WITHOUT_WORDS):
        return False
    if not error.args:
        return True
    kind: Any = type(error)
    if not isinstance(kind.__init__, FunctionType) and not isinstance(kind.__new__, FunctionType):
        return False
    try:
        made = kind()
    except Exception:
        return False
    return len(made.args) == len(error.args) and all(
        type(a) is type(b) is str and a == b for a, b in zip(made.args, error.args, strict=True)
    )
