"""Collectives of our own over the ranks of a group: on gloo sockets of ours, in host memory.

They can't be taken for a collective of the run, whatever the run's ranks do, and need no device. Before anything is exchanged, ranks
compare a header of fixed size: what for, and at which step. Ranks that are elsewhere, or that do not answer in time, are no longer asked:
training waits at most once.
"""

from __future__ import annotations

import json
import os
import socket
from array import array
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary, WeakSet
from zlib import crc32

import torch
import torch.distributed as dist
from torch import Tensor

from numscope.records.faults import ours, suppress

_WIDTH = 3  # values in a header

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

    Args:
        name: the same on all ranks, and used once.
        group: its ranks take part.
        patience: seconds to wait for an answer.

    Every method raises ``Apart`` where the ranks are no longer together, and from then on at once.

    *Cost:* a socket to each rank of the group, made at the first question.
    """

    def __init__(self, name: str, group: Any, patience: float) -> None:
        self._name, self._ranks, self.patience = f"numscope/{name}", members(group), patience
        self._gloo: Any = None
        self._why = ""
        _channels.add(self)

    @property
    def is_open(self) -> bool:
        """Whether the ranks are still together, as far as is known."""
        return not self._why

    def close(self, why: str = "this rank's watch has ended") -> None:
        """Answer no more: for ranks that ask, the sockets' end is a goodbye. Safe to call twice."""
        if self.is_open and self._gloo is None:
            with suppress(Exception):  # the store disappears with the rank that hosts it
                self._arrive("gone")
        self._why = self._why or why
        self._gloo = None

    def leave(self) -> None:
        """Stop using the channel, which belongs to another process, without closing or freeing anything."""
        _left_behind.append(self._gloo)
        self._why, self._gloo = self._why or "it was forked", None

    def meet(self, purpose: str, step: int, values: Sequence[float] = (), patience: float | None = None) -> list[float]:
        """The maximum over ranks of each of up to three values, if all ranks ask for the same purpose at the same step.

        Args:
            patience: seconds to wait for this answer, if not the channel's.

        *Cost:* one collective of seven numbers.
        """
        place = (float(crc32(purpose.encode())), float(step))
        header = [place[0], -place[0], place[1], -place[1], *values, *[0.0] * (_WIDTH - len(values))]
        told: list[float] = self.largest(torch.frombuffer(array("d", header), dtype=torch.float64), patience).tolist()
        if told[2] != -told[3]:
            raise self._apart(f"ranks are at different steps ({-told[3]:.0f} and {told[2]:.0f})")
        if told[0] != -told[1]:
            raise self._apart(f"ranks are at different places in step {step}, this one at {purpose}")
        return told[4 : 4 + len(values)]

    def gather(self, purpose: str, step: int, value: Any, patience: float | None = None) -> list[Any]:
        """Each rank's value, in the group's order. JSON rather than pickle: nothing received is ever executed."""
        data = json.dumps(value).encode()
        (longest,) = self.meet(purpose, step, [float(len(data))], patience)
        padded = torch.frombuffer(bytearray(data.ljust(int(longest))), dtype=torch.uint8)  # JSON may end in spaces
        return [json.loads(bytes(part.tolist())) for part in self.all_of(padded)]

    def all_of(self, tensor: Tensor) -> Tensor:
        """Each rank's tensor, stacked, on the CPU. They have met: the sizes are the same."""
        parts = torch.empty(len(self._ranks), *tensor.shape, dtype=tensor.dtype, device="cpu")
        self._wait(lambda gloo: gloo.allgather([list(parts.unbind())], [tensor]))
        return parts

    def total(self, tensor: Tensor) -> Tensor:
        """The sum over ranks, in place."""
        return self._reduced(tensor, dist.ReduceOp.SUM)

    def largest(self, tensor: Tensor, patience: float | None = None) -> Tensor:
        """The maximum over ranks, in place."""
        return self._reduced(tensor, dist.ReduceOp.MAX, patience)

    def _reduced(self, tensor: Tensor, op: Any, patience: float | None = None) -> Tensor:
        options = dist.distributed_c10d.AllreduceOptions()
        options.reduceOp = op
        options.timeout = timedelta(seconds=patience or self.patience)
        self._wait(lambda gloo: gloo.allreduce([tensor], options))
        return tensor

    def _wait(self, begin: Callable[[Any], Any]) -> None:
        if self._why:
            raise Apart(self._why)
        try:
            if self._gloo is None:
                self._all_here()
                self._gloo = self._connected()
            begin(self._gloo).wait()
        except Apart:
            raise
        except ours() as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            late = "timed out" in text.lower() or "timeout" in text.lower()
            gone = "closed" in text or "reset by peer" in text.lower()
            raise self._apart("a rank has not answered in time" if late else "a rank watches no longer" if gone else text) from None

    def _arrive(self, how: str) -> None:
        store().set(f"{self._name}/{dist.get_rank()}", how)

    def _all_here(self) -> None:
        """Wait for the other ranks to connect, unless one of them has gone before."""
        self._arrive("here")
        keys = [f"{self._name}/{rank}" for rank in self._ranks]
        store().wait(keys, timedelta(seconds=self.patience))
        if b"gone" in store().multi_get(keys):
            raise self._apart("a rank watches no longer")

    def _connected(self) -> Any:
        kind: Any = dist.distributed_c10d.ProcessGroupGloo
        options = kind._Options()
        options._timeout = timedelta(seconds=self.patience)
        interface = "" if os.environ.get("GLOO_SOCKET_IFNAME") else os.environ.get("NCCL_SOCKET_IFNAME", "")
        if interface in {name for _, name in socket.if_nameindex()}:  # NCCL's may also be a prefix, or a list
            options._devices = [kind.create_device(interface=interface, lazy_init=False)]
        else:
            options._devices = [kind.create_default_device(lazy_init=False)]  # a lazy one can hang when it goes
        place = dist.distributed_c10d.PrefixStore(self._name, store())
        return kind(place, self._ranks.index(dist.get_rank()), len(self._ranks), options)

    def _apart(self, why: str) -> Apart:
        self.close(why)
        return Apart(why)


def store() -> Any:
    """The store by which the job's ranks have met."""
    return dist.distributed_c10d._get_default_store()


def members(group: Any) -> tuple[int, ...]:
    """A group's global ranks, ascending."""
    return tuple(sorted(dist.get_process_group_ranks(group)))


def name_of(group: Any) -> str:
    """A group's name, the same on all its ranks."""
    name = _names.get(group)
    if name is None:
        name = _names[group] = f"{group.group_name}:{','.join(map(str, members(group)))}"
    return name
