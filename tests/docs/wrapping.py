"""Prose of the documents, wrapped alike: as many words a line as the code's lines are wide. ``./dev format`` rewrites what is not.

Code, tables, headings, comments, HTML and directives are left alone, and neither a piece of code nor a short link is torn apart.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 140  # as in pyproject.toml
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_FENCE = re.compile(r" *(`{3,})")
_MARKER = re.compile(r" *(?:(?:[-*+]|\d+[.)]) +)?")
_APART = re.compile(r" *(?:$|#|\||<|!!!|\?\?\?|===|:|---)")
_WHOLE = re.compile(r"\[[^]]{1,50}\]\(|`[^`]+`| (?=(?:[-*+>=|]|#+|\d+[.)])(?: |$))")  # links, code, what could mark a list
_HELD = "\x00"


def wrapped(text: str) -> str:
    """The document with its prose wrapped anew."""
    return "\n".join(_lines(text.split("\n")))


def _lines(lines: list[str]) -> Iterator[str]:
    end, listed, prose = "", False, list[str]()
    for line in lines:
        fence = _FENCE.match(line)
        item = bool(_marker(line).strip())
        indented = line.startswith("    ") and not (listed or prose)
        apart = bool(end or fence or indented or _APART.match(line))
        if prose and (apart or item):
            yield from _filled(prose)
            prose = []
        listed = item or (listed and (line.startswith(" ") or bool(prose) or not line.strip()))
        if not apart:
            prose.append(line)
            continue
        yield line
        if end:
            end = "" if line.strip().endswith(end) else end
        elif fence:
            end = fence[1]
        elif "<!--" in line and "-->" not in line:
            end = "-->"
    yield from _filled(prose)


def _filled(prose: list[str]) -> Iterator[str]:
    if prose:
        first = _marker(prose[0])
        text = " ".join(line.strip() for line in prose)[len(first.strip()) :].strip()
        held = _WHOLE.sub(lambda found: found[0].replace(" ", _HELD), text)
        wrapper = textwrap.TextWrapper(WIDTH, first, " " * len(first), break_long_words=False, break_on_hyphens=False)
        yield from (line.replace(_HELD, " ") for line in wrapper.wrap(held))


def _marker(line: str) -> str:
    return _MARKER.match(line)[0]  # type: ignore[index]  # it matches the empty string


if __name__ == "__main__":
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        if wrapped(text) != text:
            path.write_text(wrapped(text), encoding="utf-8")
