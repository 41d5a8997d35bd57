"""A watched module as probes and journals know it, and what is wanted of it."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

Leaves = list[tuple[str, Any]]
# Of a module's activation, its output, and the output's gradient; None: not wanted.
ShownSites = tuple[int | None, int | None, int | None]

_numbers = itertools.count()  # not given twice


class Entry:
    """One watched module as probes and journals know it; the module itself is not kept, but its own parameters, as they change.

    Attributes:
        is_fed: what it was called with comes from other modules, and is no data.
        key: names it where only text can be handed over, see ``probe/compiled.py``.
    """

    __slots__ = ("__weakref__", "cls", "gradient_slots", "is_fed", "is_root", "key", "name", "weights")
    by_key: ClassVar[weakref.WeakValueDictionary[str, Entry]] = weakref.WeakValueDictionary()

    def __init__(self, name: str, cls: str, is_root: bool = False, weights: Mapping[str, Tensor | None] | None = None) -> None:
        self.is_root, self.is_fed = is_root, False
        self.name = name
        self.cls = cls
        self.weights: Mapping[str, Tensor | None] = {} if weights is None else weights
        self.gradient_slots: dict[str, str] = {}
        self.key = str(next(_numbers))
        Entry.by_key[self.key] = self

    def parameter(self, slot: str) -> str:
        """A parameter's name, as ``named_parameters`` gives it."""
        return f"{self.name}.{slot}" if self.name else slot

    def gradient_slot(self, slot: str) -> str:
        found = self.gradient_slots.get(slot)
        if found is None:
            found = self.gradient_slots[slot] = f"grad {slot}"
        return found


@dataclass(frozen=True, slots=True)
class LayerSites:
    """Where statistics of a layer's tensors go: an index for each tensor that is wanted at this step, else None.

    Args:
        evaluation: also in forwards in evaluation mode without gradients.
        attention: of the attention probabilities that the layer returns.
        parameters: names of its parameters, each with the index of its gradient as one backward makes it.
    """

    activation: int | None = None
    output: int | None = None
    gradient: int | None = None
    dgrad: int | None = None
    evaluation: bool = False
    attention: int | None = None
    parameters: tuple[tuple[str, int], ...] = ()

    @property
    def any(self) -> bool:
        tensors = (self.activation, self.output, self.gradient, self.dgrad, self.attention)
        return bool(self.parameters) or any(site is not None for site in tensors)

    @property
    def at_begin(self) -> bool:
        """Whether something has to be done as the layer's call begins."""
        return self.activation is not None or self.dgrad is not None or bool(self.parameters)


class Wanted(NamedTuple):
    """The parts of a module's calls that are wanted at this step.

    Args:
        calls: its outermost calls are told.
        leaves: each of its calls is told, with its leaves and their gradients.
        sites: what statistics want.
        shown: of ``sites``, what a ``Witness`` can show: activation, output, gradient; None: only Python can.
        marks: the same for dynamo, to which text is constant while a number may vary: activation, output, gradient, dgrad, attention;
            "": not wanted.
    """

    calls: bool = False
    leaves: bool = False
    sites: LayerSites | None = None
    shown: ShownSites | None = None
    marks: tuple[str, str, str, str, str] = ("", "", "", "", "")

    @classmethod
    def of(cls, calls: bool, leaves: bool, sites: LayerSites | None) -> Wanted:
        if sites is None:
            return cls(calls, leaves)
        activation, output, gradient, dgrad, attention = (
            "" if site is None else str(site) for site in (sites.activation, sites.output, sites.gradient, sites.dgrad, sites.attention)
        )
        shown = (sites.activation, sites.output, sites.gradient) if sites.dgrad is sites.attention is None else None
        return cls(calls, leaves, sites, shown, (activation, output, gradient, dgrad, attention))
