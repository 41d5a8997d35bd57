"""``numscope.load``: a run as a DataFrame, which a notebook shows with what is most worth knowing of the run."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from numscope.page.health import FINE, MARKS, cells_of, heights_of, scale_of
from numscope.page.overview import Overview, overview_of
from numscope.records import markup
from numscope.records.errors import UsageError
from numscope.records.markup import Markup, element, line, table
from numscope.records.words import count
from numscope.runs.query import frame_of

if TYPE_CHECKING:
    import pandas

MOST_FINDINGS, MOST_SITES = 3, 5
SPARK_CELLS = 60


def load(run: str | os.PathLike[str], sql: str | None = None) -> pandas.DataFrame:
    """A run's numbers as a DataFrame: a row a site and step, the stored columns and every statistic that follows from them.

    Args:
        run: the ``log_dir`` that the run was given.
        sql: a query over the view ``stats``, in DuckDB's SQL, for less than all.

    Raises: UsageError for a folder without a run, a wrong query, or where duckdb and pandas are not installed.

    Example:
        >>> numscope.load("runs/a", "SELECT step, layer, l2_norm FROM stats WHERE tensor = 'wgrad'")  # doctest: +SKIP
    """
    if sql is not None:
        return frame_of(run, sql)
    rows = frame_of(run)
    frame: pandas.DataFrame = _frame_class()(rows)
    frame.run_folder = os.path.abspath(os.fspath(run))
    return frame


@cache
def _frame_class() -> Any:
    """Made when pandas is there. What is taken from such a frame is an ordinary one."""
    import pandas

    class RunFrame(pandas.DataFrame):  # type: ignore[misc]
        """A run's rows."""

        _metadata = ("run_folder",)
        run_folder = ""

        @property
        def _constructor(self) -> Any:
            return pandas.DataFrame

        def __reduce__(self) -> Any:
            return pandas.DataFrame(self).__reduce__()

        def _repr_html_(self) -> str | None:
            rows: str | None = super()._repr_html_()
            try:
                return rows and f"{html_of(overview_of(self.run_folder))}{rows}"
            except UsageError:  # the folder is gone
                return rows

    return RunFrame


def html_of(overview: Overview) -> Markup:
    """A run in short: its findings, its alerts and its worst tensors."""
    recorded, matrices = overview.recorded, overview.matrices
    facts = [recorded.model, count(recorded.num_steps, "step"), count(recorded.num_findings, "finding")]
    facts += [count(recorded.num_alerts, "alert")] if recorded.num_alerts else []
    parts = [element("p", element("b", os.path.basename(recorded.path)), f": {', '.join(filter(None, facts))}")]
    for finding in recorded.findings[:MOST_FINDINGS]:
        parts.append(element("p", element("b", "✖ ", style=markup.BAD), finding.headline()))
    parts += [element("p", element("b", "⚑ "), seen.alert.line()) for seen in recorded.alerts[:MOST_FINDINGS]]
    worst = sorted((i for i, one in enumerate(overview.health) if one.state != FINE), key=lambda i: -overview.health[i].score)
    if matrices is not None and worst:
        rows = []
        for i in worst[:MOST_SITES]:
            site, one = matrices.sites[i], overview.health[i]
            cells = cells_of(matrices.values["amax", "max"][i], matrices.values["num_nonfinite", "max"][i], SPARK_CELLS)
            picture = line(heights_of(cells, *scale_of(cells, site.dtype)), [k for k, (_, is_bad) in enumerate(cells) if is_bad])
            mark = element("b", MARKS[one.state], style=markup.BAD)
            rows.append((mark, element("code", f"{site.layer} {site.tensor}"), site.dtype, picture, one.why))
        parts.append(table(rows, ("", f"worst of {count(matrices.num_sites, 'tensor')}", "dtype", "largest magnitude", "")))
    parts += [element("p", f"▲ {problem}") for problem in overview.problems[:MOST_FINDINGS]]
    return element("div", *parts)
