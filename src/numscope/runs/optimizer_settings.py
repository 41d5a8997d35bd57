"""The settings of optimizers' groups as two runs recorded them with their losses: at which step they first differ, and what they
are where the runs part."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from numscope.runs.folder import Run
from numscope.runs.query import LOSS, OPTIMIZER, RAW, columns_of, quoted, reading

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Settings = dict[str, dict[int, tuple[float, ...]]]  # by name and step, one number for each group


def differing_settings(a: Run, b: Run, diverged: int | None = None) -> Iterator[tuple[str, str, str]]:
    """Of each setting that both runs recorded: name and step where it first is not the same, A's numbers and B's, one for each group; and
    the same of step ``diverged``, if it is not the same there."""
    left, right = _settings(a), _settings(b)
    for name in left:
        steps = sorted(left[name].keys() & right.get(name, {}).keys())
        differ = [step for step in steps if left[name][step] != right[name][step]]
        for step in dict.fromkeys([*differ[:1], *(step for step in differ if step == diverged)]):
            yield f"{name} at step {step:,}", _text(left[name][step]), _text(right[name][step])


def _text(values: tuple[float, ...]) -> str:
    return ", ".join("none" if x == -math.inf else f"{x:g}" for x in values)


def _settings(run: Run) -> Settings:
    def read(connection: DuckDBPyConnection) -> Settings:
        names = [name for name, kind in columns_of(connection).items() if name.startswith(OPTIMIZER) and kind == "DOUBLE[]"]
        if not names:
            return {}
        listed = ", ".join(f"arg_min({quoted(name)}, rank)" for name in names)
        sql = f"SELECT step, {listed} FROM {RAW} WHERE tensor = '{LOSS}' AND numel = 1 GROUP BY step"
        found: Settings = {name: {} for name in names}
        for step, *lists in connection.execute(sql).fetchall():
            for name, values in zip(names, lists, strict=True):
                if values is not None:
                    found[name][step] = tuple(-math.inf if x is None or math.isnan(x) else x for x in values)
        return {name.replace("_", " ", 1): steps for name, steps in found.items()}

    return reading(run, read, raw_only=True)
