"""Who is here: ranks show themselves in torch's store, so that one that is missing has a name.

The lowest rank of those that take part collects, and publishes who came, so that all go on with the same list.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from numscope.doctor.child.report import Report, StepTimeout

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_T = TypeVar("_T")


class StoreLost(Exception):
    """The store does not answer, or the rank that calls the roll does not: it died, hangs, or cannot be reached any more.

    Args:
        rank: that hosts the store, or calls the roll.
    """

    def __init__(self, sentence: str, rank: int) -> None:
        super().__init__(sentence)
        self.rank = rank


@dataclass(frozen=True, slots=True)
class Present:
    """Who came, the same on all of them.

    Args:
        word: what the rank that collected wants all to know.
    """

    here: tuple[int, ...]
    missing: tuple[int, ...]
    word: Any = None


class RollCall:
    """Roll calls over a store of its own connection, since torch holds a connection while it waits.

    Args:
        host: rank whose child hosts the store, for messages.
    """

    def __init__(self, store: Store, rank: int, host: int, report: Report) -> None:
        self._store = store
        self._rank = rank
        self._host = host
        self._report = report
        self.answer_s = 1.0  # without an answer, over what was waited for, after which the store counts as lost; of the phase
        self._lost = ""

    def gather(
        self, name: str, ranks: Sequence[int], seconds: float, slack: float, word: Callable[[tuple[int, ...]], Any] = lambda missing: None
    ) -> Present:
        """Waits for all of the ranks.

        Args:
            seconds: that the collecting rank, the lowest, waits for the others.
            slack: seconds more that the others wait for its list.
            word: called on the collecting rank with who is missing.

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
            raise StoreLost(f"rank {min(ranks)}, which calls the roll, gave no sign within {seconds + slack:.1f} s", min(ranks))
        here, spoken = json.loads(self._call(self.answer_s, lambda: self._store.get(f"{name}/list")))
        return Present(tuple(here), tuple(rank for rank in ranks if rank not in here), spoken)

    def show(self, name: str) -> None:
        """Shows that this rank has come so far; waits for nobody.

        Raises: StoreLost.
        """
        self._call(self.answer_s, lambda: self._store.set(f"{name}/{self._rank}", "1"))

    def absent(self, name: str, ranks: Sequence[int], seconds: float) -> list[int]:
        """Shows that this rank is here, and waits for the others without one that collects; who did not come.

        With the store lost, it is the store's host that is absent.
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
            # A connection waits in one place only; a timeout of the store's own leaves it usable.
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
            self._lost = f"the store, hosted by rank {self._host}, does not answer"  # and its connection is held by the thread left behind
            raise StoreLost(self._lost, self._host) from None
        except RuntimeError as error:  # torch's DistError and its kinds
            raise StoreLost(f"the store, hosted by rank {self._host}: {str(error).splitlines()[0]}", self._host) from error
