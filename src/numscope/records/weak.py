"""Attributes that do not keep their values alive."""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Weak(Generic[T]):
    """An attribute that does not keep its value alive; only what ends with the value may ask for it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_weak_{name}"

    def __get__(self, owner: Any, kind: type | None = None) -> T:
        found: T = owner.__dict__[self._name]()
        return found

    def __set__(self, owner: Any, value: T) -> None:
        owner.__dict__[self._name] = weakref.ref(value)
