"""Megatron Core's layers spread over ranks, beside one process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch.distributed as dist

from tests.distributed.ranks import RankPool
from tests.late import late
from tests.parity.gpts import CASES, is_right, judged, play, train

late("megatron.core")


@pytest.fixture
def alone() -> Iterator[None]:
    """This process as the only rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_healthy_layouts_agree_and_faults_are_named(alone: None, ranks: RankPool, tmp_path: Path) -> None:
    for disturb, name in ((False, "one rank"), (True, "one rank, disturbed")):
        train(replace(CASES["one rank"], disturb=disturb), tmp_path / name, tmp_path / "none")
    names = [name for name in CASES if name != "one rank"]
    ranks.run(play, names, tmp_path)
    verdicts = {name: judged(name, tmp_path) for name in names}
    assert not {name: found for name, found in verdicts.items() if not is_right(name, found) or found.notes or found.num_compared != 37}
