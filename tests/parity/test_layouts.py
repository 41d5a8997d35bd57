"""Two layouts: planted faults are named by parameter and kind, healthy ones left alone. All of them: benchmarks/parity.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from numscope.parity.judging import judge
from numscope.parity.layout import RecordedLayout
from numscope.parity.recording import RecordedRank
from tests.distributed.ranks import RankPool
from tests.parity.cases import CASES, DISTURBED, HEALTHY, MUTATIONS, REFERENCES, is_right, judged, play, train

OF_TWO = (
    *("DDP, four micro-batches", "FSDP2, clipped", "tensor parallel", "tensor parallel by hand", "DDP in bfloat16"),
    "sequences and places over ranks",
    *(
        "FSDP2 does not divide",
        "one parameter is not reduced",
        "DDP's module is called",
        "DDP compresses to float16",
        "FSDP2 drops a micro-batch",
    ),
    *("tensor parallel without its backward's reduction", "norms are summed over tensor-parallel ranks", "FSDP2 reduces in bfloat16"),
    *("the first micro-batch is cleared", "a rank counts half", "clipped by the norm of shards", "a rank has the data of another"),
    *("DDP under autocast", "under autocast, summed over ranks", "a rank begins with other weights"),
)
OF_FOUR = ("FSDP2 and tensor parallel", "FSDP2 with AdamW", "one parameter is reduced twice by 4", "a rank counts for nothing")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The references, and all that needs no other rank."""
    folder = tmp_path_factory.mktemp("layouts")
    for name in (*REFERENCES, *DISTURBED, *(name for name in CASES if CASES[name].world == 1)):
        if not (folder / name).exists():
            train(name, folder)
    return folder


def check(names: list[str] | tuple[str, ...], folder: Path) -> None:
    wrong = {name: found for name in names if not is_right(name, found := judged(name, folder))}
    assert not wrong


def test_the_sweep_is_as_wide_as_is_said() -> None:
    assert len(MUTATIONS) >= 30 and len(HEALTHY) >= 10


def test_one_rank(folder: Path) -> None:
    names = [name for name in CASES if CASES[name].world == 1 and name not in DISTURBED]
    assert len(names) > 15
    check(names, folder)


def test_two_ranks(folder: Path, ranks: RankPool) -> None:
    ranks.run(play, list(OF_TWO), folder)
    check(OF_TWO, folder)


def test_four_ranks(folder: Path, four_ranks: RankPool) -> None:
    four_ranks.run(play, list(OF_FOUR), folder)
    check(OF_FOUR, folder)


def test_a_gradient_that_lies_in_summands_is_not_compared_and_that_is_said(folder: Path, tmp_path: Path) -> None:
    """As that of a norm under torch's SequenceParallel."""
    [file] = (folder / "whole batch").glob("rank*.json")
    for lies_in_summands in (True, False):
        run = RecordedRank.read(file)
        name = run.order[0]
        for step in run.steps:
            del step.gradients.tensors[name]
        run.unread = [name] if lies_in_summands else []
        run.write(str(tmp_path))
        found = judge(RecordedLayout.read(folder / "whole batch"), RecordedLayout.read(tmp_path))
        assert (found.kind, found.parameter) == ((None, "") if lies_in_summands else ("no gradient", name))
        assert (
            any(
                f"1 gradient not compared, of which ranks hold summands (Partial) or unknown parts: the first is that of {name}" in note
                for note in found.notes
            )
            is lies_in_summands
        )
