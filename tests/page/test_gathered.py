"""A run that is read while it goes on: whatever came in whichever portions, a page shows what it would if it were read at once."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from numscope.page import axis, histograms, matrices, rank_cells
from numscope.page.gathered import Gathered
from numscope.page.payload import content_of, packed_arrays
from numscope.page.recorded import read_recorded
from numscope.sinks import part_files
from numscope.sinks.parquet import ParquetSink
from numscope.summary.extras import EXPONENTS
from tests.effort import examples
from tests.page.test_recorded import FINDING, document
from tests.runs.tensors import Place, observe, two_layers, write

NUMBERS = (0.5, 3.0, -7.0, 1e30, 0.0, float("nan"), float("inf"))


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few columns, so that few steps already share one."""
    for place, name, value in (
        (axis, "LEAST", 6), (axis, "NEAR", 3), (axis, "AFTER", 1), (matrices, "EXACT_CELLS", 40), (matrices, "ROUNDED_CELLS", 200),
        (histograms, "MAX_CELLS", 4000), (rank_cells, "MAX_CELLS", 40), (part_files, "NUM_MERGED", 3),
    ):  # fmt: skip
        monkeypatch.setattr(place, name, value)


class Training:
    """A run that goes on, of which each flush is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.step = [0, 0]
        self.sinks: dict[int, ParquetSink] = {}
        self.findings: list[int] = []

    def flush(self, rank: int, num_steps: int, stride: int, number: float, layer: int) -> None:
        if rank not in self.sinks:
            self.sinks[rank] = ParquetSink(self.folder, rank, {})
        for _ in range(num_steps):
            self.step[rank] += stride
            place = Place(self.step[rank], f"layer{layer}", "Linear", "output", rank)
            self.sinks[rank].write([observe(place, layer, torch.tensor([number, self.step[rank] % 5]), (EXPONENTS,))])
            loss = Place(self.step[rank], "loss", "loss", "loss", rank)
            self.sinks[rank].write([observe(loss, 9, torch.tensor(number))])
        self.sinks[rank].write_part()

    def restart(self, rank: int, back: int) -> None:
        self.sinks.pop(rank, None)
        self.step[rank] = max(0, self.step[rank] - back)

    def find(self, back: int) -> None:
        self.findings.append(max(0, self.step[0] - back))
        text = document(*({**FINDING, "step": step} for step in self.findings))
        (self.folder / "findings-rank0.json").write_text(text)

    def damage(self, rank: int) -> None:
        if rank in self.sinks:
            (self.folder / "statistics" / f"rank{rank}-{self.sinks[rank].folder.attempt}-900000.parquet").write_bytes(b"PAR1" * 8)

    def begin_again(self) -> None:
        """The folder is deleted, and another run writes under the same names."""
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        self.sinks, self.findings = {}, []


RANK = st.integers(0, 1)
FLUSH = st.tuples(st.just("flush"), RANK, st.integers(1, 12), st.integers(1, 9), st.sampled_from(NUMBERS), st.integers(0, 3))
EVENTS = st.one_of(
    FLUSH, FLUSH, FLUSH,
    st.tuples(st.just("restart"), RANK, st.integers(0, 30)), st.tuples(st.just("find"), st.integers(-5, 60)),
    st.tuples(st.just("damage"), RANK), st.tuples(st.just("begin_again")),
)  # fmt: skip


def shown(folder: Path, gathered: Gathered | None = None) -> dict[str, Any]:
    told = packed_arrays(content_of(read_recorded(folder), gathered))
    return {**told, "made": "", "sources": []}


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example([(("flush", 0, 1, 1, 0.5, 0), False), (("damage", 0), False), (("restart", 0, 1), False)])
@given(st.lists(st.tuples(EVENTS, st.booleans()), min_size=1, max_size=14))
def test_reading_what_is_new_equals_reading_all(narrow: None, events: list[tuple[tuple[Any, ...], bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        training, gathered = Training(Path(folder)), Gathered()
        for (name, *given_), is_looked_at in [*events, (("flush", 0, 2, 1, 1.0, 0), True)]:
            getattr(training, name)(*given_)
            if is_looked_at and any(path.name.startswith("rank") for path in (training.folder / "statistics").glob("*0-*.parquet")):
                assert shown(training.folder, gathered) == shown(training.folder)


def test_a_part_that_is_known_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, two_layers(3), part_rows=4)
    gathered = Gathered()
    shown(tmp_path, gathered)
    for path in (tmp_path / "statistics").iterdir():  # unreadable from here on, but untouched by their looks
        told = path.stat()
        path.write_bytes(b"PAR1" + b"x" * (told.st_size - 8) + b"PAR1")
        os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))
    assert not gathered.update(read_recorded(tmp_path).run, [])  # type: ignore[arg-type]
    write(tmp_path, {Place(9, "new", "A", "output"): torch.ones(2)})
    assert any(site["layer"] == "new" for site in shown(tmp_path, gathered)["sites"])


def test_a_damaged_part_is_left_out_and_the_others_are_shown(tmp_path: Path) -> None:
    write(tmp_path, two_layers(3), part_rows=18)
    damaged = sorted((tmp_path / "statistics").iterdir())[1]
    damaged.write_bytes(b"PAR1" * 8)
    told = shown(tmp_path)
    assert told["first"] == (0, 2)
    assert told["problems"] == (f"statistics/{damaged.name} could not be read and is left out.",)


def test_a_merged_part_is_read_from_where_its_known_rows_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_files, "NUM_MERGED", 3)
    training, gathered = Training(tmp_path), Gathered()
    for _ in range(2):
        training.flush(0, 4, 1, 2.0, 0)
        shown(tmp_path, gathered)
    assert len(list((tmp_path / "statistics").iterdir())) == 2
    training.flush(0, 4, 1, 3.0, 0)
    (merged,) = (tmp_path / "statistics").iterdir()
    read = []
    real = matrices.Cells.with_rows

    def counting(self: Any, connection: Any, findings: Any) -> Any:
        read.append(connection.execute("SELECT count(*) FROM stats").fetchone()[0])
        return real(self, connection, findings)

    monkeypatch.setattr(matrices.Cells, "with_rows", counting)
    told = shown(tmp_path, gathered)
    assert read == [8], merged.name  # four steps of a layer and of the loss
    assert json.dumps(told) == json.dumps(shown(tmp_path))
