"""One tensor as a tape needs it, at one time: the tensor may change, or go, before a record is made of it."""

from __future__ import annotations

import struct
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from numscope.records.faults import ours

UNREAD = -3  # in a row's place: nobody has looked at the numbers

Region = tuple[int, torch.dtype, tuple[tuple[int, int], ...]]


class Glance:
    """One tensor as an operation got or left it.

    Args:
        key: its id.
        storage: its memory; None where it has none of its own, as sparse tensors and functorch's.
        address: the storage's ``_cdata``.
        offset, shape, strides: in elements.
        row: handle of its numbers, ``UNREAD`` if nobody has looked at them.
        name: of the tensor, if known.
        tensor: itself, while it is at hand.
    """

    __slots__ = ("address", "dtype", "is_parameter", "key", "name", "offset", "row", "shape", "storage", "strides", "tensor")

    def __init__(
        self,
        key: int,
        storage: weakref.ref[torch.UntypedStorage] | None,
        address: int,
        offset: int,
        dtype: torch.dtype,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        *,
        row: int = UNREAD,
        name: str = "",
        is_parameter: bool = False,
        tensor: Tensor | None = None,
    ) -> None:
        self.key, self.storage, self.address, self.offset, self.dtype = key, storage, address, offset, dtype
        self.shape, self.strides, self.row, self.name, self.is_parameter, self.tensor = shape, strides, row, name, is_parameter, tensor

    @classmethod
    def at(cls, tensor: Tensor, names: Mapping[int, str] | None = None) -> Glance:
        """Of a tensor, which it keeps."""
        key, dtype, is_parameter = id(tensor), tensor.dtype, isinstance(tensor, Parameter)
        name = "" if names is None else names.get(key, "")
        if tensor.layout is torch.strided and not tensor.is_nested:
            try:
                storage = tensor.untyped_storage()
                place = int(tensor.storage_offset()), dtype, tuple(tensor.shape), tensor.stride()
                # not torch's StorageWeakRef, whose __del__ loses a signal handler's exception
                return cls(key, weakref.ref(storage), storage._cdata, *place, name=name, is_parameter=is_parameter, tensor=tensor)
            except ours(RuntimeError, NotImplementedError):  # functorch's wrappers and the like
                pass
        return cls(key, None, 0, 0, dtype, shape_of(tensor), (), name=name, is_parameter=is_parameter, tensor=tensor)

    @classmethod
    def unpacked(cls, packed: bytes, dtype: torch.dtype, storage: weakref.ref[torch.UntypedStorage], name: str) -> Glance:
        """Of what C has noted: the integers are id, address, offset, row, whether it is a parameter, rank, sizes and strides."""
        key, address, offset, row, is_parameter, _, *rest = struct.unpack(f"{len(packed) // 8}q", packed)
        shape, strides = tuple(rest[: len(rest) // 2]), tuple(rest[len(rest) // 2 :])
        return cls(key, storage, address, offset, dtype, shape, strides, row=row, name=name, is_parameter=bool(is_parameter))

    def region(self) -> tuple[Region, int, int, bool]:
        """A canonical region of its storage: the same for ``x``, ``x.t()`` and ``x.reshape(-1)``; its first byte, the one past its last
        byte, and whether all bytes between are its own."""
        offset, size = self.offset, self.dtype.itemsize
        dims: list[tuple[int, int]] = []
        last = 0
        for stride, length in sorted((s, n) for n, s in zip(self.shape, self.strides, strict=True) if n != 1 and s != 0):
            last += (length - 1) * stride
            if dims and dims[-1][0] * dims[-1][1] == stride:
                dims[-1] = (dims[-1][0], dims[-1][1] * length)
            else:
                dims.append((stride, length))
        low, high = offset * size, (offset + last + 1) * size
        return (offset, self.dtype, tuple(dims)), low, high, not dims or (len(dims) == 1 and dims[0][0] == 1)

    def part(self, dim: int, begin: int, length: int) -> Glance:
        """Of ``tensor.narrow(dim, begin, length)``."""
        shape = *self.shape[:dim], length, *self.shape[dim + 1 :]
        offset = self.offset + begin * self.strides[dim]
        return Glance(self.key, self.storage, self.address, offset, self.dtype, shape, self.strides)


def glances(value: Any, names: Mapping[int, str]) -> Any:
    """An argument, or a result, with a glance in the place of each tensor."""
    if isinstance(value, Tensor):
        return Glance.at(value, names)
    if isinstance(value, list | tuple):
        items = [glances(item, names) for item in value]
        return items if any(item is not was for item, was in zip(items, value, strict=True)) else value
    return {key: glances(item, names) for key, item in value.items()} if isinstance(value, dict) else value


def unpacked(layout: bytes, flat: Iterator[Any]) -> list[Any]:
    """Arguments, or results, as C has noted them: ``t`` is a tensor, ``v`` another value, brackets are a list's."""
    found: list[Any] = []
    outer: list[list[Any]] = []
    for kind in layout.decode():
        if kind == "[":
            outer.append(found)
            found = []
        elif kind == "]":
            outer[-1].append(found)
            found = outer.pop()
        else:
            found.append(Glance.unpacked(next(flat), next(flat), next(flat), next(flat)) if kind == "t" else next(flat))
    return found


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    try:
        return tuple(tensor.shape)
    except ours(RuntimeError):  # a nested tensor has none
        return ()
