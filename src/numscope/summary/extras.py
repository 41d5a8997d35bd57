"""Further columns beside a summary's row: exponent histograms, what-if casts, block ranges, weight dynamics. Plain data.

Like a row, an extra is float64 *cells* that merge: by adding, or by taking the larger. Cells that take the larger are never negative,
except in a plug-in's statistic. So the empty cell is zero, or minus infinity there. A ``Layout`` says which cells a site has.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from numscope.records.errors import UsageError
from numscope.records.formats import FORMATS, Format

KINDS = ("exponents", "format", "blockwise")  # of a tensor's values; mirrors csrc/extras.h
NUM_EXPONENTS = 256
MAX_BLOCK_SIZE = 1024  # mirrors csrc/extras.h


@dataclass(frozen=True, slots=True)
class PaperCast:
    """A cast of a tensor on paper: to which format, and how.

    Args:
        name: as statistics are prefixed.
        format: what is cast to.
        scaled: cast with the tensor's own scale (the format's maximum / amax), and saturating; else as it is, and overflowing to infinity.
        code: what the kernel knows it by; mirrors csrc/extras.h.
    """

    name: str
    format: Format
    scaled: bool
    code: int


CASTS: dict[str, PaperCast] = {
    "e4m3": PaperCast("e4m3", FORMATS["e4m3fn"], scaled=True, code=0),
    "e5m2": PaperCast("e5m2", FORMATS["e5m2"], scaled=True, code=1),
    "fp16": PaperCast("fp16", FORMATS["fp16"], scaled=False, code=2),
    "bf16": PaperCast("bf16", FORMATS["bf16"], scaled=False, code=3),
}


@dataclass(frozen=True, slots=True)
class Extra:
    """Cells that one kernel, or one look at an update, fills together.

    Args:
        key: names it among all extras.
        columns: name of each column.
        widths: cells of each column; a column of several is a list where it is named.
        is_max: for each cell whether it merges to the larger value; else it adds.
        source: who fills it: a tensor's values, what an optimizer does to a weight, a plug-in, a cast made on paper, or the cast that
            a layer's GEMM made of its operand.
        kind: which kernel.
        settings: what that kernel is told.
    """

    key: str
    columns: tuple[str, ...]
    widths: tuple[int, ...]
    is_max: tuple[bool, ...]
    source: Literal["tensor", "update", "plugin", "cast", "operand"] = "tensor"
    kind: Literal["exponents", "format", "blockwise", "dynamics", "plugin", "cast", "operand"] = "exponents"
    settings: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        """Cells of all columns."""
        return len(self.is_max)

    @property
    def empty(self) -> tuple[float, ...]:
        """Cells of no tensor."""
        return tuple(-math.inf if larger and self.source == "plugin" else 0.0 for larger in self.is_max)


EXPONENTS = Extra("exponents", ("exponents",), (NUM_EXPONENTS,), (False,) * NUM_EXPONENTS)

_DYNAMICS = (
    "grad_square", "update_square", "num_updates", "num_lost_updates",
    "bf16_num_updates", "bf16_num_lost_updates", "v_numel", "v_num_underflow",
)  # fmt: skip
DYNAMICS = Extra("dynamics", _DYNAMICS, (1,) * 8, (False,) * 8, source="update", kind="dynamics")


def format_extra(name: str) -> Extra:
    """What a cast to a format would do to a tensor: how many elements it loses at either end, and the sum of its squared errors.

    Args:
        name: a key of ``CASTS``.

    Raises:
        UsageError: of a format that is not known.
    """
    if name not in CASTS:
        raise UsageError(f"format: got {name!r}, expected one of {', '.join(CASTS)}.")
    columns = (f"{name}_num_underflow", f"{name}_num_overflow", f"{name}_square_error")
    return Extra(name, columns, (1, 1, 1), (False,) * 3, kind="format", settings=(CASTS[name].code,))


def blockwise(block_size: int = 32, dims: int = 1, both_orientations: bool = True) -> Extra:
    """The widest dynamic range that any block of a tensor has, in powers of two.

    Args:
        block_size: elements along a block's side.
        dims: 1 for blocks of ``block_size`` neighbors, 2 for squares.
        both_orientations: of one-dimensional blocks those along the rows and those along the columns; else along the rows alone.

    Raises:
        UsageError: of settings out of their range.
    """
    if isinstance(block_size, bool) or not isinstance(block_size, int) or not 1 <= block_size <= MAX_BLOCK_SIZE:
        raise UsageError(f"block_size: got {block_size!r}, expected a whole number from 1 to {MAX_BLOCK_SIZE}.")
    if isinstance(dims, bool) or dims not in (1, 2):
        raise UsageError(f"dims: got {dims!r}, expected 1 or 2.")
    if not isinstance(both_orientations, bool):
        raise UsageError(f"max_over_orientations: got {both_orientations!r}, expected true or false.")
    if dims == 2:
        key, orientations = f"block{block_size}x{block_size}", 4
    elif both_orientations:
        key, orientations = f"block{block_size}", 3
    else:
        key, orientations = f"block{block_size}_rows", 1
    # bits of the last setting: along rows, along columns, squares
    return Extra(key, (f"{key}_dynamic_range",), (1,), (True,), kind="blockwise", settings=(block_size, orientations))


@dataclass(frozen=True)
class Layout:
    """Which cells a site has beside its row, in which order.

    Args:
        extras: those wanted; what comes twice counts once.
    """

    extras: tuple[Extra, ...] = ()

    def __init__(self, extras: Iterable[Extra] = ()) -> None:
        object.__setattr__(self, "extras", tuple(dict.fromkeys(extras)))

    @cached_property
    def width(self) -> int:
        """Cells of all extras."""
        return sum(extra.width for extra in self.extras)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns."""
        return tuple(column for extra in self.extras for column in extra.columns)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Cells of each column."""
        return tuple(width for extra in self.extras for width in extra.widths)

    @cached_property
    def is_max(self) -> tuple[bool, ...]:
        """For each cell whether it merges to the larger value; else it adds."""
        return tuple(larger for extra in self.extras for larger in extra.is_max)

    @cached_property
    def offsets(self) -> dict[str, int]:
        """First cell of each extra, by key."""
        offsets, cell = {}, 0
        for extra in self.extras:
            offsets[extra.key] = cell
            cell += extra.width
        return offsets

    @cached_property
    def packed(self) -> array[int]:
        """What the native kernel reads: kind, first cell and two settings of each extra of a tensor's values."""
        packed = array("q")
        for extra in self.extras:
            if extra.source == "tensor":
                settings = (*extra.settings, 0, 0)
                packed.extend((KINDS.index(extra.kind), self.offsets[extra.key], settings[0], settings[1]))
        return packed

    @cached_property
    def has_casts(self) -> bool:
        """Whether some extra is of a cast made on paper."""
        return any(extra.source == "cast" for extra in self.extras)

    def empty(self) -> list[float]:
        """Cells of no tensor, the unit of ``merge``."""
        return [cell for extra in self.extras for cell in extra.empty]

    def merge(self, a: Sequence[float], b: Sequence[float]) -> list[float]:
        """Two sites' cells as one's."""
        return [(x if x > y else y) if larger else x + y for x, y, larger in zip(a, b, self.is_max, strict=True)]

    def named(self, cells: Sequence[float]) -> dict[str, float | list[float]]:
        """Cells by column; a column of several cells is a list.

        Args:
            cells: ``width`` numbers.
        """
        named: dict[str, float | list[float]] = {}
        cell = 0
        for column, width in zip(self.columns, self.widths, strict=True):
            named[column] = cells[cell] if width == 1 else list(cells[cell : cell + width])
            cell += width
        return named

    def from_named(self, named: Mapping[str, Any]) -> list[float]:
        """The cells that ``named`` made; a column that is absent or None is empty."""
        cells: list[float] = []
        empty = self.empty()
        for column, width in zip(self.columns, self.widths, strict=True):
            value = named.get(column)
            if value is None:
                cells += empty[len(cells) : len(cells) + width]
            elif width == 1:
                cells.append(float(value))
            else:
                cells += map(float, value)
        if len(cells) != self.width:
            raise ValueError(f"from_named: got {len(cells)} cells, expected {self.width}")
        return cells
