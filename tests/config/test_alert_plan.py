from __future__ import annotations

import pytest

import numscope
from numscope.config import load
from numscope.config.alert_plan import AlertPlan, read_alerts
from numscope.config.options import WatchOptions
from numscope.config.rule_table import RULES, RuleSpec
from numscope.plugins.discovery import Plugins
from numscope.plugins.registry import Registry, filling
from numscope.records.errors import UsageError

STATISTICS = {"enabled": True, "stats": ["rms"], "tensors": ["output"]}
SECTION = {"s": {"enabled": True, "layers": {"layer_types": "all"}, "statistics": STATISTICS}}


@pytest.fixture(autouse=True)
def a_rule_with_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "loss spike", RuleSpec("loss spike", "…", {"band": 8.0, "window": 100, "strict": False}))  # type: ignore[arg-type]


def read(given: object, customs: tuple[str, ...] | None = ()) -> tuple[AlertPlan, list[str]]:
    wrong: list[str] = []
    return read_alerts(given, lambda place, text: wrong.append(f"{place}: {text}"), customs), wrong


@pytest.mark.parametrize(
    ("given", "mode"), [("note", "note"), ("off", "off"), (False, "off"), ("raise", "raise"), ({"mode": "raise"}, "raise"), ({}, None)]
)
def test_mode(given: object, mode: str | None) -> None:
    assert read(given) == (AlertPlan(mode), [])  # type: ignore[arg-type]


def test_settings_fill_defaults_in_and_off_is_off() -> None:
    plan, wrong = read({"overflow ahead": False, "loss spike": {"band": 6}, "eval mode": True, "mode": "raise"})
    assert not wrong
    assert [plan.is_on(rule) for rule in ("overflow ahead", "loss spike", "eval mode", "dead units")] == [False, True, True, True]
    assert plan.settings("loss spike") == {"band": 6, "window": 100, "strict": False}
    assert not AlertPlan("off").is_on("loss spike")


def test_what_is_said_first_counts_setting_by_setting() -> None:
    own, other = (
        read({"loss spike": {"band": 6}, "eval mode": False})[0],
        read({"loss spike": {"band": 9, "window": 5}, "mode": "raise"})[0],
    )
    both = own.over(other)
    assert (both.mode, both.rules) == ("raise", {"loss spike": {"band": 6, "window": 5}, "eval mode": False})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("rase", ': got "rase", expected one of off, note, raise. Did you mean "raise"? Or give a mapping of rules\' settings.'),
        (3, ": got 3, expected one of off, note, raise. Or give a mapping of rules' settings."),
        ({"mode": "loud"}, 'mode: got "loud", expected one of off, note, raise.'),
        ({"loss spike": 8}, "loss spike: got 8, expected off, on, or its settings: band, window, strict."),
        ({"eval mode": "of"}, 'eval mode: got "of", expected off, on, or its settings, of which this rule has none.'),
        ({"loss spike": {"bend": 8}}, 'loss spike: got the setting "bend", expected one of band, window, strict. Did you mean "band"?'),
        ({"loss spike": {"band": "8"}}, 'loss spike.band: got "8", expected a number.'),
        ({"loss spike": {"band": 0}}, "loss spike.band: got 0, expected a number above 0 and below 1e+18."),
        ({"loss spike": {"band": float("nan")}}, "loss spike.band: got NaN, expected a number above 0 and below 1e+18."),
        ({"loss spike": {"window": 10**30}}, f"loss spike.window: got {10**30}, expected a whole number above 0 and below 1e+18."),
        ({"loss spike": {"window": 1.5}}, "loss spike.window: got 1.5, expected a whole number."),
        ({"loss spike": {"band": True}}, "loss spike.band: got true, expected a number."),
    ],
)
def test_what_is_wrong_is_said_with_what_it_may_be(given: object, said: str) -> None:
    assert read(given)[1] == [said]


def test_unknown_rule_is_refused_with_the_nearest() -> None:
    (said,) = read({"overflow": False})[1]
    assert said.startswith(': got the rule "overflow", expected one of overflow ahead, divergence ahead, ')
    assert said.endswith(', …. Did you mean "overflow ahead"?')
    assert read({"growing": False}, ("growing",)) == (AlertPlan(rules={"growing": False}), [])
    assert read({"growing": False}, None)[1] == []  # not known yet


def test_a_configuration_has_alerts_beside_its_sections() -> None:
    with filling(Registry()) as registry:
        numscope.rule("growing")(lambda observation: None)
    found = Plugins()
    found.add(next(iter(registry)))
    plan = load({**SECTION, "alerts": {"mode": "raise", "loss spike": {"band": 4}, "growing": False}}, found)
    assert plan.alerts == AlertPlan("raise", {"loss spike": {"band": 4}, "growing": False})
    assert len(plan.collects) == 1
    assert load({"alerts": "off"}).alerts.mode == "off"
    assert load(SECTION).alerts == AlertPlan()


def test_off_in_yaml_is_off(tmp_path: object) -> None:
    plan = load("numscope.yaml", text="alerts:\n  mode: off\n  loss spike: off\n  eval mode: on\n")
    assert plan.alerts == AlertPlan("off", {"loss spike": False, "eval mode": True})


def test_a_section_may_be_called_alerts() -> None:
    plan = load({"alerts": SECTION["s"]})
    assert (plan.collects[0].section, plan.alerts) == ("alerts", AlertPlan())


def test_all_that_is_wrong_in_a_configuration_is_said_together() -> None:
    with pytest.raises(UsageError) as caught:
        load({**SECTION, "alerts": {"mode": "x", "loss spik": {}, "loss spike": {"band": "wide"}}})
    lines = str(caught.value).split("\n")
    assert [line.partition(": got")[0] for line in lines] == ["config: alerts.mode", "config: alerts", "config: alerts.loss spike.band"]


def test_options_are_checked_when_made() -> None:
    with pytest.raises(UsageError, match=r'^alerts: got "nte", expected one of off, note, raise. Did you mean "note"\?'):
        WatchOptions(alerts="nte")  # type: ignore[arg-type]


def test_a_rule_is_switched_by_a_word_too() -> None:
    plan, wrong = read({"overflow ahead": "off", "eval mode": "on"})
    assert not wrong and plan.rules == {"overflow ahead": False, "eval mode": True}
