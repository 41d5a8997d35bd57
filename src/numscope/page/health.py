"""Which sites of a run are bad or about to be, in a word each, and how their largest magnitude moves."""

from __future__ import annotations

from dataclasses import dataclass

from numscope.page.matrices import Matrices
from numscope.records.errors import UsageError
from numscope.records.formats import Format, format_of
from numscope.records.words import count

BAD, WARN, FINE = "bad", "warn", "fine"
NEAR_LIMIT = 0.25  # of the dtype's largest number: two doublings are left
SUBNORMAL_PCT = 10.0
GROWTH = 100.0  # between the first and the last steps


@dataclass(frozen=True, slots=True)
class Health:
    """One site's.

    Args:
        state: ``bad``, ``warn`` or ``fine``.
        why: one sentence; empty if fine.
        score: to sort by, the worst highest.
        trend: amax at up to 16 steps, first to last.
    """

    state: str
    why: str
    score: float
    trend: tuple[float | None, ...]


def format_of_dtype(dtype: str) -> Format | None:
    """The format that a tensor's dtype is; None for those without limits worth showing."""
    try:
        form = format_of(dtype)
    except UsageError:
        return None
    return form if form.exponent_bits else None


def judge(matrices: Matrices) -> list[Health]:
    """The health of each site."""
    return [_judge(matrices, site) for site in range(len(matrices.sites))]


def _judge(matrices: Matrices, site: int) -> Health:
    import numpy as np

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
        return Health(
            BAD, f"{count(int(nonfinite.max()), 'nan or inf element')}, first at step {axis.first[first]}.", 1e6 - first + share / 2, trend
        )
    if not len(known):
        return Health(FINE, "", 0.0, trend)
    if form is not None and share >= NEAR_LIMIT:
        return Health(
            WARN,
            f"Reached {amax[top]:.4g} at step {axis.last[top]}: {100 * share:.3g} % of {form.name}'s {form.max:.6g}.",
            1e3 + share,
            trend,
        )
    subnormal = values.get(("subnormal_pct", "max"))
    if subnormal is not None and np.nan_to_num(subnormal[site]).max() >= SUBNORMAL_PCT:
        return Health(WARN, f"Up to {np.nanmax(subnormal[site]):.3g} % of its elements are subnormal: they lose digits.", 500.0, trend)
    start, end = float(amax[known[0]]), float(amax[known[-1]])
    if start > 0 and end / start >= GROWTH:
        return Health(WARN, f"Grew {end / start:.3g}-fold from {start:.3g} to {end:.3g}.", 100 + end / start * 1e-3, trend)
    return Health(FINE, "", share, trend)
