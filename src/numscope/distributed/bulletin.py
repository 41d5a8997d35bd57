"""Notes that ranks leave for each other at the job's store. Nobody waits: what another rank has noted is looked up at later steps.

Used where ranks compare what they have now and then, and where it is not known whether all of them take part: a rank that never writes
is never waited for, unlike one that is asked over a channel.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence

import torch.distributed as dist

from numscope.distributed.channel import store
from numscope.records.faults import ours

KEPT = 24  # a rank's latest notes that the store holds, more than a stretch of steps leaves: its memory is bounded
LOOKS = 64  # for the notes of one step; a rank that has not left its by then is elsewhere


class Bulletin:
    """The notes of some ranks. The lowest of them reads; the others only write.

    Args:
        name: the same on all ranks, for the same purpose.
        ranks: global ranks, ascending.

    *Cost:* a note is two messages to the store's host; a look at what is missing is one, for the reader alone.
    """

    def __init__(self, name: str, ranks: Sequence[int]) -> None:
        self.ranks = tuple(ranks)
        listed = ",".join(map(str, ranks))  # too long for a key if there are a thousand ranks
        self._name = f"numscope/{name}/{hashlib.sha1(listed.encode(), usedforsecurity=False).hexdigest()[:16]}"
        self._me = dist.get_rank()
        self._pending: dict[int, int] = {}  # looks that are left for the notes of a step
        self._open = True

    def put(self, step: int, note: str, details: bytes = b"") -> None:
        """Leave a note of a step: its first part for every look, its details for one who asks."""
        if not self._open:
            return
        with self._gone_with_its_host():
            store().set(self._key(step, self._me, "details"), f"{step} ".encode() + details)
            store().set(self._key(step, self._me, "note"), f"{step} {note}")
            if self._me == self.ranks[0]:
                self._pending[step] = LOOKS
                while len(self._pending) > KEPT:
                    del self._pending[next(iter(self._pending))]

    def look(self) -> list[tuple[int, dict[int, str]]]:
        """The notes of those steps that all ranks have noted since the last look, by rank."""
        found = []
        for step, left in tuple(self._pending.items()):
            notes: dict[int, str] | None = None
            self._pending[step] = left - 1
            with self._gone_with_its_host():
                notes = self._notes(step)
            if notes is not None:
                found.append((step, notes))
            if notes is not None or left == 1:
                self._pending.pop(step, None)
        return found

    def details(self, step: int) -> dict[int, bytes]:
        """The details of each rank's note; without those that have written a later one in its place."""
        parts: list[bytes] = []
        with self._gone_with_its_host():
            parts = [bytes(part) for part in store().multi_get([self._key(step, rank, "details") for rank in self.ranks])]
        split = [part.partition(b" ") for part in parts]
        return {rank: body for rank, (at, _, body) in zip(self.ranks, split, strict=False) if at == str(step).encode()}

    def _notes(self, step: int) -> dict[int, str] | None:
        keys = [self._key(step, rank, "note") for rank in self.ranks]
        if not store().check(keys):
            return None
        parts = [bytes(part).decode().partition(" ") for part in store().multi_get(keys)]
        steps = [int(at) for at, _, _ in parts]
        if any(at > step for at in steps):
            self._pending.pop(step, None)  # overwritten
        return {rank: note for rank, (_, _, note) in zip(self.ranks, parts, strict=True)} if set(steps) == {step} else None

    def _key(self, step: int, rank: int, part: str) -> str:
        return f"{self._name}/{step % KEPT}/{rank}/{part}"

    @contextlib.contextmanager
    def _gone_with_its_host(self) -> Iterator[None]:
        """The store disappears with the rank that hosts it; then nothing is noted any more."""
        try:
            yield
        except ours():
            self._open = False
            self._pending.clear()
