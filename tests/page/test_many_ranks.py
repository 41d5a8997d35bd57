"""A run of thousands of ranks, read by the commands that a person waits for."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from numscope.cli.top_screen import screen
from numscope.page import rank_cells
from numscope.page.digest import digest_of
from numscope.page.overview import overview_of
from numscope.page.recorded import read_recorded, read_statistics
from numscope.records.layer import Layer
from numscope.runs import query
from numscope.runs.compaction import compact
from numscope.sinks.parquet import ParquetSink
from numscope.summary.state import Summary
from tests.page.test_recorded import ALERT, FINDING, document
from tests.sinks.seen import observation

NUM_RANKS = 3000
MOST_CPU_S = 60.0  # 3 on an idle machine; it was minutes


def test_run_of_3000_ranks_is_read_in_time_and_whole(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    layers = [asdict(Layer(f"layers.{i}", "Linear", f"layers.{i}", ("weight",), 8, 32)) for i in range(20)]
    for rank in range(NUM_RANKS):
        (tmp_path / f"findings-rank{rank}.json").write_text(
            document({**FINDING, "rank": rank}, rank=rank, alerts=[{**ALERT, "rank": rank}])
        )
        (tmp_path / "ranks" / f"rank{rank}-1.json").write_text(json.dumps({"rank": rank, "layers": layers}))
    begin = time.process_time()
    found = read_recorded(tmp_path)
    assert time.process_time() - begin < MOST_CPU_S
    assert found.problems == () and len(found.alerts) == 1 and found.alerts[0].ranks == tuple(range(NUM_RANKS))


def run_of_ranks(folder: Path, num_ranks: int, odd: dict[int, float]) -> None:
    for rank in range(num_ranks):
        sink = ParquetSink(folder, rank, {})
        for step in range(3):
            amax = odd.get(rank, 1.0 + rank / 1000) if step == 1 else 1.0
            summary = Summary(numel=4, num_nan=int(amax != amax), min=0.0, max=amax, abs_max=amax)
            sink.write([observation(step, "fc", rank=rank, summary=summary)])
        sink.close()
        (folder / f"findings-rank{rank}.json").write_text(document(rank=rank, steps=3, events=[[1, "GradScaler skipped the step"]]))


def test_ranks_that_stand_apart_are_named_and_the_others_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_cells, "MAX_RANKS", 4)
    monkeypatch.setattr(rank_cells, "MOST_APART", 2)
    run_of_ranks(tmp_path, 40, {7: 50.0, 31: 0.01, 38: float("nan")})
    for _ in range(2):
        recorded = read_recorded(tmp_path)
        statistics, _ = read_statistics(recorded)
        assert statistics is not None and (ranks := statistics.ranks) is not None
        assert {7, 31, 38} < set(ranks.ranks) and len(ranks.ranks) == 4 and (ranks.num_ranks, ranks.num_apart) == (40, 3)
        assert [(one.rank, one.step) for one in ranks.apart] == [(38, 1), (31, 1)]
        assert [(one.step, one.num_ranks) for one in recorded.events] == [(1, 40)]
        told = json.loads(digest_of(recorded))
        assert told["ranks"]["apart"][1] == "rank 31: 0.01 in fc activation, step 1; the median is 1.019"
        assert told["ranks"]["headline"] == "3 of 40 ranks apart from the median by a factor of 2 or more"
        console = Console(width=120, record=True, file=open("/dev/null", "w"))
        console.print(screen(overview_of(str(tmp_path)), 0.0, 120))
        lines = console.export_text().splitlines()
        assert "↕ rank 38: inf in fc activation, step 1; the median is 1.019" in [line.strip() for line in lines] and len(lines) < 20
        compact(str(tmp_path))  # the same then


def test_of_two_ranks_and_from_a_median_of_0_only_what_is_not_finite_stands_apart() -> None:
    amax = np.array([[[1.0], [50.0], [np.nan]], [[0.0], [3.0], [0.0]], [[1.0], [np.inf], [np.nan]], [[0.0], [np.inf], [0.0]]], np.float32)
    assert (rank_cells._apart(amax)[1].max(axis=(1, 2)) > 0).tolist() == [False, False, True, True]


def test_many_small_parts_are_held_and_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_of_ranks(tmp_path, 6, {3: 50.0})
    recorded = read_recorded(tmp_path)
    plain = read_statistics(recorded)
    monkeypatch.setattr(query, "MANY_PARTS", 2)
    assert repr(plain) == repr(read_statistics(recorded))
