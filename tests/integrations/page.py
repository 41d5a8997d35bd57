"""The lines that docs/frameworks.md gives for a framework, to be run by that framework's own tests."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"


def lines_of(framework: str, language: str = "python") -> str:
    """The first block of a language in a framework's section."""
    section = re.split(rf"^## {re.escape(framework)}\n", PAGE.read_text(encoding="utf-8"), flags=re.M)[1].split("\n## ")[0]
    block = re.search(rf"^```{language}\n(.*?)^```$", section, flags=re.M | re.S)
    assert block is not None, f"{PAGE.name} has no {language} block for {framework}"
    return block[1]


def run_lines(framework: str, **names: object) -> dict[str, object]:
    """Run a framework's lines with these names defined. Returns: the names after them."""
    names = {"__name__": "__main__", **names}
    exec(compile(lines_of(framework), f"{PAGE.name}: {framework}", "exec"), names)
    return names
