"""One model's ranks: where they are in their steps, and their meetings, which take place only if one of them has something to say."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any
from weakref import WeakSet

import torch.distributed as dist

from numscope.distributed.bell import ANSWER_S, NODES, RINGS, Host, note_of
from numscope.distributed.bulletin import short_digest
from numscope.distributed.host_memory import NOWHERE, At
from numscope.records.faults import ours, suppress

log = logging.getLogger("numscope")

DIAGNOSIS_S = 300.0  # for all that meet to do calls again
NOTE_S = 5.0  # for a rank that has rung to say what it has found
_AGAIN_S = 1.0  # for another rank's ring from the same place, before this rank rings itself

_all: WeakSet[Meetings] = WeakSet()


def _leave_parent() -> None:
    """A forked child: the slots are its parent's."""
    for one in list(_all):
        one.is_open = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_parent)


class Met(Enum):
    """The state of a place in a step."""

    NOBODY = "nobody has spoken"
    HERE = "the ranks are together at this place"
    LATER = "some rank has passed it: they meet at a later one"


class Meetings:
    """This rank's part in the meetings of the ranks that train a model together.

    Args:
        labels: what this model has in common with the models of other ranks, such as a process group, and how many ranks that is.
        patience: seconds to wait for others to come to a meeting.

    Attributes:
        is_open: the rank takes part.
        now: the meeting at this place, if there is one.

    *Cost:* three requests to the store as it begins, and one more for each label; at a place where nobody speaks, two writes to memory and
    one read.
    """

    def __init__(self, labels: Mapping[str, int], patience: float) -> None:
        self._host = Host.here()
        self._board = self._host.board
        self._labels = {short_digest(label): num for label, num in labels.items()}
        self._patience = patience
        self.now: Meeting | None = None
        self._place = self._met_at = 0
        self._heard = self._board.ring
        self._due: dict[int, int] = {}  # places of meetings, and their rings
        self._spoken: int | None = None  # the ring by which this rank has spoken last
        node = self._host.store.add(NODES, 1)
        self._node = f"{NODES}/{node}"
        self._slot, dead = self._board.take(node)
        self.is_open = self._slot is not None
        if dead:
            self._host.store.set(f"{NODES}/{dead}", "null")
        if self._slot is not None:
            self._host.store.set(self._node, json.dumps([node, dist.get_rank(), [*self._labels]]))
            for label in self._labels:
                self._host.store.add(f"numscope/group/{label}", 1)
            self._host.num_watches += 1
            _all.add(self)

    def at(self, kind: str, speaks: bool) -> Met:
        """This rank is at a place of its step, as all are in turn; ``speaks``: it has something to say."""
        self.now = None
        if not self.is_open or self._slot is None:
            return Met.NOBODY
        self._place += 1
        self._slot.mark(self._place, At.ENTERS)
        if not speaks and not self._due and self._board.ring == self._heard and not self._board.is_over:
            self._slot.mark(self._place, At.PASSED)
            self._host.look()
            return Met.NOBODY
        try:
            return self._attend(kind, speaks)
        except ours() as error:
            self.part(str(error).splitlines()[0] if str(error) else type(error).__name__)
            return Met.NOBODY

    @property
    def in_step(self) -> bool:
        """Whether ranks that train together have all been at a place before."""
        return self.is_open and self._place > 2

    @property
    def num_missing(self) -> int:
        """How many ranks of its groups have never watched this model."""
        return max(num - int(self._host.store.add(f"numscope/group/{label}", 0)) for label, num in self._labels.items())

    def publish(self, finding: Any) -> None:
        """Leave what this rank has found for ranks that can't meet any more, as their training has ended."""
        ring = self.now.ring if self.now is not None else self._spoken
        if ring is not None:
            with suppress(Exception):
                self._host.store.set(f"{RINGS}/{ring}/found", json.dumps(finding))

    def missed(self) -> list[Any]:
        """Findings of others at places that this rank has not come to, and will not. *Cost:* one request to the store."""
        if not self.is_open or self._slot is None:
            return []
        found = []
        with suppress(Exception):  # the store disappears with the rank that hosts it
            mine = int(self._node.rpartition("/")[2])
            rings = set(self._due.values()) | {*range(self._heard + 1, self._host.store.add(RINGS, 0) + 1)}
            for ring in sorted(rings - {self._spoken}):
                note = note_of(self._host.store, f"{RINGS}/{ring}", _AGAIN_S) or {}
                if mine in note.get("nodes", ()):
                    found.append(note_of(self._host.store, f"{RINGS}/{ring}/found", NOTE_S))
        self._due.clear()
        return [one for one in found if one is not None]

    def close(self) -> None:
        """Take part no more. Nobody waits for this rank."""
        if self.is_open and self._slot is not None:
            self.is_open, self.now = False, None
            self._slot.clear()
            with suppress(Exception):  # the store disappears with the rank that hosts it
                self._host.store.set(self._node, "null")
            self._host.release()

    def part(self, why: str) -> None:
        """Go on alone."""
        is_said = self._board.is_over and not self._board.is_first()
        self.close()
        if not is_said:
            log.warning("numscope: %s: from now on rank %d judges its steps alone", why, dist.get_rank())

    # ---- where somebody has spoken

    def _attend(self, kind: str, speaks: bool) -> Met:
        assert self._slot is not None
        has_rung = False
        while True:
            self._slot.mark(self._place, At.STANDS)
            if self._board.is_over:
                self.part("the job's store can't be heard, or is gone with the process that hosts it")
                return Met.NOBODY
            if not self._hear():
                self.part("other ranks have not answered in time")
                return Met.NOBODY
            ring = next((ring for place, ring in sorted(self._due.items()) if place <= self._place), None)
            if ring is not None:
                return self._meet(ring, kind)
            if speaks and not has_rung:
                has_rung = True
                if not self._due:
                    self._ring()
                    continue
            self._slot.mark(self._place, At.ENTERS)
            if self._board.ring == self._heard:
                self._slot.mark(self._place, At.PASSED)
                return Met.LATER if speaks else Met.NOBODY

    def _hear(self) -> bool:
        """Look at the rings since the last look. False: the listeners could not settle where the ranks meet."""
        assert self._slot is not None
        last = self._board.ring
        for ring in range(self._heard + 1, last + 1):
            end = time.monotonic() + ANSWER_S + 2
            while (place := self._slot.told_at(ring)) == 0 and time.monotonic() < end:
                time.sleep(0.0005)
            if place in (0, NOWHERE):
                return False
            if place is not None and place > self._met_at:
                self._due.setdefault(place, ring)
        self._heard = last
        return True

    def _ring(self) -> None:
        """Call the others, unless one of them does from the same place: what all of them see, one says."""
        label = next(iter(self._labels))
        if self._host.store.add(f"numscope/rung/{label}/{self._place}", 1) > 1 and self._is_heard(_AGAIN_S):
            return
        nodes = self._together()
        self._spoken = self._host.ring([node for node, _ in nodes], min(rank for _, rank in nodes))
        self._is_heard(ANSWER_S)

    def _is_heard(self, seconds: float) -> bool:
        """Whether something has been rung since the last look."""
        end = time.monotonic() + seconds
        while self._board.ring == self._heard:
            if time.monotonic() > end:
                return False
            self._host.look()
            time.sleep(0.0005)
        return True

    def _together(self) -> list[tuple[int, int]]:
        """The watches that are linked to this one by what they have in common, and their ranks. *Cost:* a look at all watches' notes."""
        keys = [f"{NODES}/{i + 1}" for i in range(self._host.store.add(NODES, 0))]
        end = time.monotonic() + _AGAIN_S
        while not self._host.store.check(keys) and time.monotonic() < end:
            time.sleep(0.01)
        if not self._host.store.check(keys):  # a rank has died as it began
            keys = [key for key in keys if self._host.store.check([key])]
        watches = [one for one in map(json.loads, self._host.store.multi_get(keys)) if one is not None]
        known, labels = set(), set(self._labels)
        while news := [one for one in watches if one[0] not in known and not labels.isdisjoint(one[2])]:
            known |= {one[0] for one in news}
            labels |= {label for one in news for label in one[2]}
        return [(node, rank) for node, rank, _ in watches if node in known]

    def _meet(self, ring: int, kind: str) -> Met:
        at = f"{RINGS}/{ring}"
        self._met_at = self._place
        self._due = {place: later for place, later in self._due.items() if place > self._place}
        shared, alike = self._host.store, f"{at}/here/{short_digest(kind)}"
        verdict = json.loads(shared.get(f"{at}/verdict"))
        shared.add(alike, 1)
        num = shared.add(f"{at}/here", 1)
        if num == verdict["num"]:
            shared.compare_set(f"{at}/num", "", str(num if shared.add(alike, 0) == num else 0))
        here = note_of(self._host.store, f"{at}/num", self._patience)
        if here is None:
            shared.compare_set(f"{at}/num", "", str(shared.add(alike, 0)))
            here = int(shared.get(f"{at}/num"))
        assert self._slot is not None
        self._slot.mark(self._place, At.PASSED)
        if not here or num > here:
            self.part(f"ranks are at different places, this one at {kind}")
            return Met.NOBODY
        self.now = Meeting(self._host, ring, here, verdict["first"])
        return Met.HERE


class Meeting:
    """Some ranks at the same place of their steps, after one of them has spoken. All of them ask the same questions in the same order.

    Attributes:
        ring: by which they were called.
        first: the lowest of the ranks that were called.
    """

    def __init__(self, host: Host, ring: int, num: int, first: int) -> None:
        self._host, self.ring, self._num, self.first = host, ring, num, first
        self._asked = 0

    def settle(self, value: Any, choose: Callable[[Sequence[Any]], Any]) -> Any:
        """Choose one of all ranks' values, the same on all ranks. One of them chooses; who has None has no part in it.

        *Cost:* three requests to the store, and two more for a value; for the rank that chooses one more.
        """
        self._asked += 1
        shared = self._host.store
        at = f"{RINGS}/{self.ring}/{self._asked}"
        if value is not None:
            shared.set(f"{at}/note/{shared.add(f'{at}/notes', 1)}", json.dumps(value))
        if shared.add(f"{at}/done", 1) == self._num:
            self._choose(at, choose)
        found = note_of(shared, f"{at}/chosen", DIAGNOSIS_S)
        if found is None:  # a rank has died meanwhile: the next question does without it
            self._num = int(shared.add(f"{at}/done", 0))
            self._choose(at, choose)
            found = note_of(shared, f"{at}/chosen", NOTE_S)
        return found["it"]

    def _choose(self, at: str, choose: Callable[[Sequence[Any]], Any]) -> None:
        shared = self._host.store
        keys = [f"{at}/note/{i + 1}" for i in range(shared.add(f"{at}/notes", 0))]
        values = [json.loads(one) for one in shared.multi_get(keys)] if keys else []
        shared.compare_set(f"{at}/chosen", "", json.dumps({"it": choose(values)}))
