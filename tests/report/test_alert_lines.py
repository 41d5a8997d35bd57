"""Alerts on a terminal that somebody reads, and elsewhere; repeats of a rule take less room."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numscope.records.alert import Alert
from numscope.report.delivery import NUM_WHOLE, AlertLines


def alert(layer: str = "fc", rule: str = "overflow ahead", step: int = 75, advice: str = "Lower the learning rate.") -> Alert:
    return Alert(step, rule, layer, "output", 1.0, 2.0, "The largest element, 2.54e+03, grows by 144% in 10 steps.", advice)


def test_elsewhere_than_on_a_terminal_an_alert_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    text = AlertLines().text(alert(), "rank 1 of 4")
    assert text == f"numscope: alert: {alert().line('rank 1 of 4')}"


def test_on_a_terminal_it_is_the_rule_and_place_then_what_is_seen_then_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    layer = "encoder.block.0.layer.1.DenseReluDense.dropout.of.a.long.name\x1b[31m"
    assert AlertLines().text(alert(layer)) == (
        "numscope: alert: step 75: overflow ahead: encoder.block.0.layer.1.DenseReluDense.dropout.of.a.long.name\\x1b[31m output\n"
        "    The largest element, 2.54e+03, grows by 144% in 10\n"
        "    steps.\n"
        "    Lower the learning rate."
    )
    monkeypatch.delenv("NO_COLOR")
    text = AlertLines().text(alert())
    assert text is not None and text.startswith("\x1b[1;33mnumscope: alert:\x1b[0m step 75")


def test_repeats_of_a_rule_leave_its_advice_out_and_fold() -> None:
    lines = AlertLines()
    said = [lines.text(alert(f"layer{i}", step=i)) for i in range(20)]
    assert [i for i, text in enumerate(said) if text is not None] == [0, 1, 2, 3, 7, 15]
    assert "Lower" in str(said[0]) and not any("Lower" in str(text) for text in said[1:])
    assert "(and 3 alerts of this rule before it)" in str(said[7]) and "(and 7 alerts of this rule before it)" in str(said[15])
    other = lines.text(alert(rule="loss spike"))
    assert other is not None and "Lower" in other  # another rule is news
    assert "Warm up" in str(lines.text(alert(advice="Warm up.")))  # and so is another advice


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=200))
def test_each_alert_is_told_or_counted_by_a_later_one(rules: list[str]) -> None:
    lines, counted, since = AlertLines(), dict.fromkeys("abc", 0), dict.fromkeys("abc", 0)
    for number, rule in enumerate(rules):
        text = lines.text(alert(rule=rule, step=number))
        if text is None:
            since[rule] += 1
            continue
        assert (f"(and {since[rule]} alert" in text) == (since[rule] > 0)
        counted[rule] += 1 + since[rule]
        since[rule] = 0
    for rule in "abc":
        num = rules.count(rule)
        assert counted[rule] + since[rule] == num and counted[rule] >= min(num, NUM_WHOLE) and counted[rule] >= num / 2
