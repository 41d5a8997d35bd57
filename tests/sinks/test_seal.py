"""Damage to a stored part: one flipped bit anywhere is noticed, the part is named, and the others stay readable."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from numscope.records.errors import UsageError
from numscope.runs.folder import find_run
from numscope.runs.query import ask
from numscope.sinks.seal import is_sound, seal
from tests.effort import examples
from tests.runs.tensors import two_layers, write

ROWS = "SELECT * FROM every_row ORDER BY step, rank, ord"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sealed") / "run"
    write(folder, two_layers(), part_rows=40)
    return folder


def parts(folder: Path) -> list[Path]:
    return sorted((folder / "statistics").iterdir())


def test_what_was_written_is_sound_and_pages_have_checksums_of_their_own(run: Path) -> None:
    assert len(parts(run)) > 1 and all(is_sound(str(part)) for part in parts(run))
    for part in parts(run):
        pq.ParquetFile(part, page_checksum_verification=True).read()


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_no_flipped_bit_is_read_as_a_number(run: Path, data: st.DataObject) -> None:
    part = parts(run)[0]
    whole = part.read_bytes()
    place, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
    try:
        part.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        if part.name not in find_run(run).broken:  # a bit of the seal's name or size: then no number's is flipped
            seal_at = whole.rfind(b"numscope_crc32")
            assert seal_at <= place < seal_at + len("numscope_crc32") + 2 + 16
            return
        assert f"statistics/{part.name} is damaged or incomplete, and is left out." in find_run(run).problems
    finally:
        part.write_bytes(whole)


def test_other_parts_stay_readable(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    rows = ask(find_run(copy), ROWS).rows
    first = parts(copy)[0]
    lost = pq.ParquetFile(first).metadata.num_rows
    first.write_bytes(first.read_bytes()[:-300] + b"\0" + first.read_bytes()[-299:])
    assert [repr(row) for row in ask(find_run(copy), ROWS).rows] == [repr(row) for row in rows[lost:]]


def test_run_of_damaged_parts_alone_is_refused_with_their_names(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    for part in parts(copy):
        part.write_bytes(part.read_bytes().replace(b"Linear", b"Linfar"))
    with pytest.raises(UsageError, match=r"no part that can be read: statistics/rank0-1-0000\d\d\.parquet, .* is damaged or incomplete\."):
        find_run(copy)


def test_merged_part_is_sealed_anew(tmp_path: Path) -> None:
    from numscope.sinks.parquet import ParquetSink
    from tests.runs.tensors import Place, observe

    sink = ParquetSink(tmp_path, 0, {})
    for step in range(12):
        sink.write([observe(Place(step, "a", "Linear", "output"), 0, torch.ones(3))])
        sink.write_part()
    sink.close()
    (part,) = parts(tmp_path)
    assert "-000011" in part.name and is_sound(str(part)) and b"numscope_crc32" in part.read_bytes()


def test_part_that_another_program_wrote_anew_is_read(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    for part in parts(copy):
        pq.write_table(pq.ParquetFile(part).read().slice(1), part)  # with the old seal in its metadata
    assert find_run(copy).broken == ()


def test_file_without_a_place_for_a_seal_is_sound_and_cannot_be_sealed(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"PAR1" + b"\0" * 20 + b"\4\0\0\0PAR1")
    assert is_sound(str(tmp_path / "x"))
    with pytest.raises(ValueError, match="without numscope_crc32 in its metadata"):
        seal(str(tmp_path / "x"))
