"""A run of thousands of ranks, read by the commands that a person waits for."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path

from numscope.page.recorded import read_recorded
from numscope.records.layer import Layer
from tests.page.test_recorded import ALERT, FINDING, document

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
