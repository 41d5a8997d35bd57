"""Makes the page of a run that has just ended with a finding, if that is quick."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

from numscope.records.errors import NumscopeError
from numscope.records.files import write_atomically
from numscope.records.words import escape
from numscope.report.stderr import say

NAME = "report.html"
MAX_BYTES = 24 << 20  # size of the statistics: some million rows, which take two or three seconds
MOST_S = 30  # the run's process does not wait so long


def main(folder: str) -> None:
    """Write the page of a run's folder into it and print its link. An error is printed in one sentence; nothing is raised.

    The process ends where it takes longer than ``MOST_S``, on systems with alarms.
    """
    alarm = getattr(signal, "alarm", lambda seconds: None)
    alarm(MOST_S)
    try:
        say(f"numscope: to look at it:{_write(folder)}")
    except Exception as error:  # whatever it is: the run is over
        name = "" if isinstance(error, NumscopeError) else f"{type(error).__name__}: "
        say(f"numscope: no page was made of {escape(folder)}: {name}{escape(str(error))}")
    finally:
        alarm(0)


def _write(folder: str) -> str:
    """The page's link, or the command that makes it."""
    from numscope.page.document import render
    from numscope.page.payload import payload_of
    from numscope.page.recorded import read_recorded

    recorded = read_recorded(folder)
    if recorded.run is not None and recorded.run.num_bytes > MAX_BYTES:
        return f"\n  numscope report {escape(shlex.quote(folder))}"
    path = os.path.join(recorded.path, NAME)
    if not _is_ours(path):
        return f" {NAME} there is not numscope's, and is kept; another file:\n  numscope report {escape(shlex.quote(folder))} -o FILE"
    write_atomically(path, render([payload_of(recorded)], f"numscope: {os.path.basename(recorded.path)}"))
    return f" {Path(path).as_uri()}"


def _is_ours(path: str) -> bool:
    """Whether a page may be put there: nobody has asked for one, and a ``log_dir`` may be a folder with other things."""
    try:
        with open(path, "rb") as file:
            return b"<title>numscope: " in file.read(4096)
    except FileNotFoundError:
        return True
