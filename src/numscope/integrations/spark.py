"""A run's statistics in Apache Spark, for runs too large for one machine: the view of ``numscope stats``, and rows merged by its laws."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from numscope.records.errors import UsageError
from numscope.records.words import nearest
from numscope.runs.folder import find_run
from numscope.runs.merging import PLAIN, merged_sql
from numscope.runs.query import NEVER_NULL, derivable, is_internal
from numscope.sinks.runfolder import STATISTICS
from numscope.storage.address import is_address
from numscope.summary.statistics import RAW_SUMS, moved_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NUMBERS = ("double", "bigint")
_GLOB = re.compile(r"[\\*?\[\]{}]")
_SCHEMES = {"s3": "s3a"}  # as Hadoop calls it


def stats(spark: SparkSession, run: str, by: Sequence[str] | None = None) -> DataFrame:
    """The view ``stats`` of a run: its stored columns that people ask for, and each statistic that follows from all of them.

    Args:
        spark: a session; of a run in another storage one that reaches it (``s3://`` is read as ``s3a://``).
        run: the run's log dir.
        by: columns, such as ``("layer", "tensor")``: one row for each combination of their values, in which all its rows are merged as one
            pass over their elements would have it. Counts and extrema are exact, sums to float64 rounding. None: the rows as they are.

    Raises: UsageError where there is no run, or a column is not the run's.
    *Cost:* lists of counts (``exponents``) are not merged; everything else is one aggregation, and a join for the groups' centers.

    Example:
        >>> stats(spark, "s3://bucket/run", by=["layer", "tensor"]).select("layer", "tensor", "std", "kurtosis").show()
    """
    rows = _raw(spark, run)
    if by is None:
        return _with(rows, derivable(set(rows.columns))).drop(*filter(is_internal, rows.columns))
    by = [by] if isinstance(by, str) else list(dict.fromkeys(by))
    for i, name in enumerate(by):
        if name not in rows.columns:
            raise UsageError(
                f"by[{i}]: got the column {name!r}, expected one of {', '.join(rows.columns)}.{nearest(name, rows.columns, 3)}"
            )
    return _merged(rows, by)


def _raw(spark: SparkSession, run: str) -> DataFrame:
    """The stored rows, without the steps that a later attempt ran again."""
    from pyspark.sql import functions as F

    found = find_run(run, whole=True)
    scheme, _, place = found.path.partition("://") if is_address(run) else ("file", "", found.path)  # its default may be another
    folder = _GLOB.sub(r"\\\g<0>", f"{_SCHEMES.get(scheme, scheme)}://{place}/{STATISTICS}")
    paths = [f"{folder}/{part.name}" for part in found.parts]
    rows = spark.read.option("mergeSchema", "true").parquet(*paths)
    rows = rows.where(" AND ".join(f"{name} IS NOT NULL" for name in NEVER_NULL))
    if len(paths) > 1 or found.restarted:
        starts = rows.groupBy("rank", "attempt").agg(F.min("step").alias("step")).alias("l")
        later = F.expr("l.rank = s.rank AND l.attempt > s.attempt AND l.step <= s.step")
        rows = rows.alias("s").join(F.broadcast(starts), later, "left_anti")
    return _with(rows, RAW_SUMS)


def _merged(rows: DataFrame, by: list[str]) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    # A site that one section wants merged over ranks and another one rank by rank has both kinds of rows: the merged ones hold it all.
    site = Window.partitionBy("step", "layer", "tensor")
    rows = rows.withColumn("most", F.max("ranks").over(site)).where("ranks = most").drop("most")
    centers = rows.groupBy(*by).agg(F.expr("max_by(center, numel)").alias("middle"))
    for name in by:  # also where a value is null
        centers = centers.withColumnRenamed(name, f"of_{name}")
    same = [rows[name].eqNullSafe(centers[f"of_{name}"]) for name in by] or [F.lit(True)]
    condition = same[0]
    for one in same[1:]:
        condition = condition & one
    rows = _with(rows.join(centers, condition), moved_sql("middle")).withColumn("center", F.col("middle"))
    fixed = {*by, "step", "layer", "cls", "tensor", "dtype", "ord", "rank", "attempt", "ranks", "calls", "time", "middle", *RAW_SUMS}
    fixed |= {f"of_{name}" for name in by}
    fields = merged_sql((), PLAIN)
    extras = [name for name, kind in rows.dtypes if kind in _NUMBERS and name not in fixed and name not in fields]
    sums = {"first_step": "min(step)", "last_step": "max(step)", "num_rows": "count(*)", **merged_sql(extras, PLAIN)}
    merged = rows.groupBy(*by).agg(*(F.expr(_in_spark(sql)).alias(name) for name, sql in sums.items()))
    merged = _with(merged, RAW_SUMS)
    return _with(merged, derivable(set(merged.columns)))


def _with(rows: DataFrame, expressions: Mapping[str, str]) -> DataFrame:
    """Further columns, or others in their place, all computed from the rows as they are."""
    from pyspark.sql import functions as F

    return rows.withColumns({name: F.expr(_in_spark(sql)) for name, sql in expressions.items()})


def _in_spark(sql: str) -> str:
    """DuckDB's SQL of a statistic as Spark has it: names in backticks, numbers with a point are doubles."""
    sql = re.sub(r'"([^"]+)"', r"`\1`", sql)
    sql = re.sub(r"isfinite\((\w+)\)", r"(abs(\1) < CAST('Infinity' AS DOUBLE))", sql)
    return re.sub(r"(?<![\w.])(\d+\.\d+)(?![\w.])", r"\1D", sql)
