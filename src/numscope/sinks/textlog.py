"""The statistics log: one line per statistic, one file per rank."""

from __future__ import annotations

import os
from collections.abc import Sequence

from numscope.records.observation import Histogram, Observation, Value
from numscope.records.words import escape
from numscope.sinks.debuglog import open_to_append
from numscope.sinks.protocol import Sink

FILE = "debug_statistics_logs/globalrank-{rank}.log"
FIRST_EXPONENT = -127  # of a histogram's first bin
BUFFER_BYTES = 1 << 20


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

    def __init__(self, log_dir: str | os.PathLike[str], rank: int, file: str = FILE) -> None:
        self.path = os.path.join(log_dir, file.format(rank=rank))
        self._file = open_to_append(self.path, log_dir, BUFFER_BYTES)

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
        self._file.write("".join(lines))
        self._file.flush()  # also so that a process forked between steps inherits no lines

    def close(self) -> None:
        self._file.close()


def text_of(value: Value | Histogram) -> str:
    """A value as shown in logs."""
    if isinstance(value, float):
        return f"{value:.9g}"
    if value is None or isinstance(value, int):
        return str(value)
    return ",".join(f"{exponent}:{count:.9g}" for exponent, count in enumerate(value, FIRST_EXPONENT) if count)
