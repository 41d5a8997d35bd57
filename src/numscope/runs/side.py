"""A side of a comparison: a run, or one step of it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from numscope.runs.folder import Run, find_run


@dataclass(frozen=True, slots=True)
class Side:
    """One side.

    Args:
        where: the argument's name, for messages.
        table: its table's.
        given: as it was written.
        run: the run in the folder.
        step: the one step meant; None: all.
    """

    where: str
    table: str
    given: str
    run: Run
    step: int | None

    @classmethod
    def parse(cls, where: str, given: str, table: str) -> Side:
        """Reads ``RUN`` or ``RUN:STEP``; a folder whose own name ends so is taken as the folder.

        Raises: UsageError where there is no run.
        """
        match = re.fullmatch(r"(.+):(\d+)", given)
        path, step = (match[1], int(match[2])) if match and not os.path.isdir(given) else (given, None)
        return cls(where, table, given, find_run(path, where), step)
