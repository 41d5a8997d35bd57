"""Roll calls: ranks register in torch's store, so that missing ones can be named.

The lowest participating rank collects the registrations and publishes the list, so that all ranks go on with the same one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from torch._C._distributed_c10d import Store

from numscope.doctor.child.report import Report, StepTimeout

_T = TypeVar("_T")


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


class RollCall:
    """Calls the roll over its own connection to the store of the rank ``host``, since torch blocks a connection while it waits."""

    def __init__(self, store: Store, rank: int, host: int, report: Report) -> None:
        self._store = store
        self._rank = rank
        self._host = host
        self._report = report
        self.answer_s = 1.0  # after which a store that should answer at once counts as lost; set for each phase
        self._lost = ""

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
        if self._rank == min(ranks):
            missing: tuple[int, ...] = ()
            if not self._wait([f"{name}/{rank}" for rank in ranks], seconds):
                missing = tuple(self._not_shown(name, ranks))
            here = tuple(rank for rank in ranks if rank not in missing)
            spoken = word(missing)
            self._call(self.answer_s, lambda: self._store.set(f"{name}/list", json.dumps([here, spoken])))
            return Present(here, missing, spoken)
        if not self._wait([f"{name}/list"], seconds + slack):
            raise StoreLost(f"rank {min(ranks)}, which calls the roll, did not respond within {seconds + slack:.1f} s", min(ranks))
        here, spoken = json.loads(self._call(self.answer_s, lambda: self._store.get(f"{name}/list")))
        return Present(tuple(here), tuple(rank for rank in ranks if rank not in here), spoken)

    def show(self, name: str) -> None:
        """Registers this rank, without waiting for others. Raises: StoreLost."""
        self._call(self.answer_s, lambda: self._store.set(f"{name}/{self._rank}", "1"))

    def absent(self, name: str, ranks: Sequence[int], seconds: float) -> list[int]:
        """Registers this rank and waits for the others, without a collecting rank; returns the ranks that did not register.

        If the store is lost, the store's host counts as absent.
        """
        try:
            self.show(name)
            end = time.monotonic() + seconds
            left = list(ranks)
            while True:
                left = self._not_shown(name, left)
                if not left or time.monotonic() > end:
                    return left
                time.sleep(0.05)
        except StoreLost:
            return [self._host]

    def _not_shown(self, name: str, ranks: Sequence[int]) -> list[int]:
        return self._call(self.answer_s, lambda: [rank for rank in ranks if not self._store.check([f"{name}/{rank}"])])

    def _wait(self, keys: list[str], seconds: float) -> bool:
        began = time.monotonic()
        try:
            # A connection serves one wait at a time; a timeout of the store itself leaves it usable.
            self._call(seconds + self.answer_s, lambda: self._store.wait(keys, timedelta(seconds=max(0.01, seconds))))
        except StoreLost:
            if self._lost or time.monotonic() - began < seconds * 0.9:
                raise
            return False
        return True

    def _call(self, seconds: float, function: Callable[[], _T]) -> _T:
        if self._lost:
            raise StoreLost(self._lost, self._host)
        try:
            return self._report.limited(seconds, function)
        except StepTimeout:
            self._lost = f"the store, hosted by rank {self._host}, does not answer"  # the abandoned thread still blocks the connection
            raise StoreLost(self._lost, self._host) from None
        except RuntimeError as error:  # includes torch's DistError
            raise StoreLost(f"the store, hosted by rank {self._host}: {str(error).splitlines()[0]}", self._host) from error
