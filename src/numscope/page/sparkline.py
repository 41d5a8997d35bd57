"""How a tensor's largest magnitude moves, against its dtype's largest number: in one line of characters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from numscope.page.health import format_of_dtype

LEVELS = "▁▂▃▄▅▆▇█"
BAD, NOTHING = "✖", " "
IN_SIGHT = 2.0**24  # a limit so many times above is not shown: the line would be flat
ABOVE, SPAN = 2.0**8, 2.0**16  # room above such a line; what a line spans at least, so that it does not jump for nothing


def cells_of(amax: Any, nonfinite: Any, width: int) -> list[tuple[float | None, bool]]:
    """A row of matrices in at most ``width`` cells: the largest number of each, or None, and whether some element was not finite."""
    import numpy as np

    num = min(width, len(amax))
    bounds = [i * len(amax) // num for i in range(num + 1)] if num else [0]
    found = []
    for low, high in itertools.pairwise(bounds):
        seen = amax[low:high][~np.isnan(amax[low:high])]
        found.append((float(seen.max()) if len(seen) else None, bool((np.nan_to_num(nonfinite[low:high]) > 0).any())))
    return found


def scale_of(cells: Sequence[tuple[float | None, bool]], dtype: str) -> tuple[float, float]:
    """What the lowest and the highest level stand for: the highest is the dtype's largest number, where that is in sight."""
    sizes = [x for x, _ in cells if x]
    largest, form = max(sizes, default=1.0), format_of_dtype(dtype)
    high = form.max if form is not None and form.max / largest < IN_SIGHT else largest * ABOVE
    return min([*sizes, high / SPAN]), high


def heights_of(cells: Sequence[tuple[float | None, bool]], low: float, high: float) -> list[float | None]:
    """Where each cell's number stands between the lowest and the highest level, from 0 to 1, logarithmically; None without one."""
    span = math.log(high / low) if high > low else 0.0
    return [None if x is None else min(1.0, max(0.0, math.log(x / low) / span)) if x and span else 0.0 for x, _ in cells]


def spark(cells: Sequence[tuple[float | None, bool]], low: float, high: float) -> str:
    """A character for each cell."""
    heights = heights_of(cells, low, high)
    levels = [NOTHING if y is None else LEVELS[min(int(y * len(LEVELS)), len(LEVELS) - 1)] for y in heights]
    return "".join(BAD if is_bad else level for level, (_, is_bad) in zip(levels, cells, strict=True))
