"""How often what a script does between models' calls is recorded, where it does much."""

from __future__ import annotations

MOST_BETWEEN, SELDOM = 512, 16  # records of a stretch; where there were more, only every SELDOM-th stretch of its kind is recorded


class Stretches:
    """Of one kind, between the calls and the step's end, or between two steps.

    Attributes:
        num_records: of the last one that was recorded.
        num_left_out: those in a row that were not.
    """

    num_records = num_left_out = 0

    def is_left_out(self) -> bool:
        return self.num_records > MOST_BETWEEN and self.num_left_out < SELDOM - 1
