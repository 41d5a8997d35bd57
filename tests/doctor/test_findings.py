"""The table of findings: what stands in braces there is known where the finding is made."""

from __future__ import annotations

import ast
import string
from pathlib import Path

import pytest

from numscope import doctor
from numscope.doctor.findings import TABLE

ALWAYS = {"rank", "ranks", "Ranks", "host", "hosts", "Hosts", "pasted", "without"}
BY_WHOM = {"case.finding": {"where", "route"}, "found": {"first", "after"}}  # what these add to every finding


def braces(id: str) -> set[str]:
    row = TABLE[id]
    return {name for text in (row["summary"], row.get("remedy", "")) for _, name, _, _ in string.Formatter().parse(text) if name} - ALWAYS


def made() -> list[tuple[str, ast.Call]]:
    """The calls that make a finding with a known id."""
    calls = [
        node
        for path in Path(doctor.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in ("finding", "_found", "found")
    ]
    return [(call.args[0].value, call) for call in calls if call.args and isinstance(call.args[0], ast.Constant)]  # type: ignore[misc]


@pytest.mark.parametrize(("id", "call"), made(), ids=lambda value: value if isinstance(value, str) else "")
def test_whoever_makes_a_finding_knows_all_that_its_text_needs(id: str, call: ast.Call) -> None:
    given = {keyword.arg for keyword in call.keywords} | BY_WHOM.get(ast.unparse(call.func), set())
    assert braces(id) <= given or None in given  # None: a dictionary of words


@pytest.mark.parametrize("id", TABLE)
def test_rows_of_the_table_are_complete(id: str) -> None:
    row = TABLE[id]
    assert row["severity"] in ("fault", "degraded", "note") and row.get("confidence", "likely") in ("certain", "likely", "possible")
    assert row["summary"] and "\n" not in row["summary"]
