"""Which layers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numscope.config.matching import compiled

if TYPE_CHECKING:
    from numscope.records.layer import Layer

# `layer4`, `Layer_1`, `decoder_block2`, `h_3`; never `fc1`, `w1`, `conv2`: their digits tell parts of one layer apart.
_NUMBERED_SEGMENT = re.compile(r"(?:layer|block)s?_?([0-9]{1,9})\Z|^h_?([0-9]{1,9})\Z", re.IGNORECASE)
_WHOLE = re.compile(r"[0-9]{1,9}")
_EXPERTS = re.compile(r"experts?$", re.IGNORECASE)


def number_of(name: str) -> int | None:
    """The layer number that a name tells, None where it tells none.

    The first path segment that is a number counts (``encoder.block.3.layer.1`` is of layer 3), except an expert's
    (``experts.3``, ``local_experts.0``); else the digits at the end of a segment such as ``layer4`` or ``Layer_1``.
    """
    found = _number_in(name.split("."))
    return None if found is None else found[1]


def block_of(name: str) -> str:
    """The part of a name that ends with its layer number (``decoder.layers.3``); the whole name where it tells none."""
    segments = name.split(".")
    found = _number_in(segments)
    return name if found is None else ".".join(segments[: found[0] + 1])


def group_of(by: str, name: str, cls: str) -> str | None:
    """The group that a layer belongs to, where layers are merged; None: to none.

    Args:
        by: ``layer`` (its number), ``name``, ``type`` (its class), ``tensor`` and ``all`` (one group of all layers), or a regex: the text
            of its groups names the group, without groups the text that it finds.
    """
    groups = {"layer": block_of(name), "name": name, "type": cls, "tensor": "", "all": "all"}
    if by in groups:
        return groups[by]
    found = compiled(by).search(name)
    return None if found is None else ".".join(part for part in found[1:] if part) or found[0]


def _number_in(segments: list[str]) -> tuple[int, int] | None:
    """(place of the segment that tells the layer number, the number)."""
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
    containers: bool = False  # modules without parameters of their own too
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
