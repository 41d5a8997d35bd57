"""Columns in addition to a summary's row: exponent histograms, casts on paper, block ranges, weight dynamics. Plain data only.

Like a row, an extra consists of float64 *cells* that merge, by addition or by maximum, as the name of their column says. Cells that merge
by maximum are never negative, except in a plug-in's statistic, so their empty value is zero, or minus infinity there. A ``Layout``
describes the cells of a site.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal

from numscope.records.errors import UsageError
from numscope.records.fingerprint import NUM_SUMS

KINDS = ("exponents", "blockwise")  # extras computed from a tensor's values; mirrors csrc/extras.h
NUM_EXPONENTS = 256
MAX_BLOCK_SIZE = 1024  # mirrors csrc/extras.h
_LARGER = re.compile("largest_singular_value|.+_(largest|dynamic_range|max_scale|max_scale_inv)")


@cache
def is_largest(column: str) -> bool:
    """Whether a column's cells merge by maximum; else by addition."""
    return _LARGER.fullmatch(column) is not None


@dataclass(frozen=True, slots=True)
class Extra:
    """Cells that are filled together.

    Args:
        key: its name among all extras.
        kind: one of ``KINDS`` for a tensor's values, an optimizer's step (``dynamics``), a plug-in's numbers, a cast on paper, the cast
            that a layer's GEMM makes of its operand, a matrix as a whole, rows of probabilities, or a sketch.
        settings: arguments of the kernel.
        num_each: cells of each column; a column of several cells is a list by name.
    """

    key: str
    columns: tuple[str, ...]
    kind: Literal["exponents", "blockwise", "dynamics", "plugin", "cast", "operand", "spectral", "attention", "sketch"] = "exponents"
    settings: tuple[int, ...] = ()
    num_each: int = 1

    @property
    def width(self) -> int:
        """Cells of all columns."""
        return len(self.columns) * self.num_each

    @property
    def is_max(self) -> tuple[bool, ...]:
        """For each cell whether it merges by maximum; else by addition."""
        return tuple(larger for column in self.columns for larger in (is_largest(column),) * self.num_each)

    @property
    def empty(self) -> tuple[float, ...]:
        """Cells of no tensor."""
        return tuple(-math.inf if larger and self.kind == "plugin" else 0.0 for larger in self.is_max)


EXPONENTS = Extra("exponents", ("exponents",), num_each=NUM_EXPONENTS)

_DYNAMICS = (
    "grad_square", "update_square", "num_updates", "num_lost_updates",
    "bf16_num_updates", "bf16_num_lost_updates", "v_numel", "v_num_underflow",
)  # fmt: skip
DYNAMICS = Extra("dynamics", _DYNAMICS, kind="dynamics")
SPECTRAL = Extra("spectral", ("largest_singular_value",), kind="spectral")
ATTENTION = Extra("attention", ("attention_rows", "attention_entropy_sum", "attention_largest"), kind="attention")
SKETCH = Extra("sketch", ("sketch",), kind="sketch", num_each=NUM_SUMS)
SIGNS = Extra("signs", ("num_signs", "num_signs_agreeing"), kind="dynamics")


def blockwise(block_size: int = 32, dims: int = 1, both_orientations: bool = True) -> Extra:
    """The largest dynamic range of any block of a tensor, in powers of two.

    Args:
        block_size: elements along a block's side.
        dims: 1 for blocks of ``block_size`` neighbors, 2 for squares.
        both_orientations: one-dimensional blocks along rows and along columns; else only along rows.

    Raises:
        UsageError: a setting is out of range.
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
    return Extra(key, (f"{key}_dynamic_range",), kind="blockwise", settings=(block_size, orientations))


@dataclass(frozen=True)
class Layout:
    """The cells that a site has in addition to its row, in order.

    Args:
        extras: duplicates count once.
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
        return tuple(extra.num_each for extra in self.extras for _ in extra.columns)

    @cached_property
    def is_max(self) -> tuple[bool, ...]:
        """For each cell whether it merges by maximum; else by addition."""
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
        """The native kernel's input: kind, first cell and two settings of each extra of a tensor's values."""
        packed = array("q")
        for extra in self.extras:
            if extra.kind in KINDS:
                settings = (*extra.settings, 0, 0)
                packed.extend((KINDS.index(extra.kind), self.offsets[extra.key], settings[0], settings[1]))
        return packed

    @cached_property
    def has_casts(self) -> bool:
        """Whether an extra describes a cast on paper."""
        return any(extra.kind == "cast" for extra in self.extras)

    @cached_property
    def has_further(self) -> bool:
        """Whether the owner of the sites computes an extra of the tensor's values."""
        return any(extra.kind in ("cast", "spectral", "attention", "sketch") for extra in self.extras)

    def empty(self) -> list[float]:
        """Cells of no tensor, the unit of ``merge``."""
        return [*self._empty]

    @cached_property
    def _empty(self) -> tuple[float, ...]:
        return tuple(cell for extra in self.extras for cell in extra.empty)

    def merge(self, a: Sequence[float], b: Sequence[float]) -> list[float]:
        """Two sites' cells merged."""
        return [(x if x > y else y) if larger else x + y for x, y, larger in zip(a, b, self.is_max, strict=True)]

    def named(self, cells: Sequence[float]) -> dict[str, float | list[float]]:
        """Its ``width`` cells by column; a column of several cells is a list."""
        named: dict[str, float | list[float]] = {}
        cell = 0
        for column, width in zip(self.columns, self.widths, strict=True):
            named[column] = cells[cell] if width == 1 else list(cells[cell : cell + width])
            cell += width
        return named

    def from_named(self, named: Mapping[str, Any]) -> list[float]:
        """The inverse of ``named``; a column that is absent or None is empty."""
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
