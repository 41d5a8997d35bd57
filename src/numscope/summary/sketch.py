"""Sketches: 32 signed sums of a tensor's elements, by which distances and angles between tensors are estimated without the tensors.

Element i has a 32-bit hash h(i) of its index within the whole tensor, in row-major order. It is added to four of the sums, one of each
eight: in the t-th eight to the sum (i mod 8) xor r, where r are bits 3t to 3t + 2 of h(8 ⌊i / 8⌋), with the sign of bit 31 - t of h(i).
So sketches are linear, and those of parts add up to the whole's wherever each part knows its place. The mean over the four of the sums'
squares has the mean |x|² and the variance 2/32 |x|⁴ at most, whatever x is. The hash is lowbias32, of the index's lower half, xor a hash
of its upper half.

Elements accumulate in float32 over 512 at most (float64 for float64 and integers of 32 bits and more), then in float64: sketches of the
same elements that were cut in other places agree to 2^-21 of the norm.

*Source:* Johnson and Lindenstrauss, 1984, in the form of Kane and Nelson, Sparser Johnson-Lindenstrauss transforms, 2014, with four
nonzeros a column.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import torch
from torch import Tensor

from numscope.records.fingerprint import LOW, NUM_SUMS, REPEATS, WHOLE, Sketch, merge_all
from numscope.summary import native
from numscope.summary.checksum import Checksums, merged, sum_on_device
from numscope.summary.unseen import unseen
from numscope.summary.unwrap import Unsummarizable, describe, plain

_GROUP = NUM_SUMS // REPEATS
_PART = 1 << 20  # elements that torch's operations take at a time; their memory is 60 times that
_WIDTH = 4 + len(LOW) + NUM_SUMS  # numbers in a native sketch
_MASK = (1 << 32) - 1


Stretches = tuple[tuple[int, int, int], ...]  # along a dimension: where one begins here, where in the whole, and how long it is


@dataclass(frozen=True)
class Piece:
    """A part of a larger tensor, and where it lies in it.

    Args:
        tensor: the elements that are here, of any strides and device.
        shape: the whole's; as many dimensions as ``tensor`` has.
        stretches: for each dimension, the stretches of the whole's that are here.
        unflat: the whole's own shape, where ``shape`` is that of the whole laid flat.
    """

    tensor: Tensor
    shape: tuple[int, ...]
    stretches: tuple[Stretches, ...]
    unflat: tuple[int, ...] | None = None

    @classmethod
    def at(cls, tensor: Tensor, shape: Sequence[int], starts: Sequence[int]) -> Piece:
        """A block that begins at these indices of the whole."""
        return cls(tensor, tuple(shape), tuple(((0, start, n),) if n else () for start, n in zip(starts, tensor.shape, strict=True)))

    @classmethod
    def stretch(cls, tensor: Tensor, first: int, shape: Sequence[int]) -> Piece:
        """Elements, without dimensions, that begin at an index of the whole in row-major order."""
        return replace(cls.at(tensor, (prod(shape),), (first,)), unflat=tuple(shape))

    @property
    def whole_shape(self) -> tuple[int, ...]:
        """The shape that the whole has."""
        return self.shape if self.unflat is None else self.unflat

    @property
    def place(self) -> str:
        """Where it lies, such as ``[0:8, 4:8]``; ``""`` for all of it."""
        if tuple(self.tensor.shape) == self.shape:
            return WHOLE
        return f"[{', '.join('+'.join(f'{start}:{start + n}' for _, start, n in along) for along in self.stretches)}]"

    @property
    def num_rows(self) -> int:
        """Stretches of the whole that it is made of, at most: 1 for all of it and for a part along the first dimension."""
        cut = [d for d, n in enumerate(self.shape) if self.tensor.shape[d] != n]
        return prod(self.tensor.shape[: cut[-1]]) if cut else 1


def part_of(tensor: Tensor) -> Piece:
    """The part of a tensor that this rank has: of a distributed one its shard, of DeepSpeed's ZeRO 3 its stretch, else all of it.

    Raises: Unsummarizable: it can't be read, or its elements are summands of those of the whole (``Partial``).
    """
    placements: Any = getattr(tensor, "placements", None)
    partition: Any = getattr(tensor, "ds_tensor", None)  # ZeRO 3 empties the parameter between its module's calls
    if partition is not None:
        first = partition.ds_numel * torch.distributed.get_rank(tensor.ds_process_group)  # type: ignore[attr-defined]
        own = plain(partition)[: max(0, tensor.ds_numel - first)]  # type: ignore[attr-defined]
        return Piece.stretch(own, first, tensor.ds_shape)  # type: ignore[attr-defined]
    if placements is None:
        own = plain(tensor)
        return Piece.at(own, own.shape, (0,) * own.dim())
    if any(placement.is_partial() for placement in placements):
        raise Unsummarizable(f"{describe(tensor)}, whose elements are still to be summed over ranks")
    mesh: Any = tensor.device_mesh  # type: ignore[attr-defined]
    at = mesh.get_coordinate()
    indices = [torch.arange(n if at is not None else 0, device="cpu") for n in tensor.shape]
    for axis, placement in enumerate(placements):
        if at is not None and not placement.is_replicate():
            along = placement.dim % tensor.dim()
            strided = torch.chunk(indices[along], getattr(placement, "split_factor", 1))
            indices[along] = torch.cat([_share(piece, mesh.size(axis), at[axis]) for piece in strided])
    return Piece(plain(tensor), tuple(tensor.shape), tuple(map(_stretches, indices)))


def _share(piece: Tensor, num: int, own: int) -> Tensor:
    shares = torch.chunk(piece, num)
    return shares[own] if own < len(shares) else piece[:0]


def _stretches(along: Tensor) -> Stretches:
    if not along.numel():
        return ()
    breaks = (torch.diff(along) != 1).nonzero().flatten().add(1).tolist()
    begins = [0, *breaks]
    return tuple((a, int(along[a]), b - a) for a, b in zip(begins, [*breaks, along.numel()], strict=True))


def sketch(tensor: Tensor, first: int = 0) -> Sketch:
    """The sketch of one tensor, of any dtype, strides and device. *Cost:* one pass over memory; a sync for a tensor on a device.

    Args:
        first: index of its first element within the whole, where it is a stretch of a larger tensor.

    Raises: Unsummarizable.
    """
    flat = plain(tensor).reshape(-1)
    return sketches([Piece.at(flat, (first + flat.numel(),), (first,))])[0]


def sketches(parts: Sequence[Piece], *, rounds: bool = False) -> list[Sketch]:
    """A sketch of each part; those in CPU memory in one native call.

    Args:
        rounds: with the checksums of floating-point elements rounded to each dtype of ``LOW``; of a nan they have one form.

    Raises: Unsummarizable.

    *Cost:* one pass over memory, and some 20 µs a part, more for a shard that is no stretch of the whole.
    """
    with unseen():
        found: list[list[Sketch]] = [[] for _ in parts]
        here: list[tuple[list[Sketch], _Block]] = []  # those that the kernel reads
        for own, part in zip(found, parts, strict=True):
            for block in _blocks(part):
                if native.module is not None and block.data.is_cpu and block.data.dtype in native.CODES:
                    here.append((own, block))
                else:
                    own.append(_sketch_by_torch(block, rounds))
        for (own, _), one in zip(here, _native_sketches([block for _, block in here], rounds), strict=True):
            own.append(one)
    return [merge_all(own) for own in found]


def checksums(parts: Sequence[Piece]) -> list[int]:
    """The checksum of each part, as it counts in the whole tensor's: those of all parts add up.

    Raises: Unsummarizable.

    *Cost:* one pass over memory, and some 10 µs a part; of a shard that is no stretch of the whole, 3 µs for each of its rows.
    """
    owners: list[int] = []
    runs: list[Tensor] = []
    firsts: list[int] = []
    with unseen():
        for owner, part in enumerate(parts):
            for block in _blocks(part):
                for i, first in enumerate(_firsts(block)):
                    owners.append(owner)
                    runs.append(block.data[i * block.run : (i + 1) * block.run])
                    firsts.append(first)
        found = [0] * len(parts)
        for owner, value in zip(owners, Checksums(runs, firsts).read(), strict=True):
            found[owner] = merged([found[owner], value])
    return found


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of a whole tensor, flat in memory: rows of ``run`` elements from ``first`` on, as ``sizes`` and ``steps`` say."""

    data: Tensor
    first: int
    run: int
    sizes: tuple[int, ...]
    steps: tuple[int, ...]


def _blocks(part: Piece) -> Iterator[_Block]:
    tensor, shape, stretches = part.tensor, part.shape, part.stretches
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise Unsummarizable(describe(tensor))
    if tensor.is_complex():
        tensor, shape, stretches = torch.view_as_real(tensor), (*shape, 2), (*stretches, ((0, 0, 2),))
    if not tensor.numel():
        return
    steps = [prod(shape[d + 1 :]) for d in range(len(shape))]
    for pieces in product(*stretches):
        block = tensor
        for d, (begin, _, n) in enumerate(pieces):
            block = block.narrow(d, begin, n)
        outer = len(shape) - 1  # dimensions from here on lie in the whole as they do here
        while outer > 0 and block.shape[outer] == shape[outer]:
            outer -= 1
        first = sum(start * step for (_, start, _), step in zip(pieces, steps, strict=True))
        outer = max(outer, 0)
        yield _Block(block.contiguous().view(-1), first, prod(block.shape[outer:]), tuple(block.shape[:outer]), tuple(steps[:outer]))


def _native_sketches(blocks: Sequence[_Block], rounds: bool) -> list[Sketch]:
    if not blocks:
        return []
    entries, kept = array("q"), []
    for block in blocks:
        layout = array("q", (len(block.sizes), *block.sizes, *block.steps))
        kept.append(layout)
        at = layout.buffer_info()[0] if block.sizes else 0
        entries.extend((block.data.data_ptr(), block.data.numel(), native.CODES[block.data.dtype], block.first, block.run, at))
    found = (ctypes.c_double * (_WIDTH * len(blocks)))()
    assert native.module is not None
    native.module.sketch(entries.buffer_info()[0], len(blocks), ctypes.addressof(found), rounds, torch.get_num_threads())
    checksums = (ctypes.c_uint64 * len(found)).from_buffer(found)
    made = []
    for i, block in enumerate(blocks):
        at = i * _WIDTH
        checksum, *rounded = checksums[at : at + 1 + len(LOW)]
        num_nonfinite, total, square_sum, *sums = found[at + 1 + len(LOW) : at + _WIDTH]
        of_numbers = tuple(rounded) if block.data.is_floating_point() else (0,) * len(LOW)
        made.append(Sketch(block.data.numel(), int(num_nonfinite), checksum, total, square_sum, tuple(sums), of_numbers))
    return made


# ---- with torch's operations, on any device


def _firsts(block: _Block) -> list[int]:
    """Where each row of a block begins in the whole."""
    rows = torch.full((1,), block.first, dtype=torch.int64, device="cpu")
    for size, step in zip(block.sizes, block.steps, strict=True):
        rows = (rows[:, None] + step * torch.arange(size, device="cpu")).flatten()
    return rows.tolist()


def _sketch_by_torch(block: _Block, rounds: bool) -> Sketch:
    found = []
    dtypes = [getattr(torch, name) for name in LOW] if rounds and block.data.is_floating_point() else []
    for row, begin in enumerate(_firsts(block)):
        run = block.data[row * block.run : (row + 1) * block.run]
        checksum = int(sum_on_device(run, begin)) & ((1 << 64) - 1)
        for at in range(0, block.run, _PART):
            some = run[at : at + _PART]
            narrow = some.float() if dtypes else some
            lows = [sum_on_device(narrow.to(dtype).masked_fill_(narrow.isnan(), torch.nan), begin + at) for dtype in dtypes]
            rounded = tuple(value & ((1 << 64) - 1) for value in torch.stack(lows).tolist()) if lows else (0,) * len(LOW)
            found.append(replace(_sums_by_torch(some, begin + at, checksum if at == 0 else 0), rounded=rounded))
    return merge_all(found)


def add_sums(part: Piece, cells: Tensor) -> None:
    """Add a part's 32 sums to float64 numbers on its device. *Cost:* one pass over memory in host memory; on a device no sync, and some 60
    bytes an element of a million at a time. Raises: Unsummarizable."""
    if part.tensor.is_cpu:
        cells += torch.tensor(sketches([part])[0].sums, dtype=torch.float64, device="cpu")
        return
    with unseen():
        for block in _blocks(part):
            for row, begin in enumerate(_firsts(block)):
                for at in range(row * block.run, (row + 1) * block.run, _PART):
                    end = min(at + _PART, (row + 1) * block.run)
                    cells += _numbers_by_torch(block.data[at:end], begin + at - row * block.run)[3:]


def _sums_by_torch(run: Tensor, first: int, checksum: int) -> Sketch:
    num_nonfinite, total, square_sum, *flat = _numbers_by_torch(run, first).tolist()
    return Sketch(run.numel(), int(num_nonfinite), checksum, total, square_sum, tuple(flat))


def _numbers_by_torch(run: Tensor, first: int) -> Tensor:
    """How many are not finite, the sum, the sum of squares, and the 32 sums, in float64 on the device."""
    index = first + torch.arange(run.numel(), dtype=torch.int64, device=run.device)
    own, groups = hashes(index), hashes(index // _GROUP * _GROUP)
    values = run.double()
    is_finite = torch.isfinite(values)
    values = torch.where(is_finite, values, 0.0)
    sums = torch.zeros(REPEATS, _GROUP, dtype=torch.float64, device=run.device)
    for t in range(REPEATS):
        signs = 1 - 2 * (own >> (31 - t) & 1)
        sums[t].index_add_(0, index % _GROUP ^ groups >> 3 * t & (_GROUP - 1), values * signs)
    counts = torch.stack([(~is_finite).sum().double(), values.sum(), (values * values).sum()])
    return torch.cat([counts, sums.flatten()])


def hashes(index: Tensor) -> Tensor:
    """Each index's 32 bits, in int64."""
    return _mixed((index & _MASK) ^ _mixed((index >> 32) + 0x9E3779B9 & _MASK))


def _mixed(x: Tensor) -> Tensor:
    """Of 32-bit numbers in int64."""
    x = (x ^ x >> 16) * 0x21F0AAAD & _MASK
    x = (x ^ x >> 15) * 0x735A2D97 & _MASK
    return x ^ x >> 15
