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

    Notes and their kinds are counted as they are left, so that the reader needs no single one where all are alike, or all differ.

    Args:
        name: the same on all ranks, for the same purpose.
        ranks: global ranks, ascending.

    *Cost:* a note is five messages to the store's host, or six; a look at what is missing is one, for the reader alone, and so is one at
    what is there. ``notes`` and ``details`` are a message of all ranks' notes.
    """

    def __init__(self, name: str, ranks: Sequence[int]) -> None:
        self.ranks = tuple(ranks)
        self._name = f"numscope/{name}/{short_digest(','.join(map(str, ranks)))}"  # too long for a key if there are a thousand ranks
        self._me = dist.get_rank()
        self._pending: dict[int, int] = {}  # looks that are left for the notes of a step
        self._noted: list[int] = []  # steps that this rank has left its latest notes of
        self._begun: list[list[str]] = []  # the counters that each of the latest notes of this rank was the first to use
        self._open = True

    def put(self, step: int, note: str, details: bytes = b"") -> None:
        """Leave a note of a step, of the kind that its first word is, and details for one who asks. A second one of a step is dropped: it
        would be counted as another rank's.
        """
        if not self._open or step in self._noted:
            return
        self._noted = [*self._noted[-KEPT:], step]
        with self._gone_with_its_host():
            store().set(self._key(step, self._me, "details"), f"{step} ".encode() + details)
            store().set(self._key(step, self._me, "note"), f"{step} {note}")
            self._count(step, note.partition(" ")[0])
            if self._me == self.ranks[0]:
                self._pending[step] = LOOKS
                while len(self._pending) > KEPT:
                    del self._pending[next(iter(self._pending))]

    def look(self) -> list[tuple[int, int]]:
        """Those steps that all ranks have noted since the last look, and how many kinds of notes they left."""
        found = []
        for step, left in tuple(self._pending.items()):
            num = 0
            self._pending[step] = left - 1
            with self._gone_with_its_host():
                num = store().add(self._counter(step, "notes"), 0)
                if num >= len(self.ranks):
                    found.append((step, store().add(self._counter(step, "kinds"), 0)))
            if num >= len(self.ranks) or left == 1:
                self._pending.pop(step, None)
        return found

    def notes(self, step: int) -> dict[int, str]:
        """Each rank's note; without those that have written a later one in its place."""
        return {rank: note.decode() for rank, note in self._read(step, "note").items()}

    def details(self, step: int) -> dict[int, bytes]:
        """The details of each rank's note, as ``notes``."""
        return self._read(step, "details")

    def only(self, step: int, rank: int) -> bytes:
        """The details of the note of one rank, which no other has noted a step of that number; empty: it is not there yet."""
        found = b""
        with self._gone_with_its_host():
            if store().add(self._counter(step, "notes"), 0) and store().check([self._key(step, rank, "details")]):
                at, _, body = bytes(store().get(self._key(step, rank, "details"))).partition(b" ")
                found = body if at == str(step).encode() else b""
        return found

    def _read(self, step: int, part: str) -> dict[int, bytes]:
        parts: list[bytes] = []
        keys = [self._key(step, rank, part) for rank in self.ranks]
        with self._gone_with_its_host():
            parts = [bytes(one) for one in store().multi_get(keys)] if store().check(keys) else []  # it would wait for what is not there
        split = [one.partition(b" ") for one in parts]
        return {rank: body for rank, (at, _, body) in zip(self.ranks, split, strict=False) if at == str(step).encode()}

    def _count(self, step: int, kind: str) -> None:
        """The kinds before the notes: once all notes are counted, all kinds are. Whoever has begun a counter takes it away."""
        counters = [self._counter(step, short_digest(kind)), self._counter(step, "kinds"), self._counter(step, "notes")]
        begun = [counter for counter in counters[:1] if store().add(counter, 1) == 1]
        begun += [counter for counter in counters[1 if begun else 2 :] if store().add(counter, 1) == 1]
        self._begun.append(begun)
        for counter in self._begun.pop(0) if len(self._begun) > KEPT else ():
            store().delete_key(counter)

    def _key(self, step: int, rank: int, part: str) -> str:
        return f"{self._name}/{step % KEPT}/{rank}/{part}"

    def _counter(self, step: int, what: str) -> str:
        return f"{self._name}/of {step}/{what}"

    @contextlib.contextmanager
    def _gone_with_its_host(self) -> Iterator[None]:
        """The store disappears with the rank that hosts it; then nothing is noted any more."""
        try:
            yield
        except ours():
            self._open = False
            self._pending.clear()


def short_digest(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:16]
