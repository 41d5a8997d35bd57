"""Makes a plan of a file or dict."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from numscope.config.alert_plan import KEY, AlertPlan, read_alerts
from numscope.config.check_plan import CHECK, CheckPlan
from numscope.config.dialects import MISSING, NAMES_KEY, RELOAD, Section, Written, below, translate, unknown
from numscope.config.features import FEATURES
from numscope.config.plan import Collect, Plan, PluginFeature, Schedule, Selection, StatRequest, Switch
from numscope.config.schema import CHOICES, Feature, Layers, Plugged, Scheduled, Statistics, Words, clash, explain, for_tensor, part_of
from numscope.config.wording import KINDS, Errors, listed, meant, one_of, shown
from numscope.config.yaml_reading import parsed, read
from numscope.plugins import discovery as plug_ins
from numscope.plugins.discovery import Plugins
from numscope.records.errors import UsageError
from numscope.records.observation import NAMES, Names
from numscope.records.words import closest
from numscope.summary.operand_casts import CAST_STATS

Source = str | os.PathLike[str] | Mapping[str, Any]
_SCHEDULE = frozenset(Scheduled.model_fields)  # a switch's settings are the rest


def load(source: Source, plugins: Plugins | None = None, text: str | None = None) -> Plan:
    """A configuration, checked, as a plan.

    Args:
        source: a YAML file's path, or the same as a dict.
        plugins: statistics, features and rules of the user's own that it may name.
        text: the file's, if it has been read already.

    Returns:
        The plan; ``resolve`` finds the layers of a model that it selects.

    Raises:
        UsageError: all that is wrong, a line each.
    """
    plugins = plugins or Plugins()
    if not isinstance(source, str | os.PathLike | Mapping):
        raise UsageError(f"config: got {shown(source)}, expected a YAML file's path or a dict.")
    name = "config" if isinstance(source, Mapping) else os.fspath(source)
    errors = Errors(name)
    read_tree, text = read(source, errors) if text is None else (parsed(text, errors), text)
    tree = read_tree or {}
    if read_tree is None:
        errors.raise_any()
    top = {key: tree.pop(key) for key in (RELOAD, NAMES_KEY, KEY, CHECK) if key in tree and not _is_section(key, tree[key])}
    if top and not tree and not {KEY, CHECK} & top.keys():
        errors.add("", "got no section, expected at least one.")
    reload = _reload(top.get(RELOAD, False), isinstance(source, Mapping), errors)
    names: Names | None = top.get(NAMES_KEY)
    if NAMES_KEY in top and names not in NAMES:
        errors.add(NAMES_KEY, one_of(names, NAMES))
    alerts = AlertPlan()
    if KEY in top:
        alerts = read_alerts(top[KEY], lambda place, text: errors.add(f"{KEY}.{place}" if place else KEY, text), plugins.rules)
    if CHECK in top:
        try:
            CheckPlan.of(top[CHECK])
        except UsageError as error:
            errors.add(CHECK, error.text)
    stem = Path(name).stem or "config"
    builder = _Builder(errors, plugins)
    for section in translate(tree, stem, plugins.features, errors):
        builder.build(section)
    errors.raise_any()
    return Plan(
        name, tuple(builder.collects), tuple(builder.switches), tuple(builder.customs), tuple(builder.notes), text, reload, alerts, names,
        top.get(CHECK),
    )  # fmt: skip


def _is_section(key: str, value: object) -> bool:
    """Whether a key with a meaning of its own is a section's name."""
    return isinstance(value, Mapping) and (key != KEY or bool({"layers", "enabled"} & value.keys()))


def _reload(given: object, is_dict: bool, errors: Errors) -> bool:
    if not isinstance(given, bool):
        errors.add(RELOAD, f"got {shown(given)}, expected true or false.")
    elif given and is_dict:
        errors.add(RELOAD, "got true in a dict, expected it in a YAML file, which can be edited during the run.")
    return given is True


class _Builder:
    """Checks sections one after the other and collects the plan's parts."""

    def __init__(self, errors: Errors, plugins: Plugins) -> None:
        from numscope.summary.statistics import STATISTICS

        self._errors, self._plugged = errors, plugins.features
        known: dict[str, object] = {**STATISTICS, **plugins.statistics}
        self._statistics = {name: getattr(one, "tensors", ()) or None for name, one in known.items()}
        self.collects: list[Collect] = []
        self.switches: list[Switch] = []
        self.customs: list[PluginFeature] = []
        self.notes: list[str] = []

    def build(self, section: Section) -> None:
        """Checks all of a section and keeps those of its features that are on."""
        on = self._enabled(section)
        selection = self._selection(section, on)
        place = section.path or section.name
        if section.empty and not section.bare:
            self._errors.add(place, "has no feature and would do nothing. Add one, such as statistics.")
        elif section.empty and on:
            self.notes.append(f"{place}: selects layers and has no feature: nothing is collected")
        for written in section.features:
            part = self._part(written, on)
            if on and written.settings.get("enabled") is False:
                self.notes.append(f"{written.path}: off (enabled: false)")
            elif on and part is not None and selection is not None:
                self._keep(section, selection, written, part)
        if not on and section.path:
            self.notes.append(f"{section.path}: off (enabled: false)")

    def _enabled(self, section: Section) -> bool:
        place = below(section.path, "enabled")
        if section.enabled is MISSING:
            if not section.bare:
                self._errors.add(place, f"missing, expected true or false.{meant(section.name, FEATURES)}")
        elif not isinstance(section.enabled, bool):
            self._errors.add(place, f"got {shown(section.enabled)}, expected true or false.")
        return section.enabled is not False

    def _selection(self, section: Section, on: bool) -> Selection | None:
        place = below(section.path, "layers")
        if section.layers is MISSING:
            if section.bare:
                return Selection()
            if on:
                self._errors.add(place, f"missing, expected at least one of {', '.join(CHOICES)}.")
            return None
        if not isinstance(section.layers, Mapping):
            self._errors.add(place, f"got {shown(section.layers)}, expected at least one of {', '.join(CHOICES)}.")
            return None
        try:
            layers = Layers.model_validate(section.layers)
        except ValidationError as error:
            for loc, under, text, _ in explain(error, Layers):
                key = str(loc[0]) if loc else ""
                at = (section.layer_places.get(key) or below(place, key)) if key else place
                self._errors.add(f"{at}{under}", text or f"is an unknown key, expected {listed(key, Layers.model_fields)}")
            self._refuse_clash(section)
            return None
        if self._refuse_clash(section):
            return None
        return Selection(layers.layer_name_regex_pattern, layers.layer_numbers, layers.layer_types, layers.containers, layers.layer_names)

    def _refuse_clash(self, section: Section) -> bool:
        keys = clash(section.layers)
        if not section.features or not keys:
            return False
        names = ", ".join(section.layer_places[key].rpartition(".")[2] for key in keys)
        rule = "expected one of them alone: only layer_numbers and layer_types can be combined."
        self._errors.add(below(section.path, "layers"), f"got {names} together, {rule}")
        return True

    def _part(self, written: Written, on: bool) -> Feature | None:
        """The checked feature; None if it is wrong, or off and incomplete, which is allowed."""
        spec = FEATURES.get(written.feature)
        model = Plugged if spec is None else part_of(spec)
        off = not on or written.settings.get("enabled") is False
        of_casts = spec is not None and spec.family
        words = Words(dict.fromkeys(CAST_STATS) if of_casts else self._statistics, written.alias.stats)
        try:
            part = model.model_validate(dict(written.settings), context=words)
        except ValidationError as error:
            found = list(explain(error, model))
            typos = {name for loc, _, text, _ in found if not text for name in closest(loc[0], model.model_fields)}
            for loc, under, text, missing in found:
                if missing and loc != ("enabled",) and off:
                    continue
                if missing and loc[0] in typos:  # reported for the key that was probably meant
                    continue
                place = written.place(loc, under)
                self._errors.add(place, text or unknown(place.rpartition(".")[2], model.model_fields, written.alias))
            return None
        if isinstance(part, Plugged):
            self._check_plugged(written, part, off)
        return part

    def _check_plugged(self, written: Written, part: Plugged, off: bool) -> None:
        custom, given = self._plugged[written.feature], part.model_extra or {}
        for index, tensor in enumerate(part.tensors or ()):
            if tensor not in custom.tensors:
                self._errors.add(written.place(("tensors", index)), one_of(tensor, custom.tensors))
        for key, value in given.items():
            if key not in custom.settings:
                self._errors.add(written.place((key,)), unknown(key, [*custom.settings, *Plugged.model_fields], written.alias))
            elif not custom.settings[key].accepts(value):
                kind = KINDS[custom.settings[key].type]
                self._errors.add(written.place((key,)), f"got {shown(value)}, expected {kind}.")
        for key, setting in custom.settings.items():
            if setting.required and key not in given and not off:
                self._errors.add(written.place((key,)), f"missing, expected {KINDS[setting.type]}.")

    def _keep(self, section: Section, selection: Selection, written: Written, part: Feature) -> None:
        schedule = _schedule(part)
        name = section.name
        if isinstance(part, Statistics):
            for tensors, stats in _by_tensor(part):
                self.collects.append(
                    Collect(name, written.name, selection, schedule, tensors, stats, part.reduce, part.merge, part.evaluation)
                )
        elif isinstance(part, Plugged):
            custom = self._plugged[written.feature]
            defaults = {key: setting.default for key, setting in custom.settings.items() if not setting.required}
            settings = {**defaults, **(part.model_extra or {})}
            self.customs.append(PluginFeature(name, written.feature, selection, schedule, part.tensors or custom.tensors, settings))
        else:
            settings = {key: value for key, value in part if key not in _SCHEDULE}
            self.switches.append(Switch(name, written.feature, selection, schedule, settings))
            note = f"{written.path}: has no effect on layers that run in high precision"
            on_paper_alone = all(dict(asked.options).get("recipe") for asked in settings.get("stats", [StatRequest("", "")]))
            if not FEATURES[written.feature].anywhere and not on_paper_alone and note not in self.notes:  # a struct is several parts
                self.notes.append(note)


def _by_tensor(part: Statistics) -> Iterator[tuple[tuple[str, ...], tuple[StatRequest, ...]]]:
    """Tensors with the same statistics together; they differ where an option is left to the tensor."""
    groups: dict[tuple[StatRequest, ...], list[str]] = {}
    for tensor in part.tensors:
        groups.setdefault(tuple(for_tensor(asked, tensor) for asked in part.stats), []).append(tensor)
    for stats, tensors in groups.items():
        yield tuple(tensors), stats


def _schedule(part: Feature) -> Schedule:
    if not isinstance(part, Scheduled):
        return Schedule()
    pairs = part.start_end_list or [[part.start_step or 0, -1 if part.end_step is None else part.end_step]]
    return Schedule(part.freq, tuple((first, None if last == -1 else last) for first, last in pairs))


def plan_of(config: Source, features: plug_ins.Paths = ()) -> tuple[Plan, Plugins]:
    """A configuration's plan, and the plug-ins (files and folders with statistics, features, loggers, rules) that it may name.

    Raises: UsageError that lists all errors of the configuration and of the features.
    """
    from numscope.summary.statistics import STATISTICS

    found = plug_ins.load(features, taken=STATISTICS)
    try:
        return load(config, found), found
    except UsageError as error:
        left_out = [text for text, level in found.messages if level >= logging.ERROR]  # why a name is not known
        if not left_out:
            raise
        raise UsageError("\n".join((*left_out, str(error)))) from None
