"""The debug log: layers' names, configurations and decisions, a file a rank."""

from __future__ import annotations

import logging
import os
import time
from typing import TextIO

from numscope.records.errors import UsageError
from numscope.sinks.names import one_line

FILE = "debug_logs/globalrank-{rank}.log"

log = logging.getLogger("numscope")


class DebugLog:
    """``<log_dir>/debug_logs/globalrank-<r>.log``: a line each, with time and level.

    Whatever it is told also goes to the logger ``numscope`` of Python's logging, whose warnings appear on stderr unless
    the program says otherwise. A job that restarts appends.

    Args:
        log_dir: None: no file.
        file: its place in there.

    Raises: UsageError where the file can't be made. An error later closes the file, is told once, and harms nobody.
    *Cost:* one write a line: it is for decisions, not for steps.
    """

    def __init__(self, log_dir: str | os.PathLike[str] | None, rank: int, file: str = FILE) -> None:
        self._file: TextIO | None = None
        if log_dir is not None:
            self._file = open_to_append(os.path.join(log_dir, file.format(rank=rank)), log_dir)

    def say(self, text: str, level: int = logging.INFO) -> None:
        """Write one line; the further lines of a longer text are indented under it."""
        log.log(level, "%s", text)
        if self._file is None:
            return
        now = time.time()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
        body = "\n    ".join(map(one_line, text.rstrip("\n").expandtabs(4).split("\n")))
        try:
            self._file.write(f"{stamp},{int(now % 1 * 1000):03d} - {logging.getLevelName(level)} - {body}\n")
        except OSError as error:
            self.close()
            log.error("numscope stops its debug log: %s: %s", type(error).__name__, error)

    def close(self) -> None:
        """Let go of the file; what is told later goes to Python's logging only."""
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                log.error("numscope could not end its debug log: %s: %s", type(error).__name__, error)


def open_to_append(path: str, log_dir: str | os.PathLike[str], buffering: int = 1) -> TextIO:
    """A log file in a folder of its own under ``log_dir``, both made where missing; ``buffering`` is ``open``'s: 1 for lines.

    Raises: UsageError, which names ``log_dir``.
    """
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "a", buffering, encoding="utf-8", errors="backslashreplace", newline="\n")
    except OSError as error:
        raise UsageError(f"log_dir: got {os.fspath(log_dir)!r}, expected a folder that can be written to: {error}.") from None
