"""The statistics log: one line a statistic, a file a rank."""

from __future__ import annotations

import os
from collections.abc import Sequence

from numscope.records.observation import Histogram, Observation, Value
from numscope.sinks.debuglog import open_to_append
from numscope.sinks.names import one_line

FILE = "debug_statistics_logs/globalrank-{rank}.log"
FIRST_EXPONENT = -127  # of a histogram's first bin
BUFFER_BYTES = 1 << 20


class TextLog:
    """``<log_dir>/debug_statistics_logs/globalrank-<r>.log``: ``INFO - <layer>_<tensor>_<stat>  iteration=000100  value=…``.

    Values have nine significant digits (whole numbers all of theirs); one that does not exist is left out; a histogram is its
    non-empty bins, ``exponent:count``. A job that restarts appends.

    Args:
        file: its place in ``log_dir``.

    Raises: UsageError where the file can't be made.
    *Cost:* half a microsecond a line, and one system call a scheduled step; what it has taken is out of this process, so a killed
    run loses nothing that the operating system still writes.
    """

    def __init__(self, log_dir: str | os.PathLike[str], rank: int, file: str = FILE) -> None:
        self.path = os.path.join(log_dir, file.format(rank=rank))
        self._file = open_to_append(self.path, log_dir, BUFFER_BYTES)

    def write(self, observations: Sequence[Observation]) -> None:
        lines = []
        for seen in observations:
            if not seen.mine:
                continue
            before, after = f"INFO - {one_line(seen.name)}_", f" \t\t\t\t iteration={seen.step:06d} \t\t\t\t value="
            for label, value in seen.values.items():
                if type(value) is float:  # nearly all are
                    lines.append(f"{before}{label}{after}{value:.9g}\n")
                elif value is not None:
                    lines.append(f"{before}{label}{after}{text_of(value)}\n")
        self._file.write("".join(lines))
        self._file.flush()  # also so that a process forked between steps does not inherit lines

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        self._file.close()


def text_of(value: Value | Histogram) -> str:
    """A value as logs show it."""
    if isinstance(value, float):
        return f"{value:.9g}"
    if value is None or isinstance(value, int):
        return str(value)
    return ",".join(f"{exponent}:{count:.9g}" for exponent, count in enumerate(value, FIRST_EXPONENT) if count)
