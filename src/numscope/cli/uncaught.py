"""Prints the exception that ended a script as ``python`` would, without our frames."""

from __future__ import annotations

import linecache
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FrameType, TracebackType

from numscope.records.errors import AlertError
from numscope.records.places import is_installed
from numscope.records.words import escape
from numscope.report.stderr import say

_CLI = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PACKAGE = os.path.dirname(os.path.dirname(_CLI)) + os.sep
_STDLIB = os.path.dirname(os.__file__) + os.sep


def exit_status(error: BaseException) -> int | None:
    """The status that the error asks the process to end with; None if it is an ordinary one."""
    status = getattr(type(error), "exit_status", None)
    return status if isinstance(status, int) else None


def print_uncaught(error: BaseException) -> None:
    """Gives the error to ``sys.excepthook``, the script's own if it set one, as the interpreter does.

    Raises:
        SystemExit: if the hook asks for it.
    """
    hide_our_frames(error)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(type(error), error, error.__traceback__)
        return
    except SystemExit:
        raise
    except BaseException as fault:
        broken = fault
    broken.__context__ = None  # it is the original exception, printed below
    hide_our_frames(broken)
    print("Error in sys.excepthook:", file=sys.stderr)
    sys.__excepthook__(type(broken), broken, broken.__traceback__)
    print("\nOriginal exception was:", file=sys.stderr)
    sys.__excepthook__(type(error), error, error.__traceback__)


def keep_own_frames(error: BaseException) -> None:
    """Leaves nothing but the user's frames in the traceback of an error that numscope has raised."""
    _keep(error, [entry for entry in _entries(error.__traceback__) if not _is_machinery(entry.tb_frame.f_code)])


def print_stop(error: BaseException) -> None:
    """Prints in one line where the script stood when numscope stopped it; the report has been printed before.

    A traceback would show the line that called the optimizer or ``backward``, above a dozen lines of torch, and be
    taken for the cause.
    """
    say(f"numscope: {_reason(error)}{_place(reversed(list(traceback.walk_tb(error.__traceback__))))}")


def stop_in_words(error: BaseException) -> str:
    """The line of ``print_stop`` for an error that is about to be raised."""
    return f"numscope: {_reason(error)}{_place(traceback.walk_stack(sys._getframe(1)))}"


def _reason(error: BaseException) -> str:
    if isinstance(error, AlertError):  # another rank may have printed it
        return f"{escape(error.alert.rule)} at step {error.alert.step}, rank {error.alert.rank}: "
    if hasattr(error, "finding") or exit_status(error) is None:
        return ""
    text = str(error)
    whole = "\n" in text or text.endswith((".", "?"))  # sentences of their own
    return f"{text}\nnumscope: " if whole else f"{text}: "


def _place(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Where the script stood, of frames from the innermost on."""
    where = _line(frames)
    return f"stopped at {where}" if where else "stopped at the end of the script"


def _line(frames: Iterable[tuple[FrameType, int]]) -> str:
    """The first line of the user's own, of frames from the innermost on; "" without one."""
    frame, line = next((one for one in frames if not _is_machinery(one[0].f_code)), (None, 0))
    if frame is None:
        return ""
    code = frame.f_code
    at = linecache.getline(code.co_filename, line, frame.f_globals).strip()
    return f"{code.co_filename}:{line} in {code.co_name}{': ' if at else ''}{at}"


def failed(error: BaseException) -> str:
    """An error of code that the user has named, in one line: what it is, and the user's own line that raised it."""
    where = _line(reversed(list(traceback.walk_tb(error.__traceback__))))
    if isinstance(error, SyntaxError) and error.filename:
        where, text = f"{error.filename}:{error.lineno}: {(error.text or '').strip()}", error.msg
    else:
        text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if text else ''}{text}{', at ' if where else ''}{where}"


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(_PACKAGE)


def _is_machinery(code: CodeType) -> bool:
    """Whether a line belongs to numscope, to an installed library or to the interpreter, rather than to the user."""
    name = code.co_filename
    return _is_ours(code) or is_installed(name) or name.startswith(("<frozen ", _STDLIB))


def hide_our_frames(error: BaseException) -> None:
    """Takes numscope's frames out of the tracebacks of an error and of all that hangs on it."""
    for one in _family(error):
        entries = list(_entries(one.__traceback__))
        while entries and entries[0].tb_frame.f_code.co_filename.startswith(_CLI):  # the launcher, above the script
            del entries[0]
        if entries and not _is_ours(entries[-1].tb_frame.f_code):  # hooks between the script and torch; a fault of ours is shown
            entries = [entry for entry in entries if not _is_ours(entry.tb_frame.f_code)]
        _keep(one, entries)


def _keep(error: BaseException, entries: Sequence[TracebackType]) -> None:
    kept: TracebackType | None = None
    for entry in reversed(entries):
        kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    error.__traceback__ = kept


def _entries(tb: TracebackType | None) -> Iterator[TracebackType]:
    while tb is not None:
        yield tb
        tb = tb.tb_next


def _family(error: BaseException) -> Iterator[BaseException]:
    """The error, its causes and contexts, and the members of groups, each once."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        members = getattr(one, "exceptions", ())  # ExceptionGroup, Python 3.11
        waiting += [one.__cause__, one.__context__, *(m for m in members if isinstance(m, BaseException))]
