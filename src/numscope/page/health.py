"""Which sites of a run are bad or about to be, in a word each, and how their largest magnitude moves, in one line of characters."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from numscope.page.matrices import Matrices
from numscope.records.errors import UsageError
from numscope.records.finding import Finding, Kind
from numscope.records.formats import Format, format_of
from numscope.records.site import Phase, tensor_of
from numscope.records.words import count
from numscope.runs.query import LOSS

BAD, SPOILED, WARN, FINE = "bad", "spoiled", "warn", "fine"
MARKS = {BAD: "✖", SPOILED: "○", WARN: "▲", FINE: " "}
NEAR_LIMIT = 0.25  # share of the dtype's largest number: two doublings are left
SUBNORMAL_PCT = 10.0
GROWTH = 100.0  # between the first and the last steps
NEAR, GROWN, TINY = 1e3, 100.0, 50.0  # least scores: what is close to its limit, what grows, what has small elements
_LESS = 1e-5  # of a score: what was spoiled comes after what is about to go bad by itself

LEVELS = "▁▂▃▄▅▆▇█"
NONFINITE, NOTHING = "✖", " "
IN_SIGHT = 2.0**24  # a limit so many times above is not shown: the line would be flat
ABOVE, SPAN = 2.0**8, 2.0**16  # room above such a line; what a line spans at least, so that it does not jump for nothing


@dataclass(frozen=True, slots=True)
class Health:
    """One site's."""

    state: str  # ``bad``; ``spoiled``: bad, because of what a finding names; ``warn`` or ``fine``
    why: str  # one sentence; empty if fine
    score: float  # sort key, the worst highest
    trend: tuple[float | None, ...]  # amax at up to 16 steps, first to last
    bad_from: float = math.inf  # the first step with a nan or inf


def format_of_dtype(dtype: str) -> Format | None:
    """The format that a tensor's dtype is; None for those without limits worth showing."""
    try:
        form = format_of(dtype)
    except UsageError:
        return None
    return form if form.exponent_bits else None


def judge(matrices: Matrices, findings: Sequence[Finding] = ()) -> list[Health]:
    """The health of each site. What went bad as a finding's site did, or later, was spoiled by it, whether that site is recorded or not."""
    health = [_judge(matrices, site) for site in range(len(matrices.sites))]
    found = [one for one in findings if not one.contained and one.kind in (Kind.NAN, Kind.INF)]
    rows = {(site.layer, site.tensor): i for i, site in enumerate(matrices.sites)}
    rows_of = [(one, row_of(one, rows)) for one in found]
    origins = {row for _, row in rows_of if row >= 0 and health[row].state == BAD}
    begins = [max((first for first in matrices.axis.first if first <= one.step), default=0) for one, row in rows_of if row < 0]
    since = min((*begins, *(health[row].bad_from for row in origins)), default=math.inf)
    for i, one in enumerate(health):
        if i not in origins and one.state == BAD and one.bad_from >= since:
            health[i] = replace(one, state=SPOILED, score=one.score * _LESS)
    return health


def told_of(health: Sequence[Health]) -> str:
    """How many sites are not fine, in words."""
    num = Counter(one.state for one in health)
    by = f", {num[SPOILED]:,} spoiled by {'it' if num[BAD] < 2 else 'them'}" if num[SPOILED] else ""
    origins = count(num[BAD], "origin") if num[BAD] else "the origin is not recorded"
    return f"{origins}{by}, {num[WARN]:,} close to the limit" if by else f"{num[BAD] + num[WARN]:,} bad or close to it"


def row_of(finding: Finding, rows: Mapping[tuple[str, str], int]) -> int:
    """The row of a finding's site, or of another tensor of its layer; -1 if there is none."""
    site = finding.site
    is_loss = site.phase is Phase.LOSS and not site.cls
    layer = LOSS if is_loss else site.module or site.cls or finding.model  # the model itself stands there under its class
    return row_in(rows, layer, tensor_of(site.phase, site.slot))


def row_in(rows: Mapping[tuple[str, str], int], layer: str, tensor: str) -> int:
    return rows.get((layer, tensor), next((row for (name, _), row in rows.items() if name == layer), -1))


def _judge(matrices: Matrices, site: int) -> Health:
    axis, values = matrices.axis, matrices.values
    amax = values["amax", "max"][site]
    known = np.flatnonzero(~np.isnan(amax))
    picked = known[np.unique(np.linspace(0, len(known) - 1, 16).astype(int))] if len(known) else known
    trend = tuple(float(amax[i]) for i in picked)
    form = format_of_dtype(matrices.sites[site].dtype)
    top = int(np.nanargmax(amax)) if len(known) else 0
    share = float(amax[top]) / form.max if form is not None and len(known) else 0.0
    nonfinite = np.nan_to_num(values["num_nonfinite", "max"][site])
    if nonfinite.any():
        first = int(np.flatnonzero(nonfinite)[0])
        why = f"{count(int(nonfinite.max()), 'nan or inf element')}, first at step {axis.first[first]}."
        return Health(BAD, why, 1e6 - first + share / 2, trend, axis.first[first])
    if not len(known):
        return Health(FINE, "", 0.0, trend)
    if form is not None and share >= NEAR_LIMIT:
        why = f"Reached {amax[top]:.4g} at step {axis.last[top]}: {100 * share:.3g} % of {form.name}'s {form.max:.6g}."
        return Health(WARN, why, NEAR + share, trend)
    subnormal = values.get(("subnormal_pct", "max"))
    if subnormal is not None and np.nan_to_num(subnormal[site]).max() >= SUBNORMAL_PCT:
        return Health(WARN, f"Up to {np.nanmax(subnormal[site]):.3g} % of its elements are subnormal: they lose digits.", TINY, trend)
    start, end = float(amax[known[0]]), float(amax[known[-1]])
    if start > 0 and end / start >= GROWTH:
        why = f"Grew {end / start:.3g}-fold from {start:.3g} to {end:.3g}."
        return Health(WARN, why, GROWN + min(end / start * 1e-3, 0.9 * (NEAR - GROWN)), trend)
    return Health(FINE, "", share, trend)


def cells_of(amax: Any, nonfinite: Any, width: int) -> list[tuple[float | None, bool]]:
    """A row of matrices in at most ``width`` cells: the largest number of each, or None, and whether some element was not finite."""
    num = min(width, len(amax))
    bounds = [i * len(amax) // num for i in range(num + 1)] if num else [0]
    found = []
    for low, high in itertools.pairwise(bounds):
        seen = amax[low:high][~np.isnan(amax[low:high])]
        found.append((float(seen.max()) if len(seen) else None, bool((np.nan_to_num(nonfinite[low:high]) > 0).any())))
    return found


def scale_of(cells: Sequence[tuple[float | None, bool]], dtype: str) -> tuple[float, float]:
    """The numbers at the lowest and the highest level: the highest is the dtype's largest number if that is in sight."""
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
    return "".join(NONFINITE if is_bad else level for level, (_, is_bad) in zip(levels, cells, strict=True))
