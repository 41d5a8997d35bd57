"""Faults that only several steps in a row show."""

from __future__ import annotations


class Streak:
    """Counts a condition's steps in a row; ``hit`` is true once, when the limit is reached."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.length = 0

    def hit(self, condition: bool) -> bool:
        self.length = self.length + 1 if condition else 0
        return self.length == self.limit
