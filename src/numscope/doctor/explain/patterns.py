"""Matches lines with patterns.yaml: the one matcher for torch's, torchrun's and the kernel's messages."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from numscope.doctor.explain.log_files import LogLine

_MOST = 256  # lines of one kind
_ROWS: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("patterns.yaml").read_text(encoding="utf-8"))
PATTERNS = {kind: re.compile("".join(row["when"])) for kind, row in _ROWS.items()}
_SOUGHT = {kind: row for kind, row in _ROWS.items() if "has" in row}
_QUICK = re.compile("|".join(sorted({re.escape(word) for row in _SOUGHT.values() for word in row["has"]})))  # most lines fail this


@dataclass(frozen=True, slots=True)
class MatchedLine:
    """A line that matched, and the frame of the user's code that came before it."""

    line: LogLine
    match: re.Match[str]
    site: str

    @property
    def rank(self) -> int:
        return self.line.rank


@dataclass(slots=True)
class Messages:
    """Collects the lines."""

    seen: dict[str, list[MatchedLine]] = field(default_factory=dict)

    def line(self, line: LogLine, site: str) -> set[str]:
        """Adds a line; returns the programs that print such lines."""
        programs: set[str] = set()
        if _QUICK.search(line.text) is not None:
            for kind, row in _SOUGHT.items():
                if any(word in line.text for word in row["has"]) and (match := PATTERNS[kind].search(line.text)) is not None:
                    programs |= {row["by"]} if "by" in row else set()
                    if len(lines := self.seen.setdefault(kind, [])) < row.get("most", _MOST):
                        lines.append(MatchedLine(line, match, site))
        return programs

    def of(self, kind: str) -> list[MatchedLine]:
        """The lines of a kind."""
        return self.seen.get(kind, [])
