"""What ``numscope stats RUN`` says of a run where nobody asks a question: where to look, and the questions that lead there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import numpy as np

from numscope.page.health import BAD, format_of_dtype
from numscope.page.matrices import Matrices
from numscope.page.overview import Overview
from numscope.records.finding import Finding
from numscope.records.words import count, escape
from numscope.runs.query import LOSS

MOST = 5
_GREW = 2.0  # less is no growth


def guide(overview: Overview, run: str) -> Iterator[str]:
    """The lines, without trailing blanks.

    Args:
        run: the folder, as the user has named it.
    """
    recorded, matrices = overview.recorded, overview.matrices
    if matrices is None:
        yield from (escape(problem) for problem in overview.problems)
        return
    axis = matrices.axis
    facts = [escape(recorded.model)] if recorded.model else []
    facts += [count(max(recorded.num_steps, axis.last[-1] + 1), "step"), count(matrices.num_sites, "tensor")]
    facts += [count(recorded.num_findings, "finding"), *([count(recorded.num_alerts, "alert")] if recorded.num_alerts else [])]
    yield ", ".join(facts)
    latest, ever = (next((one for one in found if not one.contained), None) for found in (recorded.latest, recorded.findings))
    yield "Went bad first: nothing, so far" if latest is None else f"Went bad first: {_told(latest)}"
    if latest is None and ever is not None:
        yield f"In an earlier attempt: {_told(ever)}"
    if matrices.loss is not None:
        largest, _ = matrices.loss
        known = np.flatnonzero(~np.isnan(largest))
        if len(known):
            first, last = int(known[0]), int(known[-1])
            yield f"Loss: {largest[first]:.4g} at step {axis.first[first]:,}, {largest[last]:.4g} at step {axis.last[last]:,}"
    near = sorted(_near(matrices), reverse=True)[:MOST]
    if near:
        yield ""
        yield "Closest to their dtype's largest number:"
        yield from _aligned([(name, f"{100 * share:.3g} % of {limit}", f"step {step:,}") for share, name, limit, step in near])
    grown = sorted(_grown(matrices), reverse=True)[:MOST]
    if grown:
        yield ""
        yield "Fastest growing, of their largest magnitudes:"
        yield from _aligned([(name, f"× {factor:.3g}", f"{start:.3g} to {end:.3g}") for factor, name, start, end in grown])
    yield ""
    yield "Ask:"
    yield from (f"  numscope stats {escape(shlex.quote(run))} {question}" for question in _questions(overview, matrices))


def _told(finding: Finding) -> str:
    culprit = finding.culprit
    line = f": {culprit.op} at {culprit.file}:{culprit.line}" if culprit is not None and culprit.file else ""
    return escape(f"{finding.site}, {finding.kind.value} at step {finding.step:,}{line}")


def _name(matrices: Matrices, site: int) -> str:
    return escape(f"{matrices.sites[site].layer} {matrices.sites[site].tensor}")


def _near(matrices: Matrices) -> Iterator[tuple[float, str, str, int]]:
    """Of sites whose dtypes have limits worth showing: the largest share, the format and the step."""
    for i, site in enumerate(matrices.sites):
        amax, form = matrices.values["amax", "max"][i], format_of_dtype(site.dtype)
        if form is not None and not np.isnan(amax).all():
            top = int(np.nanargmax(amax))
            share = float(amax[top]) / form.max
            if share > 1e-6:  # far from it is no news
                yield share, _name(matrices, i), f"{form.name}'s {form.max:.6g}", matrices.axis.last[top]


def _grown(matrices: Matrices) -> Iterator[tuple[float, str, float, float]]:
    for i, site in enumerate(matrices.sites):
        amax = matrices.values["amax", "max"][i]
        known = np.flatnonzero(~np.isnan(amax) & (amax > 0))
        if len(known) > 1 and site.tensor != LOSS:
            start, end = float(amax[known[0]]), float(np.nanmax(amax))
            if end / start >= _GREW:
                yield end / start, _name(matrices, i), start, end


def _questions(overview: Overview, matrices: Matrices) -> Iterator[str]:
    """About the tensor that went bad first, or is the worst; about all layers near the end; about all classes; about what there is."""
    order = sorted(range(len(overview.health)), key=lambda i: (overview.health[i].state != BAD, -overview.health[i].score))
    site = matrices.sites[order[0]]
    layer, tensor = (name.replace("'", "''") for name in (site.layer, site.tensor))
    sql = f"SELECT step, abs_max, num_nan, num_inf FROM stats WHERE layer = '{layer}' AND tensor = '{tensor}' ORDER BY step"
    yield escape(shlex.quote(sql) if set(sql) & set('"$`\\!') else f'"{sql}"')
    last = matrices.axis.last[-1]
    yield f"--by name --stats max,min,num_nan,num_inf --steps {max(0, last - 9)}-{last}"
    yield "--by type"
    yield "columns"


def _aligned(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    for row in rows:
        yield f"  {row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]}"
