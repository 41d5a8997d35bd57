"""What docs/precision.md shows runs, and says what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from numscope.precision.gemm.recipes import RECIPES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "precision.md").read_text(encoding="utf-8")


def test_examples_run_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        exec(compile(block, "precision.md", "exec"), names)
    shown = re.findall(r"^# (0 fprop .*)$", PAGE, re.MULTILINE)
    assert capsys.readouterr().out.splitlines()[:1] == shown


def test_table_has_every_recipe() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (?:`(\w+)`)? ?\|", PAGE, re.MULTILINE))
    assert {name: kind for kind, name in rows.items() if name} == {n: k.__name__ for n, k in RECIPES.items() if n != "custom"}
    assert "Custom" in rows
