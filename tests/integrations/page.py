"""The lines that docs/frameworks.md, or another page, gives for a framework, to be run by that framework's own tests."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"


def lines_of(framework: str, language: str = "python", page: Path = PAGE) -> str:
    """The first block of a language in a framework's section."""
    section = re.split(rf"^## {re.escape(framework)}\n", page.read_text(encoding="utf-8"), flags=re.M)[1].split("\n## ")[0]
    block = re.search(rf"^```{language}\n(.*?)^```$", section, flags=re.M | re.S)
    assert block is not None, f"{page.name} has no {language} block for {framework}"
    return block[1]


def run_lines(framework: str, page: Path = PAGE, **names: object) -> dict[str, object]:
    """Run a framework's lines with these names defined. Returns: the names after them."""
    names = {"__name__": "__main__", **names}
    exec(compile(lines_of(framework, page=page), f"{page.name}: {framework}", "exec"), names)
    return names
