"""What the docs say of alerts is there."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from numscope.alerts.desk import CALM_STEPS, MOST_KEPT
from numscope.config.rule_table import RULES
from numscope.records.alert import Alert

TEXT = (Path(__file__).parents[2] / "docs" / "alerts.md").read_text(encoding="utf-8")


def test_every_rule_and_every_setting_stands_in_the_docs() -> None:
    for rule in RULES.values():
        assert f"| `{rule.name}` |" in TEXT, rule.name
        for setting in rule.settings:
            assert any(form in TEXT for form in (f"`{setting}`", f"{setting}:", f'"{setting}":')), f"{rule.name}: {setting}"


def test_numbers_and_fields_are_those_of_the_code() -> None:
    assert f"nothing to report there for {CALM_STEPS} steps" in TEXT
    assert f"at most {MOST_KEPT:,}." in TEXT
    assert f"Alert({', '.join(field.name for field in fields(Alert))})" in TEXT
