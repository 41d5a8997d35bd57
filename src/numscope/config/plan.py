"""A configuration as plain data: what to collect, from which layers, at which steps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from numscope.config.alert_plan import AlertPlan
from numscope.config.matching import compiled
from numscope.records.observation import Names

if TYPE_CHECKING:
    from numscope.records.layer import Layer


# `layer4`, `Layer_1`, `decoder_block2`, `h_3`; never `fc1`, `w1`, `conv2`: their digits distinguish parts of one layer.
_NUMBERED_SEGMENT = re.compile(r"(?:layer|block)s?_?([0-9]{1,9})\Z|^h_?([0-9]{1,9})\Z", re.IGNORECASE)
_WHOLE = re.compile(r"[0-9]{1,9}")
_EXPERTS = re.compile(r"experts?$", re.IGNORECASE)


def number_of(name: str) -> int | None:
    """The layer number in a name; None without one.

    The first path segment that is a number counts (``encoder.block.3.layer.1`` is of layer 3), except an expert's
    (``experts.3``, ``local_experts.0``); else the digits at the end of a segment such as ``layer4`` or ``Layer_1``.
    """
    found = _number_in(name.split("."))
    return None if found is None else found[1]


def block_of(name: str) -> str:
    """The part of a name that ends with its layer number (``decoder.layers.3``); the whole name without one."""
    segments = name.split(".")
    found = _number_in(segments)
    return name if found is None else ".".join(segments[: found[0] + 1])


def group_of(by: str, name: str, cls: str) -> str | None:
    """The group that a layer belongs to, where layers are merged; None: to none.

    ``by``: ``layer`` (its number), ``name``, ``type`` (its class), ``tensor`` and ``all`` (one group of all layers), or a regex: the text
    of its groups names the group, without groups the text that it finds.
    """
    groups = {"layer": block_of(name), "name": name, "type": cls, "tensor": "", "all": "all"}
    if by in groups:
        return groups[by]
    found = compiled(by).search(name)
    return None if found is None else ".".join(part for part in found[1:] if part) or found[0]


def _number_in(segments: list[str]) -> tuple[int, int] | None:
    """(place of the segment with the layer number, the number)."""
    for place, (before, segment) in enumerate(zip(("", *segments), segments, strict=False)):
        if _WHOLE.fullmatch(segment) and not _EXPERTS.search(before):
            return place, int(segment)
    for place, segment in enumerate(segments):
        if match := _NUMBERED_SEGMENT.search(segment):
            return place, int(match[1] or match[2])
    return None


@dataclass(frozen=True, slots=True)
class Selection:
    """Layers by name, by number, by type; made by ``config``, which checks it. Nothing given: every layer."""

    pattern: str | None = None  # regex searched for in the layer's name; alone
    numbers: frozenset[int] | None = None  # layer numbers; None: any
    types: tuple[str, ...] | None = None  # parts of a layer's name, or class names; None: any
    containers: bool = False  # also modules without their own parameters
    names: tuple[str, ...] | None = None  # layers' names as they are; alone

    def selects(self, layer: Layer) -> bool:
        """Whether a layer is among those."""
        return (self.containers or layer.owns_parameters) and self.describes(layer)

    def describes(self, layer: Layer) -> bool:
        """Whether a layer is among those, whatever it owns."""
        if self.names is not None:
            return layer.name in self.names
        if self.pattern is not None:
            return compiled(self.pattern).search(layer.name) is not None
        if self.numbers is not None and number_of(layer.name) not in self.numbers:
            return False
        return self.types is None or any(is_of_type(layer, word) for word in self.types)


def is_of_type(layer: Layer, word: str) -> bool:
    """Whether ``word`` is part of the layer's name, or its class."""
    return word in layer.name or word == layer.cls


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps at which something is done: every ``freq``-th (step % freq == 0) within inclusive bounds."""

    freq: int = 1  # at least 1
    spans: tuple[tuple[int, int | None], ...] = ((0, None),)  # first and last steps, both included; last None: for ever

    def active(self, step: int) -> bool:
        return step % self.freq == 0 and any(first <= step and (last is None or step <= last) for first, last in self.spans)

    def next(self, after: int) -> int | None:
        """The first step on the schedule that comes after a step; None: there is none."""
        firsts = [(max(first, after + 1), last) for first, last in self.spans]
        steps = [(first + -first % self.freq, last) for first, last in firsts]
        return min((step for step, last in steps if last is None or step <= last), default=None)


@dataclass(frozen=True, slots=True)
class StatRequest:
    label: str  # the name in logs, as written in the configuration
    statistic: str  # its canonical name in ``summary/statistics.py``
    options: tuple[tuple[str, Any], ...] = ()  # such as ``(("block_size", 32), ("dims", 1))``


@dataclass(frozen=True, slots=True)
class Part:
    """One feature of a section."""

    section: str  # as written in the configuration, for messages
    feature: str  # likewise, with its namespace
    selection: Selection
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Collect(Part):
    """Statistics of some tensors of some layers at some steps."""

    tensors: tuple[str, ...]
    stats: tuple[StatRequest, ...]
    # Merge over the ranks that share the tensor; False: each rank logs its own; "when read": each rank logs its own part, and one of
    # several ranks with the same part logs it, so that a reader can merge the parts.
    reduce: bool | Literal["when read"] = True
    merge: str | None = None  # also statistics of groups of sites: ``layer``, ``type``, ``all`` or a regex whose groups name them
    evaluation: bool = False  # also of forwards in evaluation mode without gradients


@dataclass(frozen=True, slots=True)
class Switch(Part):
    """A precision feature (``disable_fp8_gemm`` and its like): read and checked here; ``precision/gemm/switching.py`` applies it."""

    # Canonical keys: tuples of ``gemms`` and ``tensors`` (None: all), of ``StatRequest`` for ``stats``.
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class PluginFeature(Part):
    """A feature that a plug-in brought."""

    tensors: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole configuration."""

    source: str  # the file's name, or ``config``
    collects: tuple[Collect, ...] = ()
    switches: tuple[Switch, ...] = ()
    customs: tuple[PluginFeature, ...] = ()
    notes: tuple[str, ...] = ()  # logged once: sections that are off, features that find nothing to act on
    text: str = ""  # the configuration as it was given, for the log and run.json
    reload: bool = False  # the file is read again when it is edited during the run
    alerts: AlertPlan = field(default_factory=AlertPlan)
    names: Names | None = None  # of statistics in dashboards; None: not said
    check: str | None = None  # as ``watch(check=…)`` takes it

    @property
    def parts(self) -> tuple[Collect | Switch | PluginFeature, ...]:
        """All parts of all kinds."""
        return (*self.collects, *self.switches, *self.customs)
