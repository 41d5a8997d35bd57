"""The code blocks of a Markdown page, and what running them gives.

- ```` ```python ```` blocks of a page run in order, in one process and one empty folder; ```` ```sh ```` blocks by bash in the same folder.
- A block with ``title="train.py"`` after its language is written as that file and not run.
- A ```` ```text ```` block right after a block that runs is what it prints: each of its lines occurs in the output, in this order. ``…``
  stands for anything, a number with a point (a loss, seconds) for any such number. How many spaces stand between words doesn't matter.
- ``<!-- python`` … ``-->`` is a block that no reader sees; so with ``sh``, and with a title.
- ``<!-- exit status 3 -->`` before a sh block: so it ends.
- ``<!-- not run: REASON -->`` before a block leaves it out.
- Blocks in other languages, and ```` ```yaml ```` without a title, are text; a python or sh block is never left out in silence.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

_OPENING = re.compile(r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>[\w+-]*)(?P<rest>.*)$")
_HIDDEN = re.compile(r"^<!-- (?P<language>\w+)(?P<rest> title=\".*\")?$")
_NOT_RUN = re.compile(r"^ *<!-- not run: (?P<reason>\S.*) -->$")
_STATUS = re.compile(r"^ *<!-- exit status (?P<status>\d+) -->$")
_TITLE = re.compile(r'title="([^"]+)"')
_NUMBER = re.compile(r"\d+\.\d+(?:e[-+]?\d+)?")
_LANGUAGES = {"python": "python", "py": "python", "sh": "sh", "bash": "sh"}


@dataclass
class Block:
    """A block: ``kind`` is ``python``, ``sh`` or ``file``; ``line`` is that of its first line of code, from 1."""

    kind: str
    code: str
    line: int
    title: str = ""
    status: int = 0
    """What a sh block ends with."""
    prints: str = ""
    """The text block that follows it."""


@dataclass
class Page:
    blocks: list[Block]
    not_run: list[tuple[int, str]]
    """Line and reason of each block that is left out."""


def read(path: Path) -> Page:
    """All blocks of a page that mean something to a run. ValueError: a fence or a comment is never closed."""
    lines = path.read_text(encoding="utf-8").splitlines()
    page = Page([], [])
    at, reason, status, last = 0, "", 0, None
    while at < len(lines):
        line = lines[at]
        if hidden := _HIDDEN.match(line):
            end = _closing(lines, at, "-->", path)
            title = _TITLE.search(hidden["rest"] or "")
            kind = "file" if title else _LANGUAGES[hidden["language"]]
            page.blocks.append(Block(kind, "\n".join(lines[at + 1 : end]), at + 2, title[1] if title else ""))
            at, last = end + 1, None
        elif opening := _OPENING.match(line):
            fence = opening["fence"]
            end = _closing(lines, at, fence, path)
            code = textwrap.dedent("\n".join(lines[at + 1 : end]))
            kind = _LANGUAGES.get(opening["language"])
            title = _TITLE.search(opening["rest"])
            block = None
            if reason:
                page.not_run.append((at + 1, reason))
            elif title:
                page.blocks.append(Block("file", code, at + 2, title[1]))
            elif kind:
                block = Block(kind, code, at + 2, status=status)
                page.blocks.append(block)
            elif opening["language"] == "text" and last:
                last.prints = code
            at, last, reason, status = end + 1, block, "", 0
        else:
            if found := _NOT_RUN.match(line):
                reason = found["reason"]
            elif found := _STATUS.match(line):
                status = int(found["status"])
            elif line.strip():  # what is said of a block, and what it prints, stand right beside it
                reason, status, last = "", 0, None
            at += 1
    return page


def _closing(lines: list[str], start: int, end: str, path: Path) -> int:
    for at in range(start + 1, len(lines)):
        if lines[at].strip() == end:
            return at
    raise ValueError(f"{path.name}:{start + 1}: {lines[start]!r} is never closed")


def missing(expected: str, printed: str) -> str | None:
    """The first line of ``expected`` that ``printed`` doesn't have after those before it; None when it has all."""
    rest = " ".join(printed.split())
    for line in expected.splitlines():
        words = " ".join(line.split())
        if not words.strip("…. ─"):
            continue
        found = re.search(".*?".join(_pattern(part.strip()) for part in words.split("…")), rest)
        if found is None:
            return line
        rest = rest[found.end() :]
    return None


def _pattern(text: str) -> str:
    words = _NUMBER.split(text)
    return _NUMBER.pattern.join(map(re.escape, words))
