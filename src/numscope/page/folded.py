"""Numbers of rows by columns of steps, which grow: what steps of one column have in common is the largest, the smallest, or the sum."""

from __future__ import annotations

from typing import Any, Literal

from numscope.page.axis import Axis

Fold = Literal["max", "min", "sum"]


class Folded:
    """A matrix whose columns are an axis's; of a sum nothing is 0, else nan.

    Attributes:
        cells: rows × columns; a row is added with its first number.
    """

    def __init__(self, fold: Fold, dtype: str = "float32") -> None:
        import numpy as np

        self._fold: Any = {"max": np.fmax, "min": np.fmin, "sum": np.add}[fold]
        self._nothing = 0.0 if fold == "sum" else float("nan")
        self._dtype = dtype
        self.cells: Any = np.zeros((0, 0), dtype=dtype)

    def fitted(self, holding: Any, num_rows: int, num_columns: int) -> Any:
        """The cells on another axis, as a new array of so many rows. Those beyond its own hold nothing.

        Args:
            holding: see ``Axis.holding``.
        """
        import numpy as np

        made = np.full((num_rows, num_columns), self._nothing, dtype=self._dtype)
        if len(holding):
            starts = np.flatnonzero(np.diff(holding, prepend=-1))
            made[: len(self.cells), holding[starts]] = self._fold.reduceat(self.cells, starts, axis=1)
        return made

    def fit(self, holding: Any, num_rows: int, num_columns: int) -> None:
        """Go over to another axis."""
        self.cells = self.fitted(holding, num_rows, num_columns)

    def put(self, rows: Any, columns: Any, values: Any) -> None:
        """Fold numbers into cells, of which each is named once at most."""
        self.cells[rows, columns] = self._fold(self.cells[rows, columns], values)


class Misfit(Exception):
    """Steps that shared a column have to be shown apart, so their numbers have to be read again."""


def held(new: Axis, old: Axis) -> Any:
    """``Axis.holding``. Raises: Misfit."""
    found = new.holding(old)
    if found is None:
        raise Misfit
    return found
