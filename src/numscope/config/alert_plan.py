"""What is asked of alerts: whether they are said or stop the run, and each rule's settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from numscope.config.rule_table import RULES
from numscope.config.wording import KINDS, listed, one_of, shown
from numscope.plugins.parts import Setting

Mode = Literal["off", "note", "raise"]
MODES: tuple[Mode, ...] = get_args(Mode)

KEY = "alerts"  # in a configuration, beside its sections
MODE = "mode"

MOST = 1e18  # of a number in settings: it has to fit those of NumPy

Add = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class AlertPlan:
    """What is asked of alerts.

    Args:
        mode: None: nothing was said of it.
        rules: what was said of rules: False switches one off, a mapping has settings.
    """

    mode: Mode | None = None
    rules: Mapping[str, bool | Mapping[str, Any]] = field(default_factory=dict, hash=False)

    def over(self, other: AlertPlan) -> AlertPlan:
        """Both together; where both say something of the same, this one counts."""
        rules = dict(other.rules)
        for name, said in self.rules.items():
            before = rules.get(name)
            rules[name] = {**before, **said} if isinstance(before, Mapping) and isinstance(said, Mapping) else said
        return AlertPlan(self.mode or other.mode, rules)

    def is_on(self, rule: str) -> bool:
        """Whether a rule may speak."""
        return self.mode != "off" and self.rules.get(rule) is not False

    def settings(self, rule: str) -> dict[str, Any]:
        """A built-in rule's settings, its defaults filled in."""
        said = self.rules.get(rule)
        return {**RULES[rule].settings, **(said if isinstance(said, Mapping) else {})}

    def finding_after(self, rule: str) -> int | None:
        """How many steps in a row detection takes for a finding; None where the rule is off."""
        return None if self.rules.get(rule) is False else self.settings(rule)["finding"]


def read_alerts(given: object, add: Add, customs: Collection[str] | None = ()) -> AlertPlan:
    """A plan from what a user wrote.

    Args:
        given: a mode, or settings by rule with the mode beside them; False, as YAML reads ``off``, is "off".
        add: takes what is wrong: the place below ``given``, and a sentence.
        customs: names of users' own rules, which have no settings. None: they are not known yet, and nor is which names are wrong.
    """
    if not isinstance(given, Mapping):
        return AlertPlan(_mode(given, "", add))
    mode = _mode(given[MODE], MODE, add) if MODE in given else None
    rules: dict[str, bool | Mapping[str, Any]] = {}
    known = [*RULES, *(customs or ())]
    for name, said in given.items():
        if name == MODE:
            continue
        if name not in known and (customs is not None or not isinstance(name, str) or " " in name):
            add("", f"got the rule {shown(name)}, expected {listed(name, [*known, MODE])}")
        elif isinstance(said, bool) or (
            isinstance(said, str) and said in ("off", "on")
        ):  # as YAML has them in quotes, and Python as a mode
            rules[name] = said is True or said == "on"
        elif not isinstance(said, Mapping):
            add(str(name), f"got {shown(said)}, expected off, on, or its settings{_told(name)}.")
        else:
            rules[name] = dict(said)
            _check_settings(name, said, add)
    return AlertPlan(mode, rules)


def _mode(given: object, place: str, add: Add) -> Mode | None:
    word = {False: "off", "warn": "note"}.get(given, given) if isinstance(given, str | bool) else given
    for mode in MODES:
        if word == mode:
            return mode
    add(place, one_of(given, MODES) if place else f"{one_of(given, MODES)} Or give a mapping of rules' settings.")
    return None


def _check_settings(rule: str, given: Mapping[str, Any], add: Add) -> None:
    settings = RULES[rule].settings if rule in RULES else {}
    for key, value in given.items():
        if key not in settings:
            expected = listed(key, settings) if settings else "none: this rule has no settings."
            add(rule, f"got the setting {shown(key)}, expected {expected}")
        elif not Setting(type(settings[key])).accepts(value):
            add(f"{rule}.{key}", f"got {shown(value)}, expected {KINDS[type(settings[key])]}.")
        elif not isinstance(value, bool | str) and not 0 < value < MOST:
            add(f"{rule}.{key}", f"got {shown(value)}, expected {KINDS[type(settings[key])]} above 0 and below {MOST:g}.")


def _told(rule: str) -> str:
    settings = RULES[rule].settings if rule in RULES else {}
    return f": {', '.join(settings)}" if settings else ", of which this rule has none"
