"""Tells models of one class apart that are in use at the same time."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

from numscope.probe.naming import free_name


class Numbering:
    """A watched model's name: its class, and a number once an older model of that class has gone on beside it: ``Net``, ``Net_2``.

    Models that follow one another, as those of several folds do, keep the class's name.

    Args:
        cls: the class's name.
        older: of the open watches.
        renamed: a method that is called with the new name; it is held weakly.
    """

    def __init__(self, cls: str, older: Iterable[Numbering], renamed: Callable[[str], None]) -> None:
        self.cls = self.name = cls
        self.younger: list[weakref.ref[Numbering]] = []  # that began since this model's last call
        self._beside: set[str] = set()
        self._renamed = weakref.WeakMethod(renamed)
        for one in older:
            if one.cls == cls:
                one.younger.append(weakref.ref(self))

    def goes_on(self) -> None:
        """This model is called, and there are younger ones."""
        younger = [one for ref in self.younger if (one := ref()) is not None]
        self.younger.clear()
        for one in younger:
            one._beside.add(self.name)
            one.name = free_name(one.cls, one._beside)
            if (renamed := one._renamed()) is not None:
                renamed(one.name)
