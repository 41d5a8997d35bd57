"""Options of alerts: whether they are reported or stop the run, and each rule's settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from numscope.config.rule_table import RULES
from numscope.config.wording import KINDS, listed, one_of, shown
from numscope.plugins.custom_parts import Setting

Mode = Literal["off", "note", "raise"]
MODES: tuple[Mode, ...] = get_args(Mode)

KEY = "alerts"  # a key of a configuration, next to its sections
MODE = "mode"

MOST = 1e18  # limit of a number in settings: it has to fit NumPy's

Add = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class AlertPlan:
    """The options of alerts, as far as given."""

    mode: Mode | None = None
    rules: Mapping[str, bool | Mapping[str, Any]] = field(default_factory=dict, hash=False)  # False: off; a mapping: settings

    def over(self, other: AlertPlan) -> AlertPlan:
        """Both together; where both have a value, this one's counts."""
        rules = dict(other.rules)
        for name, chosen in self.rules.items():
            before = rules.get(name)
            rules[name] = {**before, **chosen} if isinstance(before, Mapping) and isinstance(chosen, Mapping) else chosen
        return AlertPlan(self.mode or other.mode, rules)

    def is_on(self, rule: str) -> bool:
        """Whether a rule may raise alerts."""
        return self.mode != "off" and self.rules.get(rule) is not False

    def settings(self, rule: str) -> dict[str, Any]:
        """A built-in rule's settings, its defaults filled in."""
        chosen = self.rules.get(rule)
        return {**RULES[rule].settings, **(chosen if isinstance(chosen, Mapping) else {})}

    def finding_after(self, rule: str) -> int | None:
        """The number of steps in a row that are a finding for detection; None if the rule is off."""
        return None if self.rules.get(rule) is False else self.settings(rule)["finding"]


def read_alerts(given: object, add: Add, customs: Collection[str] | None = ()) -> AlertPlan:
    """Makes a plan of a user's value: a mode, or settings by rule and the mode; False, which is how YAML reads ``off``, is "off".

    ``add`` is called for each error with the place below ``given``, and a sentence. ``customs``: names of users' own rules, which have no
    settings. None: they are not known yet, so unknown names pass.
    """
    if not isinstance(given, Mapping):
        return AlertPlan(_mode(given, "", add))
    mode = _mode(given[MODE], MODE, add) if MODE in given else None
    rules: dict[str, bool | Mapping[str, Any]] = {}
    known = [*RULES, *(customs or ())]
    for name, chosen in given.items():
        if name == MODE:
            continue
        if name not in known and (customs is not None or not isinstance(name, str) or " " in name):
            add("", f"got the rule {shown(name)}, expected {listed(name, [*known, MODE])}")
        elif isinstance(chosen, bool) or chosen == "off" or chosen == "on":  # as YAML has them in quotes, and Python as a mode
            rules[name] = chosen is True or chosen == "on"
        elif not isinstance(chosen, Mapping):
            add(str(name), f"got {shown(chosen)}, expected off, on, or its settings{_settings_hint(name)}.")
        else:
            rules[name] = dict(chosen)
            _check_settings(name, chosen, add)
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


def _settings_hint(rule: str) -> str:
    settings = RULES[rule].settings if rule in RULES else {}
    return f": {', '.join(settings)}" if settings else ", of which this rule has none"
