"""Which steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps at which something is done: every ``freq``-th (step % freq == 0) within inclusive bounds.

    Args:
        freq: at least 1.
        spans: first and last steps, both included; last None: for ever.
    """

    freq: int = 1
    spans: tuple[tuple[int, int | None], ...] = ((0, None),)

    def active(self, step: int) -> bool:
        """Whether a step is on the schedule."""
        return step % self.freq == 0 and any(first <= step and (last is None or step <= last) for first, last in self.spans)

    def next(self, after: int) -> int | None:
        """The first step on the schedule that comes after a step; None: there is none."""
        firsts = [(max(first, after + 1), last) for first, last in self.spans]
        steps = [(first + -first % self.freq, last) for first, last in firsts]
        return min((step for step, last in steps if last is None or step <= last), default=None)
