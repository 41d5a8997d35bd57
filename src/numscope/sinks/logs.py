"""The text files of a run, one of each per rank: the statistics log, and the debug log of layers' names, configurations and decisions."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from typing import TextIO

from numscope.records.alert import Alert
from numscope.records.errors import UsageError
from numscope.records.faults import ours, told
from numscope.records.files import may_come_back
from numscope.records.observation import Histogram, Observation, Value
from numscope.records.words import escape
from numscope.sinks.loggers import Sink

DEBUG_FILE = "debug_logs/globalrank-{rank}.log"
STATISTICS_FILE = "debug_statistics_logs/globalrank-{rank}.log"
FIRST_EXPONENT = -127  # a histogram's first bin
BUFFER_BYTES = 1 << 20

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

    def __init__(self, log_dir: str | os.PathLike[str] | None, rank: int, file: str = DEBUG_FILE) -> None:
        self._file: TextIO | None = None
        self._lost = False  # some line could not be written
        if log_dir is not None:
            try:
                self._file = _open_to_append(os.path.join(log_dir, file.format(rank=rank)), log_dir)
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
        if self._file is None or self._file.closed:  # the interpreter, as it ends, closes what nothing holds any more
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
                log.error("numscope could not end its debug log: %s", told(error))


class TextLog(Sink):
    """``<log_dir>/debug_statistics_logs/globalrank-<r>.log``: ``INFO - <layer>_<tensor>_<stat>  iteration=000100  value=…``.

    Values have nine significant digits (whole numbers all digits); undefined values are left out; a histogram is written as its
    non-empty bins, ``exponent:count``. A job that restarts appends.

    Args:
        file: its path in ``log_dir``.

    Raises: UsageError if the file can't be created.
    *Cost:* half a microsecond per line, and one system call per scheduled step, after which the operating system has the lines, even if
    the run is killed.
    """

    def __init__(self, log_dir: str | os.PathLike[str], rank: int, file: str = STATISTICS_FILE) -> None:
        self.path = os.path.join(log_dir, file.format(rank=rank))
        self._file = _open_to_append(self.path, log_dir, BUFFER_BYTES)

    def write(self, observations: Sequence[Observation]) -> None:
        lines = []
        for seen in observations:
            if not seen.mine:
                continue
            before, after = f"INFO - {escape(seen.name)}_", f" \t\t\t\t iteration={seen.step:06d} \t\t\t\t value="
            for label, value in seen.values.items():
                if type(value) is float:  # nearly all are
                    lines.append(f"{before}{label}{after}{value:.9g}\n")
                elif value is not None:
                    lines.append(f"{before}{label}{after}{text_of(value)}\n")
        if self._file.closed:  # as the interpreter ends
            return
        self._file.write("".join(lines))
        self._file.flush()  # also so that a process forked between steps inherits no lines

    def close(self) -> None:
        self._file.close()


def text_of(value: Value | Histogram) -> str:
    if isinstance(value, float):
        return f"{value:.9g}"
    if value is None or isinstance(value, int):
        return str(value)
    return ",".join(f"{exponent}:{count:.9g}" for exponent, count in enumerate(value, FIRST_EXPONENT) if count)


def _open_to_append(path: str, log_dir: str | os.PathLike[str], buffering: int = 1) -> TextIO:
    """Open a log file below ``log_dir``, creating missing folders. Raises: UsageError that names ``log_dir``."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "a", buffering, encoding="utf-8", errors="backslashreplace", newline="\n")
    except ours(OSError) as error:
        raise UsageError(f"log_dir: got {os.fspath(log_dir)!r}, expected a folder that can be written to: {error}.") from None
