"""Notes of what happened outside the models' calls, for records that are made once somebody asks for them."""

from __future__ import annotations

from collections import deque
from typing import Any

from numscope.summary import native

Note = tuple[Any, ...]  # a function that makes a record, and its arguments

_MOST_NOTES = 4096  # older ones are dropped


@native.in_c
class Log:
    """Notes, the oldest first. C adds its own, and keeps numbers for them.

    Attributes:
        has_bad: a result that C has noted has a nan or an inf.
        num_noted: of its notes.
        num_rows: of numbers that C keeps, 128 bytes each.
    """

    has_bad = False
    num_noted = num_rows = 0

    def __init__(self) -> None:
        self._notes: deque[Note] = deque(maxlen=_MOST_NOTES)

    def __len__(self) -> int:
        return len(self._notes)

    def append(self, note: Note) -> None:
        self._notes.append(note)

    def popleft(self) -> Note:
        """Take the oldest."""
        return self._notes.popleft()

    def pop(self) -> Note:
        """Take the newest."""
        return self._notes.pop()

    def clear(self) -> None:
        self._notes.clear()

    def look_again(self) -> None:
        """Have C read each tensor again at its next operation."""

    def keep(self, count: int) -> None:
        """Forget all notes but so many of the newest, without making anything of them."""
        while len(self._notes) > count:
            self._notes.popleft()

    def drop_to(self, note: Note) -> bool:
        """Forget the notes up to this one, which is found by identity. Returns: whether it was there."""
        places = [place for place, one in enumerate(self._notes) if one is note]
        for _ in range(places[-1] + 1 if places else 0):
            self._notes.popleft()
        return bool(places)
