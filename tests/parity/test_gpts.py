"""Megatron Core's layers spread over ranks, beside one process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch.distributed as dist

from numscope.parity.judging import judge
from numscope.parity.layout import RecordedLayout
from tests.distributed.ranks import RankPool
from tests.late import late
from tests.parity.gpts import CASES, is_right, judged, play, train
from tests.parity.megatron_optimizer import train as sharded_train

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


@pytest.mark.parametrize(
    ("is_low", "name", "kind"), [(False, "healthy", None), (False, "twice", "counted twice"), (True, "healthy", "low precision")]
)
def test_what_the_distributed_optimizer_gets_is_compared(
    alone: None, ranks: RankPool, tmp_path: Path, is_low: bool, name: str, kind: str | None
) -> None:
    sharded_train(0, "healthy", tmp_path / "one rank", tmp_path / "none", is_low)
    ranks.run(sharded_train, name, tmp_path / "two", tmp_path / "one rank", is_low)
    found = judge(RecordedLayout.read(tmp_path / "one rank"), RecordedLayout.read(tmp_path / "two"))
    assert (found.kind, found.num_compared, found.notes) == (kind, 37, ())
    assert not is_low or "bfloat16" in found.text  # Megatron sums in float32, the reference rounds
    assert kind != "counted twice" or found.parameter in ("decoder.final_layernorm.weight", "decoder.final_layernorm.bias")
