"""The page of a run that had a finding, made by a process of its own as the run ends: nothing that fails there changes that end."""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

from numscope.records.faults import ours, suppress, told
from numscope.records.words import escape
from numscope.report.ending import at_end
from numscope.report.stderr import say

WAIT_S = 10.0  # for which a run's end waits; a page takes about a second, and larger folders get none by themselves

_SOURCES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Due(NamedTuple):
    """A page to be made: of a run's folder, for the findings of one of its attempts."""

    folder: str
    attempt: int


_due: tuple[Due, int] | None = None  # the last one, and the process that owes it
_first: list[Callable[[], None]] = []

log = logging.getLogger("numscope")


def due(page: Due) -> None:
    """When this process ends by itself, have the page written and its link printed, once for all ranks of a folder: by the first that ends.

    A process that a signal ends has no time. In an interactive session, which may never end, the command is printed instead.
    """
    global _due
    if hasattr(sys, "ps1"):
        say(_how(page.folder))
        return
    if _due is None or _due[1] != os.getpid():
        at_end(_write)
    _due = page._replace(folder=os.path.abspath(page.folder)), os.getpid()


def tell(folder: str) -> None:
    """Print the command that makes a page of a run in another storage."""
    say(_how(folder))


def take() -> Due | None:
    """The page that this process owes; from now on it owes none."""
    global _due
    (page, owner), _due = _due or (None, 0), None
    return page if owner == os.getpid() else None


def first(work: Callable[[], None]) -> None:
    """Call ``work`` before a page is made, so that the folder is whole."""
    _first.append(work)


def _write() -> None:
    page = take()
    if page is None:
        return
    status: int | None = None
    try:
        for work in _first:
            work()
        if not _is_first(page):
            return
        if getattr(sys, "last_type", None) is not KeyboardInterrupt:  # else somebody is in a hurry
            status = _make(page.folder)
    except BaseException as error:  # also an impatient Ctrl-C; the run's status stands
        log.debug("no page of %s: %s", page.folder, told(error))
    if status != 0:
        say(_how(page.folder))


def _is_first(page: Due) -> bool:
    """Whether no other rank has come here before, on any machine: every file system can create a file once."""
    try:
        os.close(os.open(os.path.join(page.folder, f".report-{page.attempt}"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileExistsError:
        return False
    except ours(OSError):  # the process that makes the page reports it
        pass
    return True


def _make(folder: str) -> int:
    # In a session of its own: torchrun ends the group of a rank as soon as another one has ended.
    process = subprocess.Popen(python_of_ours("numscope.page.unasked", folder), stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait(WAIT_S)
    finally:
        with suppress(OSError):
            process.kill()


def _how(folder: str) -> str:
    return f"numscope: to look at it:\n  numscope report {escape(shlex.quote(folder))}"


def python_of_ours(module: str, *words: str) -> list[str]:
    """The command of a process that calls a module's ``main`` with these words.

    The script's folder is not on its path: a file there must not stand in for a library's.
    """
    path = "import sys\nsys.path = [one for one in sys.path if one] + [sys.argv.pop()]\n"
    return [sys.executable, "-c", f"{path}from {module} import main\nmain(*sys.argv[1:])\n", *words, _SOURCES]
