"""The script's line that is running, for checks to name."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from numscope.records.places import is_installed
from numscope.replay.stack import capture


class Line(NamedTuple):
    """A line of the script's, or of a library other than torch."""

    file: str
    number: int
    code: str

    @property
    def short(self) -> str:
        """``train.py:12``, as texts name it; "" if it is not known."""
        return f"{os.path.basename(self.file)}:{self.number}" if self.file else ""

    @property
    def evidence(self) -> dict[str, Any]:
        """As an alert's evidence has it."""
        return {"line": f"{self.file}:{self.number}", "code": self.code} if self.file else {}

    def at(self, before: str = " at ") -> str:
        """``before`` and the line; nothing if it is not known."""
        return before + self.short if self.file else ""


UNKNOWN = Line("", 0, "")


def current_line() -> Line:
    """The script's line that is running now: the innermost one outside installed packages, else the innermost one.

    *Cost:* some microseconds; a thorough check may ask at each occasion, a cheap one only when it has found something.
    """
    frames = capture(sys._getframe(1)).resolve()
    if not frames:
        return UNKNOWN
    own = [frame for frame in frames if not is_installed(frame[0])]
    file, number, _, code = (own or frames)[-1]
    return Line(file, number, code)
