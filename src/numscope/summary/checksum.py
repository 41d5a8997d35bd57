"""64-bit checksums of tensors' bits: equal tensors have equal sums, and sums of parts add up to the whole's.

A tensor is a string of 32-bit words, in the order of its indices, whatever its strides. Its sum is that of key(i) · (word + its upper half)
over all words i, modulo 2^64, with a fixed pseudorandom odd key for each position.

- **It adds up**: parts can be summed by threads, or by ranks that know where their part begins, in any order.
- **Positions count**: two rows that are swapped change the sum. Without positions they would not, and a wrong gather of shards or
  transposed weights would go unseen; keys also cost less than mixing each element by itself.
- **Bits count**: 0.0 and -0.0 differ, and so do nans of different payload.
- **What it misses**: no change of one word. Of other changes that are not made on purpose, 1 in 2^48 (upper bits alone) to 2^64.
- **What it can't see**: zeros at the end, so shapes are to be compared too; and dtypes, since bits are bits.

*Source:* multilinear hashing, Carter and Wegman, Universal classes of hash functions, 1979.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import pad

from numscope.summary import native
from numscope.summary.host_copy import HostCopy
from numscope.summary.sampling import MOST, sampled, steps_of
from numscope.summary.unseen import unseen
from numscope.summary.unwrap import Unsummarizable, address_of, describe, plain

_MASK = (1 << 64) - 1
_BLOCK_WORDS = 1024  # share a key, of which each word's is a multiple; mirrors csrc/checksum.cpp
_PART_BYTES = 1 << 24  # bytes that the torch backend reads at a time; its memory is 6 times that


def checksum(tensor: Tensor, first: int = 0) -> int:
    """The sum of one tensor, of any dtype, strides and device. *Cost:* one pass over memory; a sync for a tensor on a device.

    Args:
        first: position of its first element, where it is a part of a larger one; a complex number takes two.

    Raises: Unsummarizable.
    """
    return Checksums([tensor], [first]).read()[0]


def merged(sums: Sequence[int]) -> int:
    """The sum of a whole from those of its parts."""
    return sum(sums) & _MASK


class Checksums:
    """The sums of many tensors: those in CPU memory in one native call.

    Args:
        tensors: what ``plain`` can make plain.
        firsts: position of each one's first element.
        sample: of each only the elements of ``sampled``.

    Raises: Unsummarizable.

    *Cost:* one pass over memory, and some 3 µs a tensor. On devices the sums come to the host when they are done, without a sync.
    """

    def __init__(self, tensors: Sequence[Tensor], firsts: Sequence[int] | None = None, *, sample: bool = False) -> None:
        firsts = firsts or [0] * len(tensors)
        self._sums: list[int] = [0] * len(tensors)
        self._pending: list[tuple[list[int], HostCopy]] = []  # by device
        batch = _Batch(sample)
        others = []
        with torch._C.DisableTorchFunction():
            for i, tensor in enumerate(tensors):
                if _is_simple(tensor):
                    batch.add(i, tensor, firsts[i])
                else:
                    others.append(i)
        if others:
            found: dict[torch.device, list[tuple[int, Tensor]]] = {}
            with unseen():
                for i in others:
                    bits = _numbers(plain(tensors[i]))
                    if bits.device.type == "cpu" and native.module is not None:
                        batch.add(i, bits, firsts[i])
                    else:
                        own = sum_on_device(sampled(bits) if sample else bits, firsts[i])
                        found.setdefault(bits.device, []).append((i, own))
                self._pending = [([i for i, _ in sums], HostCopy(torch.stack([own for _, own in sums]))) for sums in found.values()]
        for i, value in zip(batch.places, batch.sums(), strict=True):
            self._sums[i] = value

    @property
    def are_here(self) -> bool:
        """Whether ``read`` returns without waiting."""
        return all(late.is_here for _, late in self._pending)

    def read(self) -> list[int]:
        """Each tensor's sum, from 0 to 2^64 - 1. *Cost:* a sync for each device whose sums are not here."""
        for places, late in self._pending:
            for i, value in zip(places, late.take().tolist(), strict=True):
                self._sums[i] = value & _MASK
        self._pending.clear()
        return self._sums


def _numbers(tensor: Tensor) -> Tensor:
    """A strided tensor whose elements are of 8 bytes at most: complex numbers are two each."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise Unsummarizable(describe(tensor))
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _is_simple(tensor: Tensor) -> bool:
    """Whether a tensor's memory can be read directly, without a torch operation. *Cost:* 1 µs."""
    if native.module is None or (type(tensor) is not Tensor and type(tensor) is not Parameter):
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or not tensor.is_cpu or tensor.dtype not in native.CODES:
        return False
    is_plain = tensor.layout is torch.strided and not tensor.is_neg() and not tensor.is_nested
    return is_plain and (tensor.numel() == 0 or address_of(tensor) != 0)


class _Batch:
    """Tensors for one native call; keeps them and their layouts."""

    def __init__(self, sample: bool) -> None:
        self.places: list[int] = []
        self._sample = sample
        self._entries = array("q")
        self._kept: list[object] = []

    def add(self, place: int, tensor: Tensor, first: int) -> None:
        self.places.append(place)
        shape, strides, numel, at = tuple(tensor.shape), tensor.stride(), tensor.numel(), 0
        is_sampled = self._sample and numel > MOST
        if is_sampled:
            steps, shape = steps_of(shape)
            strides = tuple(step * stride for step, stride in zip(steps, strides, strict=True))
            numel = prod(shape)
        if is_sampled or not tensor.is_contiguous():
            layout = array("q", (len(shape), *shape, *strides))
            at = layout.buffer_info()[0]
            self._kept.append(layout)
        self._kept.append(tensor)
        self._entries.extend((tensor.data_ptr(), numel, tensor.itemsize, first * tensor.itemsize, at))

    def sums(self) -> list[int]:
        if not self.places:
            return []
        sums = (ctypes.c_uint64 * len(self.places))()
        assert native.module is not None
        native.module.checksum(self._entries.buffer_info()[0], len(self.places), ctypes.addressof(sums), torch.get_num_threads())
        return list(sums)


# ---- with torch's operations, on any device


def sum_on_device(tensor: Tensor, first: int = 0) -> Tensor:
    """A plain tensor's sum as a signed integer without dimensions, on its device. *Cost:* some ten passes; no sync."""
    flat = tensor.contiguous().as_strided((tensor.numel(),), (1,))
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for begin in range(0, flat.numel(), step := _PART_BYTES // tensor.itemsize):
        total = total + _sum_of_bytes(flat[begin : begin + step].view(torch.uint8), (first + begin) * tensor.itemsize)
    return total


def flipped_bit(before: int, tensor: Tensor) -> int | None:
    """The bit of a plain tensor's memory, counted from its first one, whose flip alone gives it another sum than ``before``; None: more
    has changed, or nothing. Words and their sums grow together, so the change and what is there now leave no doubt.

    *Cost:* some ten passes over two numbers for each four bytes, and a sync for a tensor on a device.
    """
    change = (checksum(tensor) - before) & _MASK
    low = (change & -change).bit_length() - 1  # a word's key is odd
    if not 0 <= low < 16:
        return None
    both = change * pow((1 << 16) + 1, -1, 1 << 64)  # what a bit of a word's upper half changes, which counts twice
    wanted = [(low + upper, sign, _signed(sign * one & _MASK)) for upper, one in ((0, change), (16, both)) for sign in (1, -1)]
    with unseen():
        data = tensor.detach().reshape(-1).view(torch.uint8)
        num = -(-len(data) // (4 * _BLOCK_WORDS))
        for block in range(0, num, step := _PART_BYTES // (4 * _BLOCK_WORDS)):
            places, blocks = _keys(block, min(step, num - block), torch.device("cpu"))
            keys = (places * blocks[:, None]).flatten() << low
            for bit, sign, value in wanted:
                for word in (keys == value).nonzero().flatten().tolist():
                    at = 32 * (block * _BLOCK_WORDS + int(word)) + bit
                    if at < 8 * len(data) and (int(data[at // 8]) >> at % 8 & 1) == (sign > 0):
                        return at
    return None


def _sum_of_bytes(data: Tensor, position: int) -> Tensor:
    block_bytes = 4 * _BLOCK_WORDS
    before = position % block_bytes
    whole = pad(data, (before, -(before + data.numel()) % block_bytes)).view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    words = (whole + (whole >> 16)).view(-1, _BLOCK_WORDS)
    places, blocks = _keys(position // block_bytes, len(words), data.device)
    return ((words * places).sum(1) * blocks).sum()  # integers wrap, as in C


def _keys(first: int, num: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Of the words of a block, and of some blocks: a word's key is their product."""
    places = torch.arange(_BLOCK_WORDS, dtype=torch.int64, device=device)
    blocks = first + torch.arange(num, dtype=torch.int64, device=device)
    return _mixed(places + 1) | 1, _mixed(~blocks) | 1


def _mixed(x: Tensor) -> Tensor:
    x = x * _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shifted(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shifted(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shifted(x, 31)


def _signed(constant: int) -> int:
    return constant - (1 << 64) if constant >> 63 else constant


def _shifted(x: Tensor, bits: int) -> Tensor:
    """To the right, as unsigned numbers."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
