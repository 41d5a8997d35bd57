"""SQL over a run, and what it can't reach."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import numscope
from numscope.records.errors import UsageError
from numscope.runs.folder import find_run
from numscope.runs.grouping import group
from numscope.runs.query import QueryResult, ask
from numscope.sinks.parquet import ParquetSink
from numscope.summary.dispatch import summarize
from numscope.summary.extras import EXPONENTS
from numscope.summary.operand_casts import PAPER_EXTRAS
from numscope.summary.statistics import STATISTICS
from tests.runs.tensors import Place, two_layers, write
from tests.sinks.seen import observation
from tests.summary.test_moments import assert_right, exact
from tests.warm import COLD


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("run")
    write(made, two_layers(), (EXPONENTS, PAPER_EXTRAS["e4m3"]))
    return made


def answer(folder: Path, sql: str) -> QueryResult:
    return ask(find_run(folder), sql)


def test_derived_statistics_are_columns(folder: Path) -> None:
    seen = two_layers()
    found = answer(folder, "SELECT step, layer, tensor, mean, std, l2_norm, e4m3_underflows_pct, len(exponent_histogram) FROM stats")
    assert len(found.rows) == len(seen)
    for step, layer, tensor, mean, std, l2_norm, underflows, bins in found.rows:
        (value,) = (v for p, v in seen.items() if (p.step, p.layer, p.tensor) == (step, layer, tensor))
        summary = summarize(value)
        assert mean == pytest.approx(summary.mean, rel=1e-12)
        assert std == pytest.approx(summary.std, rel=1e-9)
        assert l2_norm == pytest.approx(summary.l2_norm, rel=1e-12)
        assert 0 <= underflows <= 100
        assert bins == 256


def test_view_has_every_statistic_whose_columns_are_there_and_no_other(folder: Path) -> None:
    columns = set(answer(folder, "SELECT * FROM stats LIMIT 0").columns)
    there = {name for name, s in STATISTICS.items() if (extra := s.extra(())) is None or extra.key in ("exponents", "e4m3")}
    assert there <= columns
    assert not (set(STATISTICS) - there) & columns


def test_load_is_the_same_as_a_frame(folder: Path) -> None:
    frame = numscope.load(folder)
    assert len(frame) == len(two_layers())
    assert list(frame.step) == sorted(frame.step)
    assert {"layer", "tensor", "sum", "std", "kurtosis"} <= set(frame.columns)
    few = numscope.load(
        str(folder), "SELECT step, max(amax) AS amax FROM (SELECT step, cur_amax AS amax FROM stats) GROUP BY step ORDER BY step"
    )
    assert list(few.columns) == ["step", "amax"]
    assert list(few.step) == [0, 1, 2, 3]


def test_parts_with_different_columns_are_one_table(tmp_path: Path) -> None:
    write(tmp_path, {Place(0, "a", "Linear", "weight"): torch.ones(3)}, (PAPER_EXTRAS["e4m3"],))
    write(tmp_path, {Place(0, "b", "Linear", "weight", rank=1): torch.ones(3)}, (PAPER_EXTRAS["bf16"],))
    found = answer(tmp_path, "SELECT layer, e4m3_num_underflow, bf16_num_underflow FROM raw ORDER BY layer")
    assert found.rows == [("a", 0.0, None), ("b", None, 0.0)]


def test_step_that_a_restarted_job_ran_again_counts_once_with_its_later_numbers(tmp_path: Path) -> None:
    def attempt(rank: int, steps: range, value: float) -> None:
        sink = ParquetSink(tmp_path, rank, {})
        for step in steps:
            sink.write([observation(step, f"of{rank}", summary=summarize(torch.tensor([value])))])
        sink.close()

    attempt(0, range(0, 7), 1.0)
    attempt(1, range(0, 9), 1.0)  # got further than rank 0
    attempt(0, range(5, 8), 2.0)  # from the checkpoint of step 4
    attempt(1, range(5, 8), 2.0)
    attempt(0, range(3, 4), 3.0)  # from an earlier one, then killed
    found = answer(tmp_path, 'SELECT rank, step, "max" FROM stats ORDER BY ALL').rows
    assert [row[1:] for row in found if row[0] == 0] == [(0, 1.0), (1, 1.0), (2, 1.0), (3, 3.0)]
    assert [row[1:] for row in found if row[0] == 1] == [(0, 1.0), (1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0), (5, 2.0), (6, 2.0), (7, 2.0)]


@pytest.mark.parametrize("name", ["plain", "it's", "ru[n]s", "a*b", "x=1", "what?", "größe 2"])
def test_folder_of_any_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "run").mkdir()  # what a pattern would also find
    write(tmp_path / "runs", {Place(0, "wrong", "Linear", "weight"): torch.ones(3)})
    write(tmp_path / name, {Place(0, "a", "Linear", "weight"): torch.ones(3)})
    found = answer(tmp_path / name, "SELECT * FROM stats")
    assert [row[found.columns.index("layer")] for row in found.rows] == ["a"]
    assert "x" not in found.columns


def test_file_that_is_not_whole_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, {Place(0, "a", "Linear", "weight"): torch.ones(3)})
    (tmp_path / "statistics" / "rank0-1-000001.parquet").write_bytes(b"PAR1 and then the disk was lost")
    (tmp_path / "statistics" / "rank0-1-000002.parquet").write_bytes(b"")
    run = find_run(tmp_path)
    assert run.broken == ("rank0-1-000001.parquet", "rank0-1-000002.parquet")
    assert len(ask(run, "SELECT layer FROM stats").rows) == 1


# ---- what a query can't do


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{secret}')",
        "SELECT * FROM read_text('{secret}')",
        "SELECT * FROM read_blob('{secret}')",
        "SELECT * FROM '{secret}'",
        "SELECT * FROM glob('{parent}/*')",
        "SELECT * FROM read_parquet('{parent}/other/statistics/*.parquet')",
        "SELECT * FROM read_csv('https://example.invalid/x.csv')",
        "SELECT * FROM read_parquet('s3://example.invalid/x.parquet')",
        "SELECT * FROM sniff_csv('{secret}')",
        "SELECT * FROM query('SELECT * FROM read_text(''{secret}'')')",
    ],
)
def test_query_reads_nothing_but_the_run(tmp_path: Path, sql: str) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\nhidden\n")
    for name in ("run", "other"):
        write(tmp_path / name, {Place(0, "a", "Linear", "weight"): torch.ones(3)})
    with pytest.raises(UsageError) as refused:
        answer(tmp_path / "run", sql.format(secret=secret, parent=tmp_path))
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO '{file}'",
        "COPY stats TO '{statistics}/rank0-1-000000.parquet' (FORMAT parquet)",
        "CREATE TABLE t AS SELECT 1",
        "DROP VIEW stats",
        "ATTACH '{file}'",
        "EXPORT DATABASE '{file}'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "PRAGMA database_list",
        "SELECT 1; SELECT 2",
        "SELECT 1; COPY (SELECT 1) TO '{file}'",
        "",
    ],
)
def test_query_changes_nothing(tmp_path: Path, sql: str) -> None:
    write(tmp_path / "run", {Place(0, "a", "Linear", "weight"): torch.ones(3)})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=r"expected one SELECT over the view stats: a run is read, never changed\.$"):
        answer(tmp_path / "run", sql.format(file=tmp_path / "made", statistics=tmp_path / "run" / "statistics"))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_query_sees_no_variable_of_the_program(folder: Path) -> None:
    import pandas as pd

    secrets = pd.DataFrame({"a": ["hidden"]})
    with pytest.raises(UsageError, match=r"^SQL: got the table 'secrets', expected stats, steps or raw\.$"):
        answer(folder, "SELECT * FROM secrets")
    assert len(secrets) == 1


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "SELECT l2norm FROM stats",
            r"^SQL: got the column 'l2norm', expected one of step, layer, .*\. Did you mean 'l2_norm'( or '\w+')*\?$",
        ),
        ("SELECT step FROM stats WHERE kurtosi > 3", r"^SQL: got the column 'kurtosi', .* Did you mean 'kurtosis'"),
        ("SELECT s.lyer FROM stats s", r"^SQL: got the column 'lyer', .* Did you mean 'layer'"),
        ("SELEC 1", r"^SQL: syntax error at or near \"SELEC\"\nLINE 1: SELEC 1\n"),
        ("SELECT fsumm(step) FROM stats", r"^SQL: .*Function with name fsumm does not exist"),
        ("SELECT CAST(layer AS INT) FROM stats", r"^SQL: Could not convert string"),
    ],
)
def test_wrong_query_is_a_usage_error_that_helps(folder: Path, sql: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        answer(folder, sql)
    with pytest.raises(UsageError, match=message):
        numscope.load(folder, sql)


# ---- what is no run


def test_folder_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "runs-a" / "statistics").mkdir(parents=True)
    with pytest.raises(
        UsageError,
        match=r"^RUN: got '.*runs-b', expected a run's folder, such as numscope run --log-dir DIR train\.py makes\. Did .*runs-a'\?$",
    ):
        find_run(tmp_path / "runs-b")


def test_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("")
    with pytest.raises(UsageError, match=r"expected a run's folder, such as numscope run --log-dir DIR train\.py makes\. It is a file\.$"):
        find_run(tmp_path / "notes")


def test_folder_that_is_empty(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"such as numscope run --log-dir DIR train\.py makes\. It is empty\.$"):
        find_run(tmp_path)


def test_run_that_was_killed_before_it_wrote_numbers(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    with pytest.raises(UsageError, match=r"has written no statistics yet.*without pyarrow: pip install 'numscope\[runs\]'\.$"):
        find_run(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="names of other systems are Unicode")
def test_folder_whose_name_is_not_utf8(tmp_path: Path) -> None:
    folder = tmp_path / "caf\udce9"
    write(tmp_path / "run", {Place(0, "a", "Linear", "weight"): torch.ones(3)})
    (tmp_path / "run").rename(folder)
    with pytest.raises(UsageError, match=r"caf\\udce9', a name that is not UTF-8, which DuckDB can't read\."):
        find_run(folder)


def test_folder_without_a_run_names_one_inside(tmp_path: Path) -> None:
    write(tmp_path / "deep", {Place(0, "a", "Linear", "weight"): torch.ones(3)})
    with pytest.raises(
        UsageError, match=r"expected a run's folder, such as numscope run --log-dir DIR train\.py makes\. Did you mean '.*deep'\?$"
    ):
        find_run(tmp_path)


def test_run_that_has_written_nothing_yet(tmp_path: Path) -> None:
    ParquetSink(tmp_path, 0, {}).close()
    with pytest.raises(UsageError, match="holds a run that has written no statistics yet"):
        find_run(tmp_path)


@pytest.mark.parametrize(("module", "word"), [("duckdb", "duckdb"), ("pandas", "pandas")])
def test_missing_library_says_how_to_install_it(folder: Path, module: str, word: str) -> None:
    code = f"import sys; sys.modules[{module!r}] = None; import numscope; numscope.load(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False)
    assert f"{word} is not installed" in done.stderr
    assert "pip install 'numscope[runs]'" in done.stderr


def test_reading_a_run_does_not_load_torch(folder: Path) -> None:
    code = "import sys, numscope; numscope.load(sys.argv[1]); print('torch' in sys.modules)"
    done = subprocess.run([COLD, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_steps_far_from_zero_are_right_alone_and_merged(tmp_path: Path) -> None:
    tensors = [torch.randn(300, generator=torch.Generator().manual_seed(k), dtype=torch.float64).exp() + 1e8 + k / 100 for k in range(20)]
    sink = ParquetSink(tmp_path, 0, {})
    sink.write([observation(step, "norm", "weight", summary=summarize(x)) for step, x in enumerate(tensors)])
    sink.close()
    names = ("mean", "std", "skewness", "kurtosis", "l2_norm")
    for (step, *values), x in zip(answer(tmp_path, f"SELECT step, {', '.join(names)} FROM stats ORDER BY step").rows, tensors, strict=True):
        assert values == pytest.approx([exact(x.tolist())[name] for name in names], rel=1e-9), step
    (merged,) = group(find_run(tmp_path), "all", names)
    assert_right(merged.summary, torch.cat(tensors).tolist())
