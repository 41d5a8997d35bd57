"""Resolves a plan on the layers of one model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeVar

from numscope.config.features import FEATURES
from numscope.config.matching import compiled
from numscope.config.plan import Collect, Plan, PluginFeature, Selection, Switch, is_of_type, number_of
from numscope.config.schema import MERGES
from numscope.config.wording import Errors, shown
from numscope.records.layer import GEMMS, Layer
from numscope.records.observation import TENSORS
from numscope.records.words import closest, spans

_Part = TypeVar("_Part", Collect, Switch, PluginFeature)
_SHOWN = 3  # layer names in a message


@dataclass(frozen=True, slots=True)
class Resolved:
    """A plan's parts, each with the layers it is for, in the model's order."""

    # what several sections request alike is in the first of them alone, unless they merge sites
    collects: list[tuple[Collect, tuple[Layer, ...]]]
    switches: list[tuple[Switch, tuple[Layer, ...]]]
    customs: list[tuple[PluginFeature, tuple[Layer, ...]]]
    unmatched: tuple[str, ...] = ()  # sections, or parts of their selections, that match no layer
    notes: tuple[str, ...] = ()  # selections that match less than they name: numbers that no layer has


def resolve(plan: Plan, layers: Sequence[Layer], *, strict: bool = True) -> Resolved:
    """A plan on a model's layers.

    Args:
        strict: selections that match no layer are errors, as contradictions between sections always are; False where the model may be a
            part of the one that the configuration is for (a pipeline's stage).

    Raises:
        UsageError: all of that, a line each.
    """
    selections = dict.fromkeys((part.section, part.selection) for part in plan.parts)
    chosen: dict[Selection, tuple[Layer, ...]] = {}
    unmatched, notes = Errors(plan.source), Errors(plan.source)
    for section, selection in selections:
        if selection not in chosen:
            with unmatched.at(f"{section}.layers.layer_name_regex_pattern"):  # which may take too long
                chosen[selection] = tuple(layer for layer in layers if selection.selects(layer))
        _check_selection(section, selection, chosen[selection], layers, unmatched, notes)
    for collect in plan.collects:
        found, merge = chosen[collect.selection], collect.merge
        if merge is not None and merge not in MERGES and found:
            place = f"{collect.section}.{collect.feature}.merge"
            with unmatched.at(place):
                groups = [compiled(merge).search(layer.name) for layer in found]
            if not any(groups):
                unmatched.add(place, f"{shown(merge)} matches none of the layers that the section selects.")
    clashes = Errors(plan.source)
    collects = [(collect, chosen[collect.selection]) for collect in plan.collects]
    switches = [(switch, chosen[switch.selection]) for switch in plan.switches]
    customs = [(custom, chosen[custom.selection]) for custom in plan.customs]
    _check_clashes([*collects, *switches, *customs], clashes)
    _check_labels(collects, clashes)
    errors = Errors(plan.source)
    if strict:
        errors.extend(unmatched)
    errors.extend(clashes)
    errors.raise_any()
    once = [found for found in _once(collects) if found[1]]
    return Resolved(once, [s for s in switches if s[1]], [c for c in customs if c[1]], tuple(unmatched), tuple(notes))


# ------------------------------------------------------------------------------------------------- what matches nothing


def _check_selection(
    section: str, selection: Selection, chosen: Sequence[Layer], layers: Sequence[Layer], unmatched: Errors, notes: Errors
) -> None:
    place = f"{section}.layers"
    named = [layer.name for layer in layers]
    for name in selection.names or ():
        if name not in named:
            unmatched.add(f"{place}.layer_names", f"{shown(name)} is not a layer's name.{_near(name, layers)}")
    if selection.types is not None and (chosen or selection.numbers is None):
        for word in selection.types:
            if not any(is_of_type(layer, word) for layer in layers):
                unmatched.add(f"{place}.layer_types", f"{shown(word)} is neither part of a layer's name nor a class.{_near(word, layers)}")
    if selection.numbers is not None and chosen:
        absent = selection.numbers - {number_of(layer.name) for layer in layers}
        if absent:
            notes.add(f"{place}.layer_numbers", f"no layer has the number {_ranges(absent)}")
    if chosen or (selection.names and not selection.containers and not any(name in named for name in selection.names)):
        return
    containers = [layer for layer in layers if selection.describes(layer)]
    if containers:
        few = ", ".join(shown(layer.name) for layer in containers[:_SHOWN])
        what = "only modules without their own parameters"
        unmatched.add(place, f"{_sought(selection)} matches {what} ({few}). To select them: containers: true.")
    elif not (selection.types is not None and selection.numbers is None):  # reported above
        unmatched.add(place, f"{_sought(selection)} matches none of the model's {len(layers)} layers.{_hint(selection, layers)}")


def _sought(selection: Selection) -> str:
    if selection.names is not None:
        return f"layer_names: {', '.join(map(shown, selection.names))}"
    if selection.pattern is not None:
        return f"layer_name_regex_pattern: {shown(selection.pattern)}"
    sought = []
    if selection.numbers is not None:
        sought.append(f"layer_numbers: {_ranges(selection.numbers)}")
    if selection.types is not None:
        sought.append(f"layer_types: {', '.join(map(shown, selection.types))}")
    return " with ".join(sought) or "the selection of all layers"


def _hint(selection: Selection, layers: Sequence[Layer]) -> str:
    if selection.pattern is not None:
        return _near(re.sub(r"\\.|[^\w.]", " ", selection.pattern).replace(".", " "), layers)
    if selection.numbers is not None:
        known = sorted({number for layer in layers if (number := number_of(layer.name)) is not None})
        return f" Layer numbers: {_ranges(known)}." if known else " None of the layers has a number."
    return ""


def _near(sought: str, layers: Sequence[Layer]) -> str:
    """The layers whose names, or parts of them, are nearest to a selection's words."""
    owners = [layer for layer in layers if layer.owns_parameters]
    words: dict[str, str] = {}
    for layer in owners:
        for part in (layer.name, *layer.name.split("."), layer.cls):
            words.setdefault(part, layer.name)
    found: dict[str, None] = {}
    for word in (sought.strip(), *sought.split()):
        found.update((words[near], None) for near in closest(word, words))
    if found:
        return f" Nearest: {', '.join(shown(name) for name in list(found)[:_SHOWN])}."
    few = ", ".join(shown(layer.name) for layer in owners[:_SHOWN])
    return f" Layers: {few}{', …' if len(owners) > _SHOWN else ''}." if owners else ""


def _ranges(numbers: Iterable[int]) -> str:
    """``1-3, 7``."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans(numbers))


# -------------------------------------------------------------------------------------------------------- contradictions


def _settings(part: Collect | Switch | PluginFeature) -> object:
    """The settings that must be equal if two sections give one layer the same feature; tensors and GEMMs are compared one by one."""
    if isinstance(part, Collect):
        return (part.schedule, frozenset(part.stats), part.reduce, part.merge, part.evaluation)
    return (part.schedule, {key: value for key, value in part.settings.items() if key not in ("tensors", "gemms")})


def _targets(part: Collect | Switch | PluginFeature) -> Iterator[tuple[str, str]]:
    """(tensor, GEMM) of a part; a switch that names none is of all."""
    if isinstance(part, Collect | PluginFeature):
        yield from ((tensor, "") for tensor in part.tensors or TENSORS)
    else:
        tensors: Any = part.settings.get("tensors") or TENSORS
        yield from product(tensors, part.settings["gemms"] or GEMMS if "gemms" in part.settings else ("",))


def _check_clashes(parts: Iterable[tuple[Collect | Switch | PluginFeature, Sequence[Layer]]], errors: Errors) -> None:
    first: dict[tuple[str, str, tuple[str, str]], Collect | Switch | PluginFeature] = {}
    for part, layers in parts:
        spec = FEATURES.get(part.feature)
        if spec is not None and spec.disables:
            continue
        for layer, target in product(layers, _targets(part)):
            other = first.setdefault((part.feature, layer.name, target), part)
            if other.section != part.section and _settings(other) != _settings(part):
                what = f"{target[0]} of {shown(layer.name)}"
                rule = "with other settings, expected the same settings or one section for both"
                errors.add(f"{part.section}.{part.feature}", f"{what} gets this feature from {other.section} {rule}.")
                break


def _check_labels(collects: Iterable[tuple[Collect, Sequence[Layer]]], errors: Errors) -> None:
    """Two meanings of one name in the logs."""
    first: dict[tuple[str, str, str], tuple[Collect, object]] = {}
    for collect, layers in collects:
        for layer, tensor, asked in product(layers, collect.tensors, collect.stats):
            meaning = (asked.statistic, asked.options, collect.reduce, collect.evaluation)
            other, before = first.setdefault((layer.name, tensor, asked.label), (collect, meaning))
            if before != meaning and (other.section, other.feature) != (collect.section, collect.feature):
                name = f"{layer.name}_{tensor}_{asked.label}"
                rule = f"is logged by {other.section}.{other.feature} too, where it means something else. Ask for it in only one of them"
                errors.add(f"{collect.section}.{collect.feature}", f"{shown(name)} {rule}.")
                return


def _once(collects: Sequence[tuple[Collect, tuple[Layer, ...]]]) -> Iterator[tuple[Collect, tuple[Layer, ...]]]:
    """Leaves out of a section what an earlier one requests alike; a section that merges sites keeps everything."""
    seen: set[tuple[object, ...]] = set()
    for collect, layers in collects:
        if collect.merge is not None:
            yield collect, layers
            continue
        groups: dict[tuple[str, ...], list[Layer]] = {}
        settings = _settings(collect)
        for layer in layers:
            keys = {tensor: (collect.feature, layer.name, tensor, settings) for tensor in collect.tensors}
            left = tuple(tensor for tensor, key in keys.items() if key not in seen)
            seen.update(keys.values())
            if left:
                groups.setdefault(left, []).append(layer)
        for tensors, some in groups.items():
            yield (collect if tensors == collect.tensors else replace(collect, tensors=tensors)), tuple(some)
