"""A run's folder that somebody else made: what is in it is read as numbers and names, or refused."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from numscope.cli.command import numscope
from numscope.cli.subject import subject_of
from numscope.records.errors import UsageError
from numscope.records.files import read_json
from numscope.runs import query
from numscope.runs.comparison import compare
from numscope.runs.diff_text import text
from numscope.runs.folder import find_run
from numscope.runs.grouping import available, group
from numscope.runs.query import RAW, ask, reading
from numscope.sinks.runfolder import RunFolder, read_attempts
from numscope.summary.extras import EXPONENTS
from numscope.summary.operand_casts import PAPER_EXTRAS
from tests.effort import examples
from tests.runs.tensors import Place, two_layers, write

SECONDS = 60  # of processor time; a bound that only an endless reader exceeds


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "run", {Place(0, "a", "Linear", "weight"): torch.ones(3)})
    write(tmp_path / "run", {Place(0, "a", "Linear", "weight"): torch.ones(3)})
    return tmp_path / "run"


def parts(folder: Path) -> list[Path]:
    return sorted((folder / "statistics").iterdir())


def put(part: Path, name: str, column: Any) -> None:
    """A part with another column."""
    table = pq.read_table(part, partitioning=None)
    index = table.schema.get_field_index(name)
    column = pa.array(column(table.num_rows)) if callable(column) else column
    pq.write_table(table.append_column(name, column) if index < 0 else table.set_column(index, name, column), part)


def test_text_in_a_column_is_never_run(folder: Path) -> None:
    victim = parts(folder)[0]
    for part in parts(folder):
        evil = f"0); COPY (SELECT 42 AS x) TO '{victim}' (FORMAT csv, USE_TMP_FILE false); --"
        put(part, "rank", lambda n, evil=evil: [evil] * n)
    before = victim.read_bytes()
    with pytest.raises(UsageError, match="holds columns of other types than a run's: rank VARCHAR, expected BIGINT"):
        ask(find_run(folder), "SELECT * FROM stats")
    assert victim.read_bytes() == before


@pytest.mark.parametrize("name", ["step", "attempt", "numel", "max", "layer", "time"])
def test_column_of_another_type_is_refused(folder: Path, name: str) -> None:
    put(parts(folder)[0], name, lambda n: [{"a": 1}] * n)
    with pytest.raises(UsageError, match=rf"could not be read|{name} .*, expected "):
        ask(find_run(folder), "SELECT * FROM stats")


def test_extra_column_of_text_is_refused_and_its_name_is_shown_without_escapes(folder: Path) -> None:
    put(parts(folder)[0], "\x1b[31mred", lambda n: ["x"] * n)
    with pytest.raises(UsageError) as caught:
        ask(find_run(folder), "SELECT * FROM stats")
    assert r"\x1b[31mred VARCHAR, expected numbers" in str(caught.value)


@pytest.mark.parametrize("what", ["part", "statistics"])
def test_link_inside_a_folder_is_refused(folder: Path, what: str) -> None:
    place = parts(folder)[0] if what == "part" else folder / "statistics"
    place.rename(folder / "elsewhere")
    place.symlink_to(folder / "elsewhere")
    with pytest.raises(UsageError, match="is a link, expected a file or folder: links in a run are not followed"):
        find_run(folder)


def test_pipe_in_place_of_a_part_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "statistics" / "rank1-1-000000.parquet")
    assert find_run(folder).broken == ("rank1-1-000000.parquet",)


def test_few_bytes_that_stand_for_many_rows_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "MAX_ROWS_PER_BYTE", 1)
    table = pq.read_table(parts(folder)[0], partitioning=None)
    many = table.take(pa.array([0] * 100_000))
    pq.write_table(many, parts(folder)[0], compression="zstd")
    parts(folder)[1].unlink()
    with pytest.raises(UsageError, match=r"holds 100000 rows in \d+ bytes, expected at most 1 a byte"):
        ask(find_run(folder), "SELECT 1 FROM stats")


def test_connections_reach_nothing_and_stay_locked(folder: Path) -> None:
    def change(connection: duckdb.DuckDBPyConnection) -> None:
        for sql in ("SET enable_external_access = true", "SET lock_configuration = false", f"COPY {RAW} TO '{folder}/x.csv'"):
            with pytest.raises(duckdb.Error):
                connection.execute(sql)

    reading(find_run(folder), change)
    assert not (folder / "x.csv").exists()


# ---- what is printed


@pytest.mark.parametrize("name", ["=cmd|'/c calc'!A0", "+1", "-1+1", "@SUM(1)", "\x1b]0;title\x07", "a\r\n=1"])
def test_csv_holds_neither_formulas_nor_escapes(tmp_path: Path, name: str) -> None:
    write(tmp_path, {Place(0, name, "Linear", "weight"): torch.ones(3)})
    shown = CliRunner().invoke(numscope, ["stats", str(tmp_path), "SELECT layer, -1.5::DOUBLE AS x FROM stats", "--csv"]).stdout
    head, row = shown.splitlines()
    assert head == "layer,x"
    assert row.isprintable() and row.endswith(",-1.5") and row[0] not in "=+-@"


def test_error_texts_show_no_escapes(tmp_path: Path) -> None:
    write(tmp_path / "a", {Place(0, "\x1b[2Jx", "Linear", "weight"): torch.ones(3)})
    write(tmp_path / "b", {Place(0, "\x1b[2Jy", "Other", "weight"): torch.ones(3)})
    for fails in (
        lambda: group(find_run(tmp_path / "a"), "nowhere"),
        lambda: compare(str(tmp_path / "a"), str(tmp_path / "b")),
        lambda: ask(find_run(tmp_path / "a"), "SELECT CAST(layer AS INT) FROM stats"),
    ):
        with pytest.raises(UsageError) as caught:
            fails()
        assert r"\x1b[2J" in str(caught.value)
        assert str(caught.value).replace("\n", "").isprintable()


# ---- JSON


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text("[" * 1_000_000),
        lambda path: path.write_text("9" * 10_000),
        lambda path: path.write_bytes(b"\xff"),
        lambda path: os.mkfifo(path),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: os.truncate(os.open(path, os.O_RDWR | os.O_CREAT), 33 << 20),
    ],
    ids=["deep", "digits", "bytes", "pipe", "link", "large"],
)
def test_json_that_is_none_is_refused(tmp_path: Path, make: Callable[[Path], object]) -> None:
    (tmp_path / "ranks").mkdir()
    for path in (tmp_path / "run.json", tmp_path / "ranks" / "rank0-1.json"):
        make(path)
        with contextlib.suppress(OSError, ValueError):
            assert read_json(path) == math.inf, "a number of any length is read"
    assert read_attempts(tmp_path) == []
    with pytest.raises(UsageError):
        subject_of(str(tmp_path))


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "cls", "weights", "numel_weights"]), inner),
    max_leaves=8,
)


@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(layers=_VALUES | st.lists(st.fixed_dictionaries({key: _VALUES | st.just("x") for key in ("name", "cls", "qualified", "weights")})))
def test_any_layers_are_read_or_refused(tmp_path: Path, layers: Any) -> None:
    (tmp_path / "ranks").mkdir(exist_ok=True)
    (tmp_path / "ranks" / "rank0-1.json").write_text(json.dumps({"layers": layers}))
    try:
        for layer in subject_of(str(tmp_path)).layers:
            assert isinstance(layer.name, str) and isinstance(layer.cls, str)
    except UsageError:
        pass


_JSON = st.recursive(
    _VALUES | st.integers(20, 5000).map(lambda deep: ["deep", deep]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["attempt", "attempts", "started", "pid", "host"]), inner),
    max_leaves=8,
)


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(run=_JSON | st.fixed_dictionaries({"attempts": st.lists(st.fixed_dictionaries({"attempt": st.integers(0, 3), "x": _JSON}))}))
def test_a_run_begins_whatever_is_in_its_folder_already(tmp_path: Path, run: Any) -> None:
    def written(value: Any) -> str:
        """JSON with the nesting that Python's own values can't have."""
        return re.sub(r'\["deep", (\d+)\]', lambda found: "[" * int(found[1]) + "]" * int(found[1]), json.dumps(value))

    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        Path(folder, "run.json").write_text(written(run))
        Path(folder, "ranks").mkdir()
        Path(folder, "ranks", "rank0-1.json").write_text(written(run))
        made = RunFolder(folder, 0, {})
        assert made.attempt == 2
        assert read_attempts(folder)[-1]["attempt"] >= 2


# ---- any folder


def readers(folder: Path) -> list[Callable[[], object]]:
    """All that reads a run's numbers."""
    run = find_run(folder)
    return [
        lambda: ask(run, "SELECT * FROM stats"),
        *(partial(group, run, by, available(run), every_steps=every) for by, every in (("layer", None), ("(.*)", 1))),
        lambda: text(compare(str(folder), str(folder))),
        lambda: CliRunner().invoke(numscope, ["stats", str(folder), "--csv"], catch_exceptions=False, standalone_mode=False),
    ]


def survives(folder: Path) -> None:
    """Each reader has a result or says in a UsageError why there is none."""
    begun = time.process_time()
    try:
        work = readers(folder)
    except UsageError:
        return
    for read in work:
        try:
            read()
        except UsageError as error:
            assert str(error).replace("\n", "").isprintable()
        except Exception as error:
            assert type(error).__module__.startswith("click"), error
    assert time.process_time() - begun < SECONDS


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sample")
    write(made, two_layers(2), (EXPONENTS, PAPER_EXTRAS["e4m3"]), part_rows=100)
    return made


quick = settings(max_examples=examples(6), deadline=None, suppress_health_check=list(HealthCheck))


@quick
@given(edits=st.lists(st.tuples(st.integers(0, 10**6), st.binary(min_size=1, max_size=6)), min_size=1, max_size=4), cut=st.integers(0, 20))
def test_damaged_part_is_read_or_refused(sample: Path, tmp_path: Path, edits: list[tuple[int, bytes]], cut: int) -> None:
    (part,) = parts(sample)
    data = bytearray(part.read_bytes())
    for at, dirt in edits:
        at = 4 + at % (len(data) - 12)
        data[at : at + len(dirt)] = dirt
    del data[200 : 200 + cut]
    (tmp_path / "statistics").mkdir(exist_ok=True)
    (tmp_path / "statistics" / part.name).write_bytes(data)
    survives(tmp_path)


_WHOLE = st.none() | st.integers(-(2**63), 2**63 - 1)
_COLUMNS: dict[str, Any] = {
    **dict.fromkeys(("layer", "cls", "tensor", "dtype"), st.none() | st.text(max_size=3) | st.sampled_from(["a.1", "weight", "output"])),
    **dict.fromkeys(
        ("step", "ord", "rank", "attempt", "ranks", "calls", "time", "numel", "num_nan"), st.none() | st.integers(-(2**63), 2**63 - 1)
    ),
    **dict.fromkeys(("min", "abs_max", "sum", "square_sum", "e4m3_num_underflow"), st.none() | st.floats()),
    "exponents": st.none() | st.lists(st.none() | st.floats(), max_size=3),
}


@quick
@given(data=st.data())
def test_any_values_in_the_columns_are_read_or_refused(sample: Path, tmp_path: Path, data: st.DataObject) -> None:
    (part,) = parts(sample)
    table = pq.read_table(part, partitioning=None)
    for name in data.draw(st.lists(st.sampled_from(sorted(_COLUMNS)), max_size=4, unique=True)):
        index = table.schema.get_field_index(name)
        kind = table.schema.field(index).type if index >= 0 else pa.float64()
        few = data.draw(st.lists(_COLUMNS[name], min_size=1, max_size=4))
        values = [few[i % len(few)] for i in range(table.num_rows)]
        kind = pa.string() if pa.types.is_dictionary(kind) else kind
        column = pa.array(values, pa.int64()).cast(kind) if name == "time" else pa.array(values, kind)
        table = table.append_column(name, column) if index < 0 else table.set_column(index, name, column)
    (tmp_path / "statistics").mkdir(exist_ok=True)
    pq.write_table(table, tmp_path / "statistics" / part.name)
    survives(tmp_path)
