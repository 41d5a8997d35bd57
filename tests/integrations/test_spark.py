"""A run in real Spark, in this process's machine: what DuckDB gives."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from numscope.records.errors import UsageError
from numscope.runs.folder import find_run
from numscope.runs.grouping import group
from numscope.runs.query import ask
from numscope.sinks.parquet import ParquetSink
from numscope.summary.statistics import STATISTICS
from tests.runs.tensors import Place, observe, two_layers, write

if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
    pytest.skip("Spark needs Java, which is not here", allow_module_level=True)
pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed")

from numscope.integrations import spark as numscope_spark  # noqa: E402

LISTS = {"exponent_histogram"}


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    build = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1")
    build = build.config("spark.sql.codegen.wholeStage", "false").config("spark.sql.adaptive.enabled", "false")  # of a few rows, faster
    build = build.config(
        "spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    )  # else Java's compiler takes half of it
    session = build.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()  # else its thread stays at work, and the Java process beside it
    gateway.proc.stdin.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks, means far from zero, nan and inf, and a restart of the first rank that ran a step again."""
    folder = tmp_path_factory.mktemp("spark") / "lr=0.1 x[1]{a,b}*"
    seen = two_layers(3)
    seen |= {Place(step, "norm", "LayerNorm", "weight", rank): 1 + 1e-4 * torch.randn(64) for step in range(3) for rank in range(2)}
    odd = {"empty": torch.empty(0), "nan": torch.full((5,), math.nan), "one": torch.tensor([3.0]), "subnormal": torch.tensor([1e-45, 0.0])}
    seen |= {Place(0, name, "Linear", "output"): value for name, value in odd.items()}
    write(folder, seen)
    sink = ParquetSink(folder, 0, {})
    sink.write([observe(Place(2, "norm", "LayerNorm", "weight"), 0, torch.full((64,), 5.0))])
    sink.close()
    return folder


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        return one == other or (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-11)
    return bool(one == other)


def test_the_view_is_duckdbs(spark: Any, run: Path) -> None:
    ours = numscope_spark.stats(spark, str(run))
    theirs = ask(find_run(run), "SELECT * EXCLUDE (time) FROM stats ORDER BY step, layer, tensor, rank")
    rows = ours.orderBy("step", "layer", "tensor", "rank").collect()
    assert set(theirs.columns) == {*ours.columns} - {"time"}
    assert len(rows) == len(theirs.rows) > 20
    assert {row["attempt"] for row in rows} == {1, 2}
    for mine, other in zip(rows, theirs.rows, strict=True):
        wrong = [name for name, value in zip(theirs.columns, other, strict=True) if not equal(mine[name], value)]
        assert not wrong, (mine["layer"], wrong, [(mine[name], dict(zip(theirs.columns, other, strict=True))[name]) for name in wrong])


@pytest.mark.parametrize(("by", "way"), [(["layer", "tensor"], "name"), ([], "all")])
def test_merged_rows_are_those_of_numscope_stats_by(spark: Any, run: Path, by: list[str], way: str) -> None:
    rows = {tuple(row[name] for name in by): row for row in numscope_spark.stats(spark, str(run), by).collect()}
    names = [name for name in STATISTICS if name not in LISTS and name in next(iter(rows.values())).asDict()]
    groups = group(find_run(run), way, names)
    assert len(groups) == len(rows) and {"max", "mean", "std", "kurtosis", "num_nan", "l2_norm"} <= set(names)
    for one in groups:
        row = rows[(one.name, one.tensor) if by else ()]
        exact = ("numel", "num_nan", "num_pos_inf", "num_neg_inf", "num_zero", "num_subnormal", "min", "max", "abs_min", "abs_max")
        assert [row[name] for name in exact] == [getattr(one.summary, name) for name in exact]
        for name in names:
            value = one.values[name]
            if value is None or row[name] is None:
                assert value is None and row[name] is None, name
            else:
                assert math.isclose(row[name], float(value), rel_tol=1e-9, abs_tol=1e-12), (name, row[name], value)  # type: ignore[arg-type]


def test_a_column_that_is_none_is_refused(spark: Any, run: Path) -> None:
    with pytest.raises(UsageError, match=r"by\[0\]: got the column 'layers', expected one of .*Did you mean 'layer'"):
        numscope_spark.stats(spark, str(run), ["layers"])
