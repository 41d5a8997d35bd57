"""A page's steps in columns: each recorded step its own, or, of a long run, several together, but none near a finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NEAR = 24  # columns of one step each up to a finding's, and up to the end
MAX_NEAR = 6  # findings that have them
AFTER = 4  # such columns behind a finding
LEAST = 48  # columns of a run that has as many recorded steps


@dataclass(frozen=True, slots=True)
class Axis:
    """Columns of recorded steps, ascending.

    Args:
        first, last: of each column.
        steps: recorded ones.
    """

    first: tuple[int, ...]
    last: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def is_binned(self) -> bool:
        """Whether some column has several recorded steps."""
        return len(self.first) < len(self.steps)

    def __len__(self) -> int:
        return len(self.first)

    def columns(self) -> list[int]:
        """The column of each recorded step."""
        found, column = [], 0
        for step in self.steps:
            while step > self.last[column]:
                column += 1
            found.append(column)
        return found


def make_axis(steps: Sequence[int], num_columns: int, findings: Sequence[int] = ()) -> Axis:
    """Columns for recorded steps.

    Args:
        steps: ascending, each once.
        num_columns: at most so many, but at least ``LEAST``.
        findings: steps whose neighborhood keeps a column for each step.
    """
    num_columns = max(num_columns, LEAST)
    if len(steps) <= num_columns:
        return Axis(tuple(steps), tuple(steps), tuple(steps))
    place = {step: i for i, step in enumerate(steps)}
    near: set[int] = set()
    for step in [*list(dict.fromkeys(findings))[:MAX_NEAR], steps[-1]]:
        if step in place and len(near) < num_columns // 2:
            near.update(range(max(0, place[step] - NEAR + 1), min(len(steps), place[step] + AFTER + 1)))
    size = -(-(len(steps) - len(near)) // (num_columns - len(near)))  # steps of a column; those beside a finding are shorter
    bounds: list[tuple[int, int]] = []
    start = 0
    for i in range(len(steps)):
        if i in near or i + 1 in near or i + 1 == len(steps) or i - start + 1 >= size:
            bounds.append((steps[start], steps[i]))
            start = i + 1
    return Axis(tuple(a for a, _ in bounds), tuple(b for _, b in bounds), tuple(steps))
