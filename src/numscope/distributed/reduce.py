"""Merges rows over ranks: one packed exchange per process group at each scheduled step.

They travel on channels of our own. A group's ranks send vectors of the same layout: a range of cells for each key. All ranks have agreed on
the layout, so vectors always have the same size. A rank with a key that is not in the layout announces it as ranks meet; then all ranks
exchange their new keys (as JSON) before they send.

The exchange can be left to a thread, so that training waits for no rank: what it waits for, it waits for on a connection of its own.
"""

from __future__ import annotations

import logging
import math
import threading
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from numscope.distributed import agree
from numscope.distributed.channel import Apart, Channel, members, name_of, own_store, store
from numscope.distributed.groups import Copies, Groups
from numscope.distributed.place import Kind, Places, Refused
from numscope.records.faults import suppress
from numscope.records.observation import EXTREMA, FIELDS
from numscope.summary.state import EMPTY_ROW, moved

__all__ = ["Copies", "Groups", "Item", "Kind", "Reduced", "Reducer", "Refused"]

log = logging.getLogger("numscope")

ANSWER_S = 60.0  # to wait for an answer: before a step one rank may save a checkpoint, while others come to the exchange

_NUM_FIELDS = len(FIELDS)
_RANKS, _WRITER = _NUM_FIELDS, _NUM_FIELDS + 1  # the number of ranks merged in a row; the lowest of them
_WIDTH = _NUM_FIELDS + 2
_MINIMA = (*(FIELDS.index(name) for name, law in EXTREMA.items() if law == "min"), _WRITER)  # sent as negated maxima
_CENTER = FIELDS.index("center")  # the largest one in use becomes everyone's; minus infinity without elements
_MAXIMA = (*(FIELDS.index(name) for name, law in EXTREMA.items() if law == "max"), _CENTER)
_DEVS = [FIELDS.index(name) for name in ("dev_sum", "dev_square_sum", "dev_cube_sum", "dev_fourth_sum")]
_EMPTY = [*EMPTY_ROW[:_CENTER], -math.inf, 0.0, math.inf]

Slot = tuple[str, str]  # a key, and for each extra cell whether it is a maximum: "0110"
Vector = list[float]


class Item(NamedTuple):
    """One site's numbers on this rank."""

    key: str  # the site's name, the same on all ranks; used once per step
    groups: Groups  # as returned by ``Reducer.places``; () for no merging
    row: Sequence[float]  # a summary's row
    cells: Sequence[float] = ()  # extra cells
    is_max: Sequence[bool] = ()  # for each cell, whether it merges by maximum; else by addition


class Reduced(NamedTuple):
    """One site's numbers merged over ranks."""

    key: str
    row: list[float]
    cells: list[float]
    ranks: int  # number of ranks merged; copies count once
    writes: bool  # whether this rank writes it: the lowest of the merged ranks does


class Reducer:
    """Merges rows over the ranks that train one model.

    Args:
        model: the watched module.
        wrapper: the module that the user passed, perhaps a DDP around the model.
        key: what is observed, such as the digest of a configuration; ranks with different keys do not wait long for each other.

    Attributes:
        places: determines over which ranks a tensor merges.

    *Cost:* ``reduce`` is three exchanges per group, whatever the number of rows. The first call waits up to ``agree.PATIENCE_S`` for ranks
    that do not observe; a connection to the job's store.
    """

    def __init__(self, model: nn.Module, wrapper: nn.Module, key: str = "") -> None:
        self._key = key
        self._name = agree.watch_name(model, f"{key}/")
        self.places = Places(model, wrapper, self._meet)
        self._verdicts: dict[str, bool] = {}
        self._exchanges: dict[str, _Exchange] = {}
        self._gone: set[str] = set()  # names of groups that some rank has left
        self._unmet: set[str] = set()  # names of groups of which some rank did not take part in a sum
        self._meetings: Counter[str] = Counter()
        self._lock = threading.Lock()  # of the question who observes
        self._met: Any = None  # the store, on a connection of its own
        self.closed = False

    def reduce(self, items: Sequence[Item], step: int = 0) -> list[Reduced]:
        """Each item merged over its groups. All ranks of the groups must call this at the same steps, with any items.

        Items with several groups are merged over one group after the other, in the same order on all ranks.

        Args:
            items: if another rank has a key that this rank does not have, this rank contributes an empty row.
            step: ranks at different steps are detected and continue alone.

        Returns: in the order of ``items``; bitwise the same on all ranks that an item was merged over.
        """
        begun = self.begin(items, step)
        begun.exchange()
        return begun.result()

    def begin(self, items: Sequence[Item], step: int = 0) -> Exchanging:
        """``reduce`` but for the exchange, which any thread may do: one after the other, in the order of these calls."""
        if not agree.spread():
            return Exchanging(self, items, (), 0, step)
        self._adopt(items)
        return Exchanging(self, items, self._open(), dist.get_rank(), step)

    def merge(self, group: Any, own: dict[str, _Part], others: dict[Slot, Vector], step: int) -> None:
        """Merge parts over one group, if its ranks are together."""
        if name_of(group) in self._gone or not self._observes(group):
            return
        self._met = self._met or own_store()
        exchange = self._exchange(group)
        try:
            exchange.merge(own, others, step)
        except Apart as apart:  # what was merged so far stays merged
            self._gone.add(name_of(group))
            log.warning(
                "numscope: %s; from now on rank %d reports its own statistics, not those of ranks %s",
                apart,
                agree.rank(),
                list(exchange.channel.ranks),
            )

    def others_write(self, copies: Copies) -> bool:
        """Whether a rank before this one writes what both hold: not if no other rank observes."""
        name = name_of(copies.group)
        return not (copies.first or name in self._gone or self._verdicts.get(name) is False)

    def close(self) -> None:
        """Merge no more: this rank's watch has ended or failed. The other ranks learn it at their next exchange, by ``say_goodbye``."""
        self.closed = True
        with suppress(Exception):  # the store disappears with the rank that hosts it
            for group in self.places.known if agree.spread() else ():
                self._gone.add(name_of(group))
                self._exchange(group)
                if name_of(group) not in self._verdicts:  # who waits there for this rank goes on to the channel, and learns it
                    agree.arrive(self._meeting(group, "rows"), dist.get_world_size(group))

    def say_goodbye(self) -> None:
        """Tell the other ranks where they come to an exchange. Waits for them, so it is for a thread."""
        for exchange in [*self._exchanges.values()]:
            exchange.channel.say_goodbye()

    def _adopt(self, items: Sequence[Item]) -> None:
        """Adds groups known only from a tensor's mesh, in the order of the keys; all ranks of that mesh know them."""
        known = self.places.known
        distinct = {id(i.groups): i for i in items}.values()  # few, since tuples are reused
        if any(group_in(g) not in known for i in distinct for g in i.groups):
            self.places.adopt(group_in(g) for i in sorted(items, key=lambda i: i.key) for g in i.groups)

    def _exchange(self, group: Any) -> _Exchange:
        name = name_of(group)
        exchange = self._exchanges.get(name)
        if exchange is None:
            exchange = self._exchanges[name] = _Exchange(group, self._place(group, "exchange"), self._met)
        return exchange

    # ---- which ranks take part

    def _open(self) -> list[Any]:
        """The groups whose ranks exchange. Within ``ddp.join()`` there are none: a rank without inputs does not answer."""
        joins = getattr(getattr(self.places.ddp, "_join_config", None), "enable", False)
        return [] if joins or self.closed else [*self.places.known]

    def _observes(self, group: Any) -> bool:
        """Whether every rank of a group observes. It is asked once; ranks of a group get here at the same step, or never."""
        name = name_of(group)
        with self._lock:
            if name not in self._verdicts:
                self._verdicts[name] = self._all_come(group, "rows")
                if not self._verdicts[name]:
                    said = "not all of ranks %s collect these statistics: rank %d reports its own. Use the same configuration on all."
                    log.warning(f"numscope: {said}", list(members(group)), agree.rank())
        return self._verdicts[name]

    def _meet(self, group: Any) -> bool:
        """Whether all ranks of a group are ready to sum a tensor.

        In the middle of a forward, a rank can't know whether another rank's watch is still active, so each must announce itself first.
        """
        name = name_of(group)
        if name in self._gone or name in self._unmet or not self._observes(group):
            return False
        self._meetings[name] += 1
        count = self._meetings[name]
        if not self._all_come(group, f"sum-{count}"):
            self._unmet.add(name)
            return False
        if dist.get_rank() == members(group)[0]:
            self._forget(group, f"sum-{count - 1}")  # all ranks have left it
        return True

    def _all_come(self, group: Any, what: str) -> bool:
        return agree.together(self._meeting(group, what), dist.get_world_size(group))

    def _forget(self, group: Any, what: str) -> None:
        for word in ("here", "verdict"):
            store().delete_key(f"{self._meeting(group, what)}/{word}")

    def _meeting(self, group: Any, what: str) -> str:
        """The store's key of a group's meeting."""
        return f"numscope/{self._place(group, what)}"

    def _place(self, group: Any, what: str) -> str:
        """A name for what a group does, the same on all its ranks. A user's group may span several models, such as pipeline stages."""
        return f"{self._key if self.places.is_given(group) else self._name}/{what}/{name_of(group)}"


class Exchanging:
    """Items on their way through their groups."""

    def __init__(self, reducer: Reducer, items: Sequence[Item], groups: Sequence[Any], me: int, step: int) -> None:
        self._reducer, self._groups, self._me, self._step = reducer, groups, me, step
        self._parts = {item.key: _Part(item, me) for item in items}
        assert len(self._parts) == len(items), "a key comes twice"
        self._is_done = not groups

    @property
    def is_over(self) -> bool:
        """Whether nothing is waited for: all that could be merged is, or this rank merges no more."""
        return self._is_done or self._reducer.closed

    def exchange(self) -> None:
        """Wait for the other ranks' parts, and merge them."""
        others: dict[Slot, Vector] = {}
        try:
            for group in self._groups:
                self._reducer.merge(group, self._parts, others, self._step)
        finally:
            self._is_done = True

    def result(self) -> list[Reduced]:
        """Each item in the order given; one whose exchange is not done, as this rank has it."""
        return [self._reduced(part) for part in self._parts.values()]

    def _reduced(self, part: _Part) -> Reduced:
        vector = part.vector if self._is_done and part.vector[_RANKS] else part.original
        writes = vector[_WRITER] == self._me and not any(map(self._reducer.others_write, part.copies))
        center = 0.0 if math.isinf(vector[_CENTER]) else vector[_CENTER]
        return Reduced(part.item.key, [*vector[:_CENTER], center], vector[_WIDTH:], int(vector[_RANKS]), writes)


class _Part:
    """An item while it is merged over its groups."""

    def __init__(self, item: Item, me: int) -> None:
        self.item = item
        self.copies = [g for g in item.groups if isinstance(g, Copies)]
        self.groups = [g for g in item.groups if not isinstance(g, Copies)]
        self.is_max = "".join(["1" if is_max else "0" for is_max in item.is_max]) if item.is_max else ""
        center = item.row[_CENTER] if item.row[0] > item.row[1] + item.row[2] + item.row[3] else -math.inf
        self.original = [*item.row[:_CENTER], center, 1.0, float(me), *item.cells]
        self.vector = empty_vector(self.is_max) if self.copies and any(c.silent for c in self.copies) else self.original

    @property
    def slot(self) -> Slot:
        return self.item.key, self.is_max


class _Exchange:
    """One group's layout, and the collectives over it."""

    def __init__(self, group: Any, name: str, met: Any) -> None:
        self.channel = Channel(name, group, ANSWER_S, met)
        self._group = group
        self._set_layout([])

    def merge(self, own: dict[str, _Part], others: dict[Slot, Vector], step: int) -> None:
        """Put merged vectors into the parts that merge over this group, and into ``others`` those of keys that only other ranks have.

        Raises: Apart if this group stops exchanging.
        """
        mine = {part.slot: part for part in own.values() if self._group in part.groups}
        news = [slot for slot in mine if slot not in self._slots]
        if self.channel.meet("statistics", step, [float(bool(news))])[0]:
            told = self.channel.gather("new statistics", step, news or None)
            self._set_layout(sorted({*self._slots, *((key, is_max) for part in told for key, is_max in part)}))
        flat: Vector = []
        for slot, empty in self._slots.items():
            part = mine.get(slot)
            if part is not None:
                flat += part.vector
            elif slot[0] in own:  # on this rank the key merges over other groups
                flat += empty
            else:
                flat += others.get(slot, empty)
        merged = self._all_ranks(flat) if flat else []
        for slot, start, stop in self._places:
            part = mine.get(slot)
            if part is not None:
                part.vector = merged[start:stop]
            elif slot[0] not in own:
                others[slot] = merged[start:stop]

    def _set_layout(self, slots: Sequence[Slot]) -> None:
        self._slots: dict[Slot, Vector] = {slot: empty_vector(slot[1]) for slot in slots}
        self._places: list[tuple[Slot, int, int]] = []
        is_max: list[bool] = []
        sign: list[float] = []
        for slot, empty in self._slots.items():
            self._places.append((slot, len(is_max), len(is_max) + len(empty)))
            is_max += [k in _MINIMA or k in _MAXIMA for k in range(_WIDTH)] + [c == "1" for c in slot[1]]
            sign += [-1.0 if k in _MINIMA else 1.0 for k in range(len(empty))]
        self._starts = torch.tensor([start for _, start, _ in self._places], dtype=torch.int64, device="cpu")
        self._is_max = torch.tensor(is_max, device="cpu")
        self._sign = torch.tensor(sign, dtype=torch.float64, device="cpu")

    def _all_ranks(self, flat: Vector) -> Vector:
        """All ranks' vectors merged."""
        sent = torch.frombuffer(array("d", flat), dtype=torch.float64) * self._sign
        merged = sent.clone()
        merged[self._is_max] = self.channel.largest(sent[self._is_max])
        self._center(sent, merged)
        merged[~self._is_max] = self.channel.total(sent[~self._is_max])
        values: Vector = (merged * self._sign).tolist()
        return values

    def _center(self, vector: Tensor, largest: Tensor) -> None:
        """Moves a vector's sums to the centers that all ranks merge about."""
        rows = vector[self._starts.unsqueeze(1) + torch.arange(_NUM_FIELDS)]
        n = rows[:, 0] - rows[:, 1:4].sum(1)
        distance = rows[:, _CENTER] - largest[self._starts + _CENTER]
        moves = (n > 0) & (distance != 0)
        places = self._starts[moves] + torch.tensor(_DEVS).unsqueeze(1)
        vector[places] = torch.stack(moved(n[moves], [*vector[places]], distance[moves]))


def empty_vector(is_max: str) -> Vector:
    """The numbers of no element. Cells that merge by maximum start at minus infinity."""
    return [*_EMPTY, *(-math.inf if c == "1" else 0.0 for c in is_max)]


def group_in(place: Any) -> Any:
    """The process group of one of an item's ``groups``."""
    return place.group if isinstance(place, Copies) else place
