"""Merges rows over ranks: one packed exchange per process group at each scheduled step.

A group's ranks send vectors of the same layout: a short header, then a range of cells for each key. All ranks have agreed on the layout, so
vectors always have the same size. A rank with a key that is not in the layout sets a flag in its header; then all ranks exchange their new
keys (as JSON) and send again. A rank whose watch has failed reports that in its header.
"""

from __future__ import annotations

import logging
import math
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn

from numscope.distributed import agree
from numscope.distributed.copies import Copies, Groups
from numscope.distributed.place import Kind, Places, Refused, members
from numscope.records.observation import FIELDS
from numscope.summary.state import EMPTY_ROW

__all__ = ["Copies", "Groups", "Item", "Kind", "Reduced", "Reducer", "Refused"]

log = logging.getLogger("numscope")

# Up to this number of ranks, every rank gets all vectors and merges them in rank order: one collective, and reproducible sums. It needs
# memory for all vectors (8 x 27 KB for 200 rows), so in larger groups the collectives merge: one for sums, one for maxima.
GATHERED = 8

_HEADER = ("news", "leaving", "step", "minus_step")  # all of them maxima
_NUM_FIELDS = len(FIELDS)
_RANKS, _WRITER = _NUM_FIELDS, _NUM_FIELDS + 1  # the number of ranks merged in a row; the lowest of them
_WIDTH = _NUM_FIELDS + 2
_MINIMA = (FIELDS.index("min"), FIELDS.index("abs_min"), _WRITER)  # sent as negated maxima
_MAXIMA = (FIELDS.index("max"), FIELDS.index("abs_max"))
_EMPTY = [*EMPTY_ROW[:_NUM_FIELDS], 0.0, math.inf]

_names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()

Slot = tuple[str, str]  # a key, and for each extra cell whether it is a maximum: "0110"
Vector = list[float]


class Item(NamedTuple):
    """One site's numbers on this rank.

    Args:
        key: the site's name, the same on all ranks; used once per step.
        groups: as returned by ``Reducer.places``; () for no merging.
        row: a summary's row.
        cells: extra cells.
        is_max: for each cell, whether it merges by maximum; else by addition.
    """

    key: str
    groups: Groups
    row: Sequence[float]
    cells: Sequence[float] = ()
    is_max: Sequence[bool] = ()


class Reduced(NamedTuple):
    """One site's numbers merged over ranks.

    Args:
        ranks: number of ranks merged; copies count once.
        writes: whether this rank writes it: the lowest of the merged ranks does.
    """

    key: str
    row: list[float]
    cells: list[float]
    ranks: int
    writes: bool


class Reducer:
    """Merges rows over the ranks that train one model.

    Args:
        model: the watched module.
        wrapper: the module that the user passed, perhaps a DDP around the model.
        key: what is observed, such as the digest of a configuration; ranks with different keys do not wait long for each other.

    Attributes:
        places: determines over which ranks a tensor merges.
        leaving: set to True if this rank's watch has failed: the next ``reduce([])`` notifies the other ranks and returns.

    *Cost:* ``reduce`` is one collective per group (two in groups of more than eight ranks), whatever the number of rows. The first call
    waits up to ``agree.PATIENCE_S`` for ranks that do not observe.
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
        self.leaving = False

    def reduce(self, items: Sequence[Item], step: int = 0) -> list[Reduced]:
        """Each item merged over its groups. All ranks of the groups must call this at the same steps, with any items.

        Items with several groups are merged over one group after the other, in the same order on all ranks.

        Args:
            items: if another rank has a key that this rank does not have, this rank contributes an empty row.
            step: ranks at different steps are detected and continue alone.

        Returns: in the order of ``items``; bitwise the same on all ranks that an item was merged over.
        """
        if not agree.spread():
            return [Reduced(i.key, list(i.row), list(i.cells), 1, True) for i in items]
        me = dist.get_rank()
        self._adopt(items)
        own = {item.key: _Part(item, me) for item in items}
        assert len(own) == len(items), "a key comes twice"
        others: dict[Slot, Vector] = {}
        for group in self._open():
            self._merge(group, own, others, step)
        if self.leaving:
            self._gone.update(name_of(group) for group in self.places.known)
        return [self._reduced(part, me) for part in own.values()]

    def _adopt(self, items: Sequence[Item]) -> None:
        """Adds groups known only from a tensor's mesh, in the order of the keys; all ranks of that mesh know them."""
        known = self.places.known
        distinct = {id(i.groups): i for i in items}.values()  # few, since tuples are reused
        if any(group_in(g) not in known for i in distinct for g in i.groups):
            self.places.adopt(group_in(g) for i in sorted(items, key=lambda i: i.key) for g in i.groups)

    def _merge(self, group: Any, own: dict[str, _Part], others: dict[Slot, Vector], step: int) -> None:
        name = name_of(group)
        exchange = self._exchanges.get(name)
        if exchange is None:
            exchange = self._exchanges[name] = _Exchange(group)
        try:
            reason = exchange.merge(own, others, step, self.leaving)
        except Exception as error:  # the run itself will fail soon; what was merged so far stays merged
            reason = f"exchanging rows failed ({type(error).__name__}: {error})"
        if reason:
            self._gone.add(name)
            if not self.leaving:
                log.warning("numscope: %s; from now on rank %d reports its own statistics, not those of ranks %s",
                            reason, dist.get_rank(), list(members(group)))  # fmt: skip

    def _reduced(self, part: _Part, me: int) -> Reduced:
        vector = part.vector if part.vector[_RANKS] else part.original
        writes = vector[_WRITER] == me
        for copies in part.copies:  # if no other rank observes, none writes
            name = name_of(copies.group)
            writes &= copies.first or name in self._gone or self._verdicts.get(name) is False
        return Reduced(part.item.key, [*vector[:_NUM_FIELDS], 0.0], vector[_WIDTH:], int(vector[_RANKS]), writes)

    # ---- which ranks take part

    def _open(self) -> list[Any]:
        """The groups whose ranks all exchange. Within ``ddp.join()`` there are none: a rank without inputs does not answer."""
        groups = [g for g in self.places.known if name_of(g) not in self._gone]
        if getattr(getattr(self.places.ddp, "_join_config", None), "enable", False):
            return []
        return [g for g in groups if self._observes(g)]

    def _observes(self, group: Any) -> bool:
        """Whether every rank of a group observes. It is asked once; ranks of a group get here at the same step, or never."""
        name = name_of(group)
        if name not in self._verdicts:
            self._verdicts[name] = self._all_come(group, "rows")
            if not self._verdicts[name]:
                log.warning(
                    "numscope: not all of ranks %s collect these statistics: rank %d reports its own. Use the same configuration on all.",
                    list(members(group)),
                    dist.get_rank(),
                )
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
        place, keys = self._meeting(group, what)
        store().set(f"{place}/{dist.get_rank()}", "here")
        return agree.together(place, keys)

    def _forget(self, group: Any, what: str) -> None:
        place, keys = self._meeting(group, what)
        for key in (*keys, *(f"{place}/{word}" for word in ("first", "verdict"))):
            store().delete_key(key)

    def _meeting(self, group: Any, what: str) -> tuple[str, list[str]]:
        """The store's key of a group's meeting, and those of its ranks. A user's group may span several models, such as pipeline stages."""
        watch = self._key if self.places.is_given(group) else self._name
        place = f"numscope/{watch}/{what}/{name_of(group)}"
        return place, [f"{place}/{r}" for r in members(group)]


class _Part:
    """An item while it is merged over its groups."""

    def __init__(self, item: Item, me: int) -> None:
        self.item = item
        self.copies = [g for g in item.groups if isinstance(g, Copies)]
        self.groups = [g for g in item.groups if not isinstance(g, Copies)]
        self.is_max = "".join(["1" if is_max else "0" for is_max in item.is_max]) if item.is_max else ""
        self.original = [*item.row[:_NUM_FIELDS], 1.0, float(me), *item.cells]
        self.vector = empty_vector(self.is_max) if self.copies and any(c.silent for c in self.copies) else self.original

    @property
    def slot(self) -> Slot:
        return self.item.key, self.is_max


class _Exchange:
    """One group's layout, and the collectives over it."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self._device = agree.device_of(group)
        self._world = dist.get_world_size(group)
        self._set_layout([])

    def merge(self, own: dict[str, _Part], others: dict[Slot, Vector], step: int, leaving: bool) -> str:
        """Put merged vectors into the parts that merge over this group, and into ``others`` those of keys that only other ranks have.

        Returns: why this group stops exchanging; "" if it continues.
        """
        mine = {part.slot: part for part in own.values() if self._group in part.groups}
        while True:
            news = [slot for slot in mine if slot not in self._slots]
            flat = [float(bool(news)), float(leaving), float(step), -float(step)]
            for slot, empty in self._slots.items():
                part = mine.get(slot)
                if part is not None:
                    flat += part.vector
                elif slot[0] in own:  # on this rank the key merges over other groups
                    flat += empty
                else:
                    flat += others.get(slot, empty)
            merged = self._all_ranks(flat)
            if merged[1]:
                return "a rank's watch has failed"
            if merged[2] != -merged[3]:
                return f"ranks collect at different steps ({-merged[3]:.0f} and {merged[2]:.0f})"
            if not merged[0]:
                break
            told = agree.gather(news, self._group)
            self._set_layout(sorted({*self._slots, *((key, is_max) for part in told for key, is_max in part)}))
        for slot, start, stop in self._places:
            part = mine.get(slot)
            if part is not None:
                part.vector = merged[start:stop]
            elif slot[0] not in own:
                others[slot] = merged[start:stop]
        return ""

    def _set_layout(self, slots: Sequence[Slot]) -> None:
        self._slots: dict[Slot, Vector] = {slot: empty_vector(slot[1]) for slot in slots}
        self._places: list[tuple[Slot, int, int]] = []
        is_max = [True] * len(_HEADER)
        sign = [1.0] * len(_HEADER)
        for slot, empty in self._slots.items():
            self._places.append((slot, len(is_max), len(is_max) + len(empty)))
            is_max += [k in _MINIMA or k in _MAXIMA for k in range(_WIDTH)] + [c == "1" for c in slot[1]]
            sign += [-1.0 if k in _MINIMA else 1.0 for k in range(len(empty))]
        self._is_max = torch.tensor(is_max, device="cpu")
        self._sign = torch.tensor(sign, dtype=torch.float64, device="cpu")

    def _all_ranks(self, flat: Vector) -> Vector:
        """All ranks' vectors merged."""
        sent = torch.frombuffer(array("d", flat), dtype=torch.float64) * self._sign
        merged = self._gathered(sent) if self._world <= GATHERED else self._reduced(sent)
        values: Vector = (merged * self._sign).tolist()
        return values

    def _gathered(self, sent: Tensor) -> Tensor:
        sent = sent.to(self._device)
        parts = torch.empty(self._world, len(sent), dtype=torch.float64, device=self._device)
        dist.all_gather(list(parts.unbind()), sent, group=self._group)
        parts = parts.cpu()
        total = parts[0].clone()
        for part in parts[1:]:
            total += part  # in rank order, so that all ranks get the same bits
        return torch.where(self._is_max, parts.amax(0), total)

    def _reduced(self, sent: Tensor) -> Tensor:
        sums, maxima = sent[~self._is_max].to(self._device), sent[self._is_max].to(self._device)
        dist.all_reduce(sums, op=dist.ReduceOp.SUM, group=self._group)
        dist.all_reduce(maxima, op=dist.ReduceOp.MAX, group=self._group)
        merged = torch.empty_like(sent)
        merged[~self._is_max], merged[self._is_max] = sums.cpu(), maxima.cpu()
        return merged


def empty_vector(is_max: str) -> Vector:
    """The numbers of no element. Cells that merge by maximum start at minus infinity."""
    return [*_EMPTY, *(-math.inf if c == "1" else 0.0 for c in is_max)]


def store() -> Any:
    return dist.distributed_c10d._get_default_store()


def group_in(place: Any) -> Any:
    """The process group of one of an item's ``groups``."""
    return place.group if isinstance(place, Copies) else place


def name_of(group: Any) -> str:
    """A group's name, the same on all its ranks."""
    name = _names.get(group)
    if name is None:
        name = _names[group] = f"{group.group_name}:{','.join(map(str, members(group)))}"
    return name
