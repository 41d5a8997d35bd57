"""What the docs say of alerts is there."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from numscope.alerts.desk import CALM_STEPS, MOST_KEPT
from numscope.config.rule_table import RULES
from numscope.records.alert import Alert

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "alerts.md").read_text(encoding="utf-8")
SECTIONS = {
    f"alerts/{path.name}#{re.sub(r'[^a-z0-9]+', '-', heading.lower())}": (heading.split(", "), section)
    for path in (DOCS / "alerts").glob("*.md")
    for heading, section in re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", path.read_text(encoding="utf-8"), re.MULTILINE)
}


def test_every_rule_and_no_other_stands_in_the_table_and_leads_to_its_section() -> None:
    rows = re.findall(r"^\| \[([^]]+)\]\((alerts/[^)]+)\) \| \S", TEXT, re.MULTILINE)
    assert sorted(name for name, _ in rows) == sorted(RULES)
    assert [name for name, place in rows if name not in SECTIONS[place][0]] == []


def test_every_setting_stands_in_its_rule_s_section() -> None:
    for names, section in SECTIONS.values():
        for rule in filter(None, map(RULES.get, names)):
            for setting in rule.settings:
                assert any(form in section for form in (f"`{setting}`", f'"{setting}":')), f"{rule.name}: {setting}"


def test_numbers_and_fields_are_those_of_the_code() -> None:
    assert f"nothing to report there for {CALM_STEPS} steps" in " ".join(TEXT.split())
    assert f"at most {MOST_KEPT:,}." in " ".join(TEXT.split())
    assert f"Alert({', '.join(field.name for field in fields(Alert))})" in " ".join(TEXT.split())
