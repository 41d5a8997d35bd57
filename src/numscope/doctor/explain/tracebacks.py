"""Python tracebacks in a log, interleaved from several ranks: which rank raised what, and where."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from numscope.doctor.explain.log_files import LogLine
from numscope.doctor.explain.masking import shown
from numscope.doctor.explain.patterns import PATTERNS

MAX_RAISED = 4096
MAX_RANKS = 1 << 20

_FRAME = re.compile(r"File \"(?P<file>[^\"]{1,400})\", line (?P<line>\d{1,9})(?:, in (?P<name>[^\n]{1,120}))?")
_RAISED = re.compile(
    r"(?:^|[\s:>|])(?P<type>(?:[A-Za-z_][\w]*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout|Warning|Refused)): (?P<text>.*)$"
)
_INSIDE = ("/torch/", "\\torch\\", "<frozen", "/lib/python", "/bin/torchrun", "/bin/accelerate", "site-packages")


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception as it was printed."""

    line: LogLine
    rank: int  # -1 if the line has no prefix
    text: str
    site: str  # file:line (function) of the innermost frame in the user's code
    echo: bool  # an exception of the kind that another rank's fault causes


@dataclass(slots=True)
class Tracebacks:
    """Collects exceptions and the frames above them."""

    raised: list[Raised] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)
    _sites: dict[tuple[str, int], str] = field(default_factory=dict)

    def line(self, line: LogLine) -> str:
        """Adds a line; returns the current frame in the user's code."""
        text, rank = line.text, line.rank
        if rank >= MAX_RANKS:
            return ""
        if rank >= 0:
            self.ranks.add(rank)
        key = (line.file, rank)
        if "Traceback (most recent call last)" in text:
            self._sites.pop(key, None)
        elif 'File "' in text and (frame := _FRAME.search(text)) is not None:
            if not any(part in frame["file"] for part in _INSIDE):
                self._sites[key] = shown(f"{frame['file']}:{frame['line']}" + (f" ({frame['name'].strip()})" if frame["name"] else ""))
        elif (m := _RAISED.search(text)) is not None and len(self.raised) < MAX_RAISED:
            text = shown(f"{m['type']}: {m['text']}")
            self.raised.append(
                Raised(line, rank, text, self._sites.get(key, ""), PATTERNS["echo of another rank"].search(text) is not None)
            )
        return self._sites.get(key, "")

    def of(self, rank: int) -> Raised | None:
        """A rank's exception, preferably one that another rank's fault did not cause."""
        mine = [one for one in self.raised if one.rank == rank]
        return next((one for one in mine if not one.echo), mine[0] if mine else None)
