"""From a step's journal to the board: where the rows of its sites are. While steps look alike, that is found out once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from numscope.alerts.board import Board, Floats, Kind, Place
from numscope.detect.journal import Event, Journal
from numscope.records.observation import FIELDS
from numscope.records.site import Phase, tensor_of
from numscope.summary.block import Block
from numscope.summary.ledger import UNOBSERVED, Kept, Ledger
from numscope.summary.state import ROW_WIDTH

MOST_SITES = 20_000  # of a step; further ones are not looked at
_SEEN = itemgetter(Event._fields.index("entry"), Event._fields.index("phase"), Event._fields.index("flat"))
_NUMEL, _ZERO, _MIN, _MAX = (FIELDS.index(name) for name in ("numel", "num_zero", "min", "abs_max"))


class _Source(NamedTuple):
    """Rows of one device: where they are in its block, and whose they are."""

    ledger: Ledger
    block: Block
    rows: npt.NDArray[np.int64]
    sites: npt.NDArray[np.int64]  # positions in ``Rows._at``


class Rows:
    """Puts steps' rows on a board.

    *Cost:* 0.2 µs a module call and gradient, where a step has the same ones as the step before; else about 5.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._shape: list[tuple[Any, ...]] | None = None  # of the step that the places are of
        self._at = np.zeros(0, np.int64)
        self._sources: list[_Source] = []
        self._loss: tuple[Ledger, int] | None = None

    def add(self, step: int, journal: Journal) -> None:
        """A step whose rows have been read."""
        events = journal.copied()
        shape = list(map(_SEEN, events))
        kept = {id(ledger): ledger.keep() for ledger in (journal.ledger, journal.weights.ledger)}
        if shape != self._shape:
            self._find(events, kept)
            self._shape = shape
        amax, zero = np.full(len(self._at), np.nan), np.zeros(len(self._at), bool)
        for source in self._sources:
            rows = _table(kept[id(source.ledger)], source.block)[source.rows]
            np.fmax.at(amax, source.sites, rows[:, _MAX])
            np.logical_or.at(zero, source.sites, (rows[:, _ZERO] == rows[:, _NUMEL]) & (rows[:, _NUMEL] > 0))
        self._board.add(step, self._at, amax, zero, self._loss_of(kept))

    def _find(self, events: list[tuple[Any, ...]], kept: dict[int, Kept]) -> None:
        found: dict[Place, int] = {}
        sources: dict[Block, tuple[Ledger, list[int], list[int]]] = {}
        self._loss = None
        for place, ledger, handle in _places(events, kept):
            block, row, _, _ = kept[id(ledger)].place(handle)
            _, rows, sites = sources.setdefault(block, (ledger, [], []))
            if len(found) < MOST_SITES or place in found:
                rows.append(row)
                sites.append(found.setdefault(place, len(found)))
        for event in map(Event._make, events):
            if event.phase is Phase.LOSS and self._loss is None:
                _, book, first = event.items[0]
                self._loss = None if book is None or first == UNOBSERVED else (book, int(first))
        self._at = self._board.indexes([*found])
        self._sources = [
            _Source(ledger, block, np.array(rows, np.int64), np.array(sites, np.int64)) for block, (ledger, rows, sites) in sources.items()
        ]

    def _loss_of(self, kept: dict[int, Kept]) -> float:
        if self._loss is None:
            return math.nan
        ledger, handle = self._loss
        block, at, _, _ = kept[id(ledger)].place(handle)
        row = _table(kept[id(ledger)], block)[at]
        return float(row[_MIN]) if row[_NUMEL] == 1 and math.isfinite(row[_MIN]) else math.nan


def _table(kept: Kept, block: Block) -> Floats:
    return np.frombuffer(kept.rows(block)).reshape(-1, ROW_WIDTH)


def _places(events: list[tuple[Any, ...]], kept: dict[int, Kept]) -> Iterator[tuple[Place, Ledger, int]]:
    """What is put on the board: outputs and what the model is called with, parameters, gradients."""
    for event in map(Event._make, events):
        entry = event.entry
        for slot, ledger, handle in event.items:
            if ledger is None or handle == UNOBSERVED or event.phase in (Phase.LOSS, Phase.OPTIMIZER):
                continue
            _, _, dtype, shape = kept[id(ledger)].place(int(handle))
            if not dtype.is_floating_point:
                continue
            kind = _kind(event.phase, slot, entry.is_root or not entry.name, len(shape))
            if kind is not None:
                yield Place(entry.name, entry.cls, tensor_of(event.phase, slot), _name(dtype), kind), ledger, int(handle)


def _kind(phase: Phase, slot: str, is_root: bool, num_axes: int) -> Kind | None:
    if phase is Phase.BACKWARD:
        return Kind.GRADIENT if slot.startswith("grad output") else Kind.WEIGHT_GRADIENT
    if slot.startswith("output"):
        return Kind.OUTPUT
    if slot.startswith("input"):
        return Kind.DATA if is_root else None
    return Kind.MATRIX if num_axes >= 2 else Kind.VECTOR


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
