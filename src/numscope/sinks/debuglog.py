"""The debug log: layers' names, configurations and decisions, one file per rank."""

from __future__ import annotations

import logging
import os
import time
from typing import TextIO

from numscope.records.alert import Alert
from numscope.records.errors import UsageError
from numscope.records.faults import ours
from numscope.records.files import may_come_back
from numscope.records.words import escape

FILE = "debug_logs/globalrank-{rank}.log"

log = logging.getLogger("numscope")


class DebugLog:
    """``<log_dir>/debug_logs/globalrank-<r>.log``: one line per message, with time and level.

    Messages also go to the logger ``numscope`` of Python's logging, whose warnings appear on stderr unless the program configures it
    otherwise. A job that restarts appends.

    Args:
        log_dir: None: no file.
        file: its path in ``log_dir``.

    Raises: UsageError if the file can't be created. A later error is logged once, and lines are tried all the same.
    *Cost:* one write per line: it is for decisions, not for steps.
    """

    def __init__(self, log_dir: str | os.PathLike[str] | None, rank: int, file: str = FILE) -> None:
        self._file: TextIO | None = None
        self._lost = False  # some line could not be written
        if log_dir is not None:
            try:
                self._file = open_to_append(os.path.join(log_dir, file.format(rank=rank)), log_dir)
            except UsageError as error:
                if not may_come_back(error, was_there=False):
                    raise
                log.error("numscope writes no debug log: %s", error)

    def say(self, text: str, level: int = logging.INFO) -> None:
        """Write one line; further lines of a longer text are indented below it."""
        log.log(level, "%s", text)
        self._write(text, level)

    def alert(self, alert: Alert) -> None:
        """Write an alert, which the terminal has already."""
        self._write(f"alert: {escape(alert.line())}", logging.WARNING)

    def _write(self, text: str, level: int) -> None:
        if self._file is None:
            return
        now = time.time()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
        body = "\n    ".join(map(escape, text.rstrip("\n").expandtabs(4).split("\n")))
        try:
            self._file.write(f"{stamp},{int(now % 1 * 1000):03d} - {logging.getLevelName(level)} - {body}\n")
        except ours(OSError) as error:  # a full disk may have room again
            if not self._lost:
                log.error("numscope can't write its debug log: %s", error)
            self._lost = True

    def close(self) -> None:
        """Close the file; later messages go only to Python's logging."""
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except ours(OSError) as error:
                log.error("numscope could not end its debug log: %s: %s", type(error).__name__, error)


def open_to_append(path: str, log_dir: str | os.PathLike[str], buffering: int = 1) -> TextIO:
    """Open a log file below ``log_dir``, creating missing folders; ``buffering`` is that of ``open``: 1 for lines.

    Raises: UsageError that names ``log_dir``.
    """
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "a", buffering, encoding="utf-8", errors="backslashreplace", newline="\n")
    except ours(OSError) as error:
        raise UsageError(f"log_dir: got {os.fspath(log_dir)!r}, expected a folder that can be written to: {error}.") from None
