"""Collectives of our own over the ranks of a group: on gloo sockets of ours, in host memory.

They can't be taken for a collective of the run, whatever the run's ranks do, and need no device. Before anything is exchanged, ranks
compare a header of fixed size: what for, and at which step. Ranks that are elsewhere, or that do not answer in time, are no longer asked:
training waits at most once.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary, WeakSet
from zlib import crc32

import torch
import torch.distributed as dist
from torch import Tensor

from numscope.records.faults import ours, suppress

_c10d: Any = dist.distributed_c10d if dist.is_available() else None
_WIDTH = 3  # values in a header
_GOODBYE = float(crc32(b"goodbye"))

_names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
_channels: WeakSet[Channel] = WeakSet()
_left_behind: list[Any] = []  # sockets of a process that forked this one: as they go they wait for threads, which a forked process lacks


def _leave_parent() -> None:
    """A forked child, such as a data loader's worker: the channels are its parent's, and its store's connection too."""
    for channel in list(_channels):
        channel.leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_parent)


class Apart(Exception):
    """The ranks of a channel are not together any longer. Its text is the reason."""


class Channel:
    """Exchanges numbers with the other ranks of a group, until they are apart.

    The ranks are a tree. Each shares a family's sockets with those right below it, and one with the rank above it and its other child: what
    is merged travels from family to family to the first rank, and its result back.

    Args:
        name: the same on all ranks, and used once.
        group: its ranks take part.
        patience: seconds to wait for an answer.
        met: the job's store, for a thread of its own ``own_store()``; None: the one that the run uses, whose other users wait meanwhile.

    Attributes:
        ranks: the group's, ascending.

    Every method raises ``Apart`` where the ranks are no longer together, and from then on at once.

    *Cost:* sockets to at most four ranks, however many there are, made at the first question; a question passes through 2 log2(N) families.
    """

    def __init__(self, name: str, group: Any, patience: float, met: Any = None) -> None:
        self._name, self.ranks, self.patience = f"numscope/{name}", members(group), patience
        self._met = met
        self._families: list[_Family] | None = None  # from below
        self._why = ""
        _channels.add(self)

    @property
    def is_open(self) -> bool:
        """Whether the ranks are still together, as far as is known."""
        return not self._why

    def close(self, why: str = "this rank's watch has ended") -> None:
        """Answer no more: for ranks that ask, the sockets' end is a goodbye. Safe to call twice."""
        if self.is_open and self._families is None:
            with suppress(Exception):  # the store disappears with the rank that hosts it
                for ranks in self._relatives():
                    (self._met or store()).set(f"{self._name}/{ranks[0]}/{dist.get_rank()}", "gone")
        self._why = self._why or why
        self._families = None

    def say_goodbye(self) -> None:
        """Close the channel where the others come to it, so that none loses what is on its way. Waits for them, up to its patience."""
        if self.is_open and self._families is not None:
            with suppress(Apart):
                self.meet("", 0)
        self.close()

    def leave(self) -> None:
        """Stop using the channel, which belongs to another process, without closing or freeing anything."""
        _left_behind.append(self._families)
        self._why, self._families = self._why or "it was forked", None

    def meet(self, purpose: str, step: int, values: Sequence[float] = (), patience: float | None = None) -> list[float]:
        """The maximum over ranks of each of up to three values, if all ranks ask for the same purpose at the same step.

        Args:
            patience: seconds to wait for this answer, if not the channel's.

        *Cost:* one exchange of seven numbers.
        """
        place = (_GOODBYE if not purpose else float(crc32(purpose.encode())), float(step))
        header = [place[0], -place[0], place[1], -place[1], *values, *[0.0] * (_WIDTH - len(values))]
        told: list[float] = self.largest(torch.frombuffer(array("d", header), dtype=torch.float64), patience).tolist()
        if purpose and _GOODBYE in (told[0], -told[1]):
            raise self._apart("a rank watches no longer")
        if told[2] != -told[3]:
            raise self._apart(f"ranks are at different steps ({-told[3]:.0f} and {told[2]:.0f})")
        if told[0] != -told[1]:
            raise self._apart(f"ranks are at different places in step {step}, this one at {purpose}")
        return told[4 : 4 + len(values)]

    def gather(self, purpose: str, step: int, value: Any, patience: float | None = None) -> list[Any]:
        """The values, other than None, of the ranks that have one, in the group's order. JSON: nothing received is ever executed."""
        data = b"" if value is None else json.dumps(value).encode()
        self.meet(purpose, step, patience=patience)
        me = self.ranks.index(dist.get_rank())
        lengths = torch.zeros(len(self.ranks), dtype=torch.int64, device="cpu")
        lengths[me] = len(data)
        ends = self.total(lengths).cumsum(0).tolist()
        every = bytearray(ends[-1])
        every[ends[me] - len(data) : ends[me]] = data
        if every:
            self.total(torch.frombuffer(every, dtype=torch.uint8))
        return [json.loads(every[start:end]) for start, end in itertools.pairwise([0, *ends]) if start < end]

    def total(self, tensor: Tensor) -> Tensor:
        """The sum over ranks, in place; the same bits on all of them."""
        return self._reduced(tensor, _sum)

    def largest(self, tensor: Tensor, patience: float | None = None) -> Tensor:
        """The maximum over ranks, in place."""
        return self._reduced(tensor, lambda parts: parts.amax(0), patience)

    def _reduced(self, tensor: Tensor, merge: Callable[[Tensor], Tensor], patience: float | None = None) -> Tensor:
        if self._why:
            raise Apart(self._why)
        end = time.monotonic() + (patience or self.patience)
        try:
            if self._families is None:
                self._families = [*self._connected(end)]
            families = self._families  # another thread may close the channel
            for family in families:
                family.reduce(tensor, merge, end)
            for family in reversed(families):
                family.spread(tensor, end)
        except Apart:
            raise
        except ours() as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            late = "timed out" in text.lower() or "timeout" in text.lower()
            gone = "closed" in text or "reset by peer" in text.lower()
            raise self._apart("a rank has not answered in time" if late else "a rank watches no longer" if gone else text) from None
        return tensor

    def _relatives(self) -> list[list[int]]:
        """The ranks of the families that this one is of, from below."""
        places = families_of(self.ranks.index(dist.get_rank()), len(self.ranks))
        return [[self.ranks[place] for place in family] for family in places]

    def _connected(self, end: float) -> Iterator[_Family]:
        """The families that this rank is of: each once its ranks are there, unless one of them has gone before."""
        device, met = _device(), self._met or store()
        for ranks in self._relatives():
            name = f"{self._name}/{ranks[0]}"
            met.set(f"{name}/{dist.get_rank()}", "here")
            keys = [f"{name}/{rank}" for rank in ranks]
            rest(met.wait, keys, _until(end))
            if b"gone" in met.multi_get(keys):
                raise self._apart("a rank watches no longer")
            place = _c10d.PrefixStore(name, met)
            yield _Family(place, ranks, device, _until(end), is_top=ranks[0] == self.ranks[0])

    def _apart(self, why: str) -> Apart:
        self.close(why)
        return Apart(why)


class _Family:
    """A rank and those right below it, on sockets of their own."""

    def __init__(self, place: Any, ranks: Sequence[int], device: Any, patience: timedelta, is_top: bool) -> None:
        kind = _c10d.ProcessGroupGloo
        options = kind._Options()
        options._timeout, options._devices, options._threads = patience, [device], 1
        self._gloo, self._is_top = kind(place, ranks.index(dist.get_rank()), len(ranks), options), is_top

    def reduce(self, tensor: Tensor, merge: Callable[[Tensor], Tensor], end: float) -> None:
        """Merged by each of them, as gloo's own order of adding depends on where in a tensor a number is."""
        options = _c10d.AllgatherOptions()
        options.timeout = _until(end)
        parts = torch.empty(self._gloo.size(), *tensor.shape, dtype=tensor.dtype, device="cpu")
        rest(self._gloo.allgather([list(parts.unbind())], [tensor], options).wait)
        tensor.copy_(merge(parts))

    def spread(self, tensor: Tensor, end: float) -> None:
        """Copy the tensor of the family's first to the others; at the top all have it already."""
        if not self._is_top:
            options = _c10d.BroadcastOptions()
            options.rootRank, options.rootTensor, options.timeout = 0, 0, _until(end)
            rest(self._gloo.broadcast([tensor], options).wait)


def families_of(place: int, num: int) -> list[tuple[int, ...]]:
    """The families that one of ``num`` places is of, each with the one above first: its own, if any place is below it, then its parent's.

    A place's children halve those that follow it, so what is below a place is near it, mostly on the same host.
    """
    start, end = 0, num
    above: tuple[int, ...] = ()
    while True:
        half = start + 1 + (end - start) // 2
        family = tuple(one for one in (start, start + 1, half) if one < end)
        if place == start:
            return [one for one in (family, above) if len(one) > 1]
        above, start, end = family, *((half, end) if place >= half else (start + 1, half))


def _sum(parts: Tensor) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total


def _device() -> Any:
    kind = _c10d.ProcessGroupGloo
    interface = "" if os.environ.get("GLOO_SOCKET_IFNAME") else os.environ.get("NCCL_SOCKET_IFNAME", "")
    if interface in {name for _, name in socket.if_nameindex()}:  # NCCL's may also be a prefix, or a list
        return kind.create_device(interface=interface, lazy_init=False)
    return kind.create_default_device(lazy_init=False)  # a lazy one can hang when it goes


def _until(end: float) -> timedelta:
    return timedelta(seconds=max(end - time.monotonic(), 0.001))


def store() -> Any:
    """The store by which the job's ranks have met."""
    return _c10d._get_default_store()


def rest(wait: Callable[..., object], *args: Any) -> None:
    """Wait. A replay, which forks, goes by this function's name: a thread in here holds no lock that a child would need."""
    wait(*args)


def own_store() -> Any:
    """The same on a connection of its own: who waits there keeps nobody else from it. The job's where it can't be had."""
    try:
        return store().clone()
    except ours():
        return store()


def members(group: Any) -> tuple[int, ...]:
    """A group's global ranks, ascending."""
    return tuple(sorted(dist.get_process_group_ranks(group)))


def name_of(group: Any) -> str:
    """A group's name, the same on all its ranks."""
    name = _names.get(group)
    if name is None:
        name = _names[group] = f"{group.group_name}:{','.join(map(str, members(group)))}"
    return name
