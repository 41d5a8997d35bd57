"""Finds the living objects of a class."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Instances(Generic[T]):
    """The living instances of a class: found by one walk, then kept up to date by ``made``.

    Args:
        kind: gives the class; None while it is not loaded.
    """

    def __init__(self, kind: Callable[[], type[T] | None]) -> None:
        self._kind = kind
        self._found: weakref.WeakValueDictionary[int, Any] | None = None  # by id: they may have no hash

    def made(self, item: T) -> None:
        if self._found is not None:
            self._found[id(item)] = item

    def forget(self) -> None:
        """Stop keeping track: the next iteration is a walk again."""
        self._found = None

    def __iter__(self) -> Iterator[T]:
        """*Cost:* of the first look, one walk over all objects."""
        if self._found is None:
            kind = self._kind()
            self._found = weakref.WeakValueDictionary({id(item): item for item in (() if kind is None else instances_of(kind))})
        return iter(list(self._found.values()))


def instances_of(*wanted: type[T]) -> list[T]:
    """The living instances of some classes and their subclasses, which Python code must define: they refer to their class.

    ``gc.get_objects`` would also hold the tuples that other threads are just making, and Python raises SystemError in a thread whose tuple
    somebody else holds before it is complete. ``gc.get_referrers`` holds nothing but what it finds, and no other thread runs meanwhile.

    *Cost:* one walk over all objects, 100 ms for a million.
    """
    kinds: list[type] = [*wanted]
    for known in kinds:  # grows meanwhile
        children: list[type] = type.__subclasses__(known)
        kinds += [child for child in children if child not in kinds]
    return [item for item in gc.get_referrers(*kinds) if issubclass(type(item), wanted)]
