"""A page's steps in columns: each recorded step its own, or, of a long run, several together, but none near a finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from numscope.runs.query import make_table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

NEAR = 24  # columns of one step each up to a finding's, and up to the end
MAX_NEAR = 6  # findings that have them
AFTER = 4  # such columns behind a finding
LEAST = 48  # columns of a run that has as many recorded steps


@dataclass(frozen=True, slots=True)
class Axis:
    """Columns of recorded steps, ascending. Steps share a column where they agree but for their last bits."""

    first: tuple[int, ...]  # each column's first step
    last: tuple[int, ...]  # each column's last step
    steps: tuple[int, ...]  # all recorded steps

    @property
    def is_binned(self) -> bool:
        """Whether some column has several recorded steps."""
        return len(self.first) < len(self.steps)

    def __len__(self) -> int:
        return len(self.first)

    def columns(self) -> list[int]:
        """The column of each recorded step."""
        found: list[int] = np.searchsorted(np.asarray(self.last), np.asarray(self.steps)).tolist()
        return found

    def make_table(self, connection: DuckDBPyConnection, name: str) -> None:
        """Make a table of the recorded steps and their columns, ``step`` and ``col``."""
        make_table(connection, name, {"step": "BIGINT", "col": "INTEGER"}, zip(self.steps, self.columns(), strict=True))


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
    alone = np.zeros(len(steps), dtype=bool)
    alone[list(near)] = True
    return _shared(steps, alone, num_columns)


def stretches(steps: Sequence[int], most: int) -> Axis:
    """At most so many columns for recorded steps, none of which has to have one of its own."""
    return _shared(steps, np.zeros(len(steps), dtype=bool), max(1, most))


def _shared(steps: Sequence[int], alone: Any, most: int) -> Axis:
    """The finest columns of which there are at most so many: steps that agree but for their last bits share one, unless one is alone."""
    recorded = np.asarray(steps, dtype=np.int64)

    def starts(num_bits: int) -> Any:
        key = recorded >> num_bits
        return np.append(True, (key[1:] != key[:-1]) | alone[1:] | alone[:-1])[: len(steps)]

    num_bits = next((n for n in range(63) if np.count_nonzero(starts(n)) <= most), 63)
    first = np.flatnonzero(starts(num_bits))
    last = np.append(first, len(steps))[1:] - 1
    return Axis(tuple(recorded[first].tolist()), tuple(recorded[last].tolist()), tuple(steps))
