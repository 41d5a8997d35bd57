"""The state that a child's phases share: its report and, once started, its process group; and roll calls, which name missing ranks.

In a roll call ranks register in torch's store. The lowest participating rank collects the registrations and publishes the list, so that
all ranks go on with the same one.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
from torch._C._distributed_c10d import Store
from torch.distributed import ProcessGroup

from numscope.doctor.budget import Overdue
from numscope.doctor.child.reporting import Report

_T = TypeVar("_T")


class Failed(Exception):
    """A phase found that something does not work; the message describes it."""


@dataclass(slots=True)
class Wire:
    """The process group of a backend, gloo or nccl, and the device on which it expects tensors."""

    backend: str
    group: ProcessGroup
    device: torch.device


class StoreLost(Exception):
    """The store of a rank, or the rank that calls the roll, does not respond: it died, hangs, or can no longer be reached."""

    def __init__(self, sentence: str, rank: int) -> None:
        super().__init__(sentence)
        self.rank = rank


@dataclass(frozen=True, slots=True)
class Present:
    """The outcome of a roll call, the same on all ranks that are here, with a word from the collecting rank."""

    here: tuple[int, ...]
    missing: tuple[int, ...]
    word: Any = None


@dataclass(slots=True)
class ChildSession:
    report: Report
    rank: int
    import_s: float
    members: tuple[int, ...] = ()  # ranks of the process group, ascending; each one's rank in torch is its index
    wires: list[Wire] = field(default_factory=list)  # one per backend
    store: Store | None = None  # for roll calls; a separate connection, since torch blocks a connection while it waits
    store_host: int = -1  # rank
    limit_s: float = 0.0  # the phase's time limit in seconds
    _end: float = 0.0
    _store_hangs: bool = False

    def begin(self, limit_s: float, end: float) -> None:
        """Starts a phase's clock."""
        self.limit_s, self._end = limit_s, end

    @property
    def left(self) -> float:
        """Seconds left of the phase's time."""
        return max(0.0, self._end - time.monotonic())

    def need_group(self) -> None:
        """Raises: Failed if there is no process group."""
        if not self.wires:
            raise Failed(f"rank {self.rank} has no process group: its backend did not start")

    def gather(
        self, name: str, ranks: Sequence[int], seconds: float, slack: float, word: Callable[[tuple[int, ...]], Any] = lambda missing: None
    ) -> Present:
        """Waits for all of the ranks.

        Args:
            seconds: how long the collecting rank, the lowest, waits for the others.
            slack: how many more seconds the others wait for its list.
            word: called on the collecting rank with the missing ranks; returns its message.

        Raises: StoreLost.
        """
        self.show(name)
        if self.rank == min(ranks):
            missing: tuple[int, ...] = ()
            if not self._wait([f"{name}/{rank}" for rank in ranks], seconds):
                missing = tuple(self._not_shown(name, ranks))
            here = tuple(rank for rank in ranks if rank not in missing)
            announced = word(missing)
            self._call(lambda store: store.set(f"{name}/list", json.dumps([here, announced])))
            return Present(here, missing, announced)
        if not self._wait([f"{name}/list"], seconds + slack):
            raise StoreLost(f"rank {min(ranks)}, which calls the roll, did not respond within {seconds + slack:.1f} s", min(ranks))
        here, announced = json.loads(self._call(lambda store: store.get(f"{name}/list")))
        return Present(tuple(here), tuple(rank for rank in ranks if rank not in here), announced)

    def show(self, name: str) -> None:
        """Registers this rank, without waiting for others. Raises: StoreLost."""
        self._call(lambda store: store.set(f"{name}/{self.rank}", "1"))

    def absent(self, name: str, ranks: Sequence[int], seconds: float) -> list[int]:
        """Registers this rank and waits for the others, without a collecting rank; returns the ranks that did not register.

        If the store is lost, the store's host counts as absent.
        """
        try:
            self.show(name)
            self._wait([f"{name}/{rank}" for rank in ranks], seconds)
            return self._not_shown(name, ranks)
        except StoreLost:
            return [self.store_host]

    def _not_shown(self, name: str, ranks: Sequence[int]) -> list[int]:
        """Asks for all at once, and where some are missing for each half. *Cost:* log2 N questions for each missing rank."""
        if not ranks or self._call(lambda store: store.check([f"{name}/{rank}" for rank in ranks])):
            return []
        middle = len(ranks) // 2
        return [*self._not_shown(name, ranks[:middle]), *self._not_shown(name, ranks[middle:])] if middle else [ranks[0]]

    def _wait(self, keys: list[str], seconds: float) -> bool:
        began = time.monotonic()
        try:
            # A connection serves one wait at a time; a timeout of the store itself leaves it usable.
            self._call(lambda store: store.wait(keys, timedelta(seconds=max(0.01, seconds))), seconds)
        except StoreLost:
            if self._store_hangs or time.monotonic() - began < seconds * 0.9:
                raise
            return False
        return True

    def _call(self, function: Callable[[Store], _T], seconds: float = 0.0) -> _T:
        """Asks the store something that takes some seconds and its answer's time. Raises: StoreLost."""
        assert self.store is not None
        whose = f"the store, hosted by rank {self.store_host}"
        if not self._store_hangs:
            try:
                return self.report.limited(seconds + max(0.5, 0.1 * self.limit_s), partial(function, self.store))
            except Overdue:
                self._store_hangs = True  # the abandoned thread still blocks the connection
            except RuntimeError as error:  # includes torch's DistError
                raise StoreLost(f"{whose}: {str(error).splitlines()[0]}", self.store_host) from error
        raise StoreLost(f"{whose}, does not answer", self.store_host)


def sentence(error: BaseException | str) -> str:
    """The first line of an error, without its location in torch's sources and its general advice."""
    first = next(iter(str(error).splitlines()), "") or type(error).__name__
    return re.sub(r"^\[[^\]]*\.(cc|cpp|h):\d+\]\s*", "", first).partition(". This is typically")[0][:300]


def text_of(error: BaseException) -> str:
    """The first lines of an error."""
    return "\n".join(str(error).splitlines()[:12]) or type(error).__name__
