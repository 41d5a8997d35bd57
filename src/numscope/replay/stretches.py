"""How what a script does between models' calls is recorded, where it does much."""

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


FEW_TIMES = 8


class Beginnings:
    """How often in a step a recording begins. Where it is often (an agent acts), functions are noted there and in the next step.

    Attributes:
        num: in this step.
    """

    def __init__(self) -> None:
        self.num = self._before = 0  # in this step, in the last one
        self._alone = 0  # of this step, up to the last time that nobody's step was at work: an evaluation

    @property
    def are_many(self) -> bool:
        return max(self.num, self._before) > FEW_TIMES

    def step_begins(self) -> None:
        self._before, self.num, self._alone = self.num - self._alone, 0, 0

    def nobody_is_there(self) -> None:
        """Nobody's step is at work."""
        self._alone, self._before = self.num, 0
