"""Which steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps at which something is done: every ``freq``-th (step % freq == 0) within inclusive bounds.

    Args:
        freq: at least 1.
        start_step: first step.
        end_step: last step, itself included; None: for ever.
        start_end_list: several (first, last) instead of one, last None: for ever.
    """

    freq: int = 1
    start_step: int = 0
    end_step: int | None = None
    start_end_list: tuple[tuple[int, int | None], ...] = ()

    def active(self, step: int) -> bool:
        """Whether a step is on the schedule."""
        spans = self.start_end_list or ((self.start_step, self.end_step),)
        return step % self.freq == 0 and any(first <= step and (last is None or step <= last) for first, last in spans)
