"""Names of tensors that may die before they are asked for."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

_FEW_NAMES = 256  # from here on those of dead tensors are dropped now and then


class Named(Mapping[int, str]):
    """Names of living tensors, by id. Nothing is called when one dies: an exception that strikes such a call would be lost."""

    def __init__(self) -> None:
        self.items_by_id: dict[int, tuple[weakref.ref[Tensor], str]] = {}  # for C, which looks into it by itself
        self._most = _FEW_NAMES

    def add(self, tensor: Tensor, name: str) -> None:
        if len(self.items_by_id) >= self._most:
            self._drop_dead()
            self._most = max(_FEW_NAMES, 2 * len(self.items_by_id))
        self.items_by_id[id(tensor)] = weakref.ref(tensor), name

    def living(self, prefix: str = "") -> list[Tensor]:
        """The tensors whose names begin so."""
        self._drop_dead()
        return [t for ref, name in self.items_by_id.values() if name.startswith(prefix) and (t := ref()) is not None]

    def _drop_dead(self) -> None:
        for key in [key for key, item in self.items_by_id.items() if item[0]() is None]:
            del self.items_by_id[key]

    def clear(self) -> None:
        self.items_by_id.clear()

    def get(self, key: int, default: Any = None) -> Any:
        known = self.items_by_id.get(key)
        return default if known is None or known[0]() is None else known[1]  # where one has died, another one may be

    def __getitem__(self, key: int) -> str:
        if (name := self.get(key)) is None:
            raise KeyError(key)
        return str(name)

    def __iter__(self) -> Iterator[int]:
        return map(id, self.living())

    def __len__(self) -> int:
        return len(self.living())
