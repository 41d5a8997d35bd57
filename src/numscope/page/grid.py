"""Numbers of rows by columns of steps, both of which grow as a run's parts are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from numscope.page.axis import Axis

Fold = Literal["max", "min", "sum"]
Plane = tuple[str, Fold]  # its name, and what the numbers that meet in a cell have in common


_FOLDS: dict[Fold, Any] = {"max": np.fmax, "min": np.fmin, "sum": np.add}


class Misfit(Exception):
    """Steps that shared a column have to be shown apart, so their numbers have to be read again."""


@dataclass(eq=False)
class Grid:
    """Planes of the same rows and columns; of a sum nothing is 0, else nan."""

    dtype: str = "float32"  # the numbers' dtype
    height: int = 1  # rows for each key
    rows: dict[Any, int] = field(default_factory=dict)  # each key's number, as they were met; its first row is that times ``height``
    steps: set[int] = field(default_factory=set)  # recorded ones
    axis: Axis = field(default_factory=lambda: Axis((), (), ()))  # the columns
    _planes: dict[Plane, Any] = field(default_factory=dict)

    def grown(self, keys: Iterable[Any], steps: Iterable[int], make_axis: Callable[[list[int], int], Axis]) -> Grid:
        """The same numbers with further rows and steps, as a new grid. Raises: Misfit.

        Args:
            make_axis: columns for all recorded steps and so many keys.
        """
        made = Grid(self.dtype, self.height)
        made.rows, made.steps = dict(self.rows), {*self.steps, *steps}
        for key in keys:
            made.rows.setdefault(key, len(made.rows))
        made.axis = make_axis(sorted(made.steps), len(made.rows))
        made._planes = {plane: self.on(made.axis, plane, len(made.rows)) for plane in self._planes}
        return made

    def on(self, axis: Axis, plane: Plane, num_keys: int | None = None) -> Any:
        """A plane's numbers on another axis, of each column what its own ones have in common; a new array. Raises: Misfit."""
        holding = axis.holding(self.axis)
        if holding is None:
            raise Misfit
        cells = self.cells(plane)
        num_rows = len(cells) if num_keys is None else num_keys * self.height
        made = np.full((num_rows, len(axis)), _nothing(plane), dtype=self.dtype)
        if len(holding):
            starts = np.flatnonzero(np.diff(holding, prepend=-1))
            made[: len(cells), holding[starts]] = _FOLDS[plane[1]].reduceat(cells, starts, axis=1)
        return made

    def cells(self, plane: Plane) -> Any:
        """A plane, rows × columns."""
        if plane not in self._planes:
            self._planes[plane] = np.full((len(self.rows) * self.height, len(self.axis)), _nothing(plane), dtype=self.dtype)
        return self._planes[plane]

    @property
    def planes(self) -> Sequence[Plane]:
        """The planes that hold something."""
        return list(self._planes)

    def put(self, plane: Plane, rows: Any, columns: Any, values: Any) -> None:
        """Fold numbers into cells, of which each is named once at most."""
        cells = self.cells(plane)
        cells[rows, columns] = _FOLDS[plane[1]](cells[rows, columns], values)


def _nothing(plane: Plane) -> float:
    return 0.0 if plane[1] == "sum" else float("nan")
