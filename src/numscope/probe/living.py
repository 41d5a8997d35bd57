"""Notes about objects that others own: they do not keep them alive, and ask them nothing, not even whether they are equal."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Generic, TypeVar

from numscope.records.faults import suppress

T = TypeVar("T")
V = TypeVar("V")


class Living(Generic[T]):
    """A list of objects that others own. *Cost:* of a look at it, 0.1 µs an object."""

    def __init__(self) -> None:
        self._refs: list[weakref.ref[T]] = []

    def add(self, item: T) -> None:
        """Put an object at the end, and take those off that are gone: there may be one a step."""
        self._take_off(None)
        self._refs.append(weakref.ref(item))

    def discard(self, item: T) -> None:
        """Take an object off, if it is there."""
        self._take_off(item)

    def _take_off(self, item: T | None) -> None:
        for ref in tuple(self._refs):  # in place, an object at a time: another thread may put one on meanwhile
            if ref() is item or ref() is None:
                with suppress(ValueError):
                    self._refs.remove(ref)

    def __iter__(self) -> Iterator[T]:
        """Those that live; another thread may add one or take one off meanwhile."""
        return iter([item for ref in tuple(self._refs) if (item := ref()) is not None])

    def __len__(self) -> int:
        return sum(ref() is not None for ref in tuple(self._refs))

    def __reversed__(self) -> Iterator[T]:
        return reversed(list(self))


class Beside(MutableMapping[T, V], Generic[T, V]):
    """A value for each of some objects, found by identity: a script's own optimizer may define ``__eq__`` and have no hash."""

    def __init__(self) -> None:
        self._items: dict[int, tuple[weakref.ref[T], V]] = {}

    def __setitem__(self, item: T, value: V) -> None:
        key, items = id(item), self._items

        def forget(ref: weakref.ref[T]) -> None:
            if key in items and items[key][0] is ref:
                del items[key]

        items[key] = weakref.ref(item, forget), value

    def __getitem__(self, item: T) -> V:
        ref, value = self._items[id(item)]
        if ref() is not item:
            raise KeyError(type(item))
        return value

    def __delitem__(self, item: T) -> None:
        del self._items[id(item)]

    def __contains__(self, item: object) -> bool:
        known = self._items.get(id(item))
        return known is not None and known[0]() is item

    def __iter__(self) -> Iterator[T]:
        return iter([item for ref, _ in tuple(self._items.values()) if (item := ref()) is not None])

    def __len__(self) -> int:
        return len(self._items)


class Parts(MutableMapping[T, V], Generic[T, V]):
    """A value for a whole and for each of its parts, the whole first. The parts are kept alive, the whole is not.

    Args:
        whole: the object that is not kept, such as a watched model: what hangs on its parts would otherwise keep it in a cycle.
        items: the values.

    Attributes:
        parts: the values without the whole's.
    """

    def __init__(self, whole: T, items: Mapping[T, V]) -> None:
        self._whole = weakref.ref(whole)
        self._own: list[V] = []
        self.parts: dict[T, V] = {}
        self.update(items)

    def __setitem__(self, item: T, value: V) -> None:
        if item is self._whole():
            self._own = [value]
        else:
            self.parts[item] = value

    def __getitem__(self, item: T) -> V:
        return self._own[0] if self._own and item is self._whole() else self.parts[item]

    def __delitem__(self, item: T) -> None:
        if item is self._whole():
            self._own = []
        else:
            del self.parts[item]

    def __contains__(self, item: object) -> bool:
        return item in self.parts or (bool(self._own) and item is self._whole())

    def __iter__(self) -> Iterator[T]:
        whole = self._whole() if self._own else None
        return iter(self.parts if whole is None else [whole, *self.parts])

    def __len__(self) -> int:
        return len(self.parts) + bool(self._own)

    def clear(self) -> None:
        self._own = []
        self.parts.clear()
