"""The SQL that merges rows does what Python's merge does, for every field of a summary and every column of the extras."""

from __future__ import annotations

import functools
import math
import random

import duckdb
import pytest
import torch

from numscope.records.observation import COUNTS, EXTREMA, FIELDS, SUMS
from numscope.runs.merging import COMPENSATED, PLAIN, about_one_center, merged_sql
from numscope.runs.query import by_name, quoted
from numscope.summary import operand_casts
from numscope.summary.dispatch import summarize
from numscope.summary.extras import Extra, Layout, blockwise
from numscope.summary.state import Summary
from numscope.summary.statistics import STATISTICS


def every_extra() -> Layout:
    """All columns of one cell; those of several, histograms, add up element by element."""
    found = [extra for statistic in STATISTICS.values() if (extra := statistic.extra(())) is not None]
    found += [*operand_casts.EXTRAS.values(), *operand_casts.PAPER_COLUMNWISE.values(), blockwise(16), blockwise(16, dims=2)]
    found += [blockwise(64, both_orientations=False), Extra("plugin_mine", ("mine_count", "mine_largest"), "plugin")]
    return Layout(extra for extra in found if extra.width == len(extra.columns))


def random_summary(rng: random.Random) -> Summary:
    values = torch.tensor([rng.choice([rng.gauss(rng.choice([0, 1000]), 1), 0.0, rng.gauss(0, 1e-40)]) for _ in range(rng.randint(0, 40))])
    for bad in (math.nan, math.inf, -math.inf):
        if len(values) and rng.random() < 0.2:
            values[rng.randrange(len(values))] = bad
    return summarize(values)


@pytest.mark.parametrize("add", [COMPENSATED, PLAIN])
@pytest.mark.parametrize("seed", range(20))
def test_sql_merges_random_rows_as_python_does(seed: int, add: str) -> None:
    rng, layout = random.Random(seed), every_extra()
    rows = [(random_summary(rng), [rng.random() * 100 for _ in layout.columns]) for _ in range(rng.randint(1, 12))]
    connection = duckdb.connect()
    names = (*FIELDS, *layout.columns)
    kinds = ["BIGINT" if name in COUNTS else "DOUBLE" for name in names]
    connection.execute(f"CREATE TABLE rows (one INTEGER, {', '.join(f'{quoted(n)} {k}' for n, k in zip(names, kinds, strict=True))})")
    for summary, cells in rows:
        stored = [1, *(getattr(summary, name) for name in FIELDS), *cells]
        connection.execute(f"INSERT INTO rows VALUES ({', '.join('?' * len(stored))})", stored)
    listed = ", ".join(f"{sql} AS {quoted('merged_' + name)}" for name, sql in merged_sql(layout.columns, add).items())
    (found,) = by_name(connection, f"SELECT {listed} FROM ({about_one_center('rows', 'one')}) GROUP BY one")
    found = {name.removeprefix("merged_"): value for name, value in found.items()}
    whole = functools.reduce(Summary.merge, (summary for summary, _ in rows), Summary.empty())
    for name in (*COUNTS, *EXTREMA):
        assert found[name] == getattr(whole, name), name
    if whole.num_finite:
        about = Summary(**{name: found[name] for name in FIELDS})
        scale = max(whole.abs_max or 0.0, 1e-30)
        for power, name in enumerate(("sum", "square_sum", "cube_sum", "fourth_sum"), 1):
            assert getattr(about, name) == pytest.approx(getattr(whole, name), rel=1e-9, abs=1e-9 * scale**power), name
        assert found["abs_sum"] == pytest.approx(whole.abs_sum, rel=1e-12)
    expected = functools.reduce(layout.merge, (cells for _, cells in rows))
    assert [found[name] for name in layout.columns] == pytest.approx(expected, rel=1e-12)


def test_sums_are_left_out_where_a_row_has_none() -> None:
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE rows ({', '.join(f'{quoted(n)} DOUBLE' for n in FIELDS)})")
    for sums in (1.0, 0.0):  # health alone
        connection.execute("INSERT INTO rows VALUES (1, 0, 0, 0, 0, 0, 1, 1, 1, 1, ?, ?, ?, ?, ?, 0)", [sums] * 5)
    aggregates = merged_sql(())
    assert connection.execute(f"SELECT {', '.join(aggregates[name] for name in SUMS)} FROM rows").fetchall() == [(0.0,) * 5]


def test_column_that_some_row_lacks_says_nothing_of_the_whole() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE rows AS SELECT unnest([1.0, NULL]) AS largest_singular_value, unnest([1.0, 2.0]) AS grad_square")
    aggregates = merged_sql(("largest_singular_value", "grad_square"))
    lacking, whole = connection.execute(f"SELECT {aggregates['largest_singular_value']}, {aggregates['grad_square']} FROM rows").fetchone()
    assert (lacking, whole) == (None, 3.0)
