"""Pipelines of torch.distributed.pipelining beside one process: their stages' parameters are found in the whole, whatever their names."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from numscope.parity.stages import names_in_whole
from numscope.records.fingerprint import WHOLE, Sketch, TensorPrint
from tests.distributed.ranks import RankPool
from tests.parity.cases import train
from tests.parity.layouts import Net
from tests.parity.pipelines import CASES, is_right, judged, play


def test_healthy_pipelines_agree_and_faults_are_named(ranks: RankPool, tmp_path: Path) -> None:
    for name in ("whole batch", "whole batch, disturbed"):
        train(name, tmp_path)
    ranks.run(play, list(CASES), tmp_path)
    verdicts = {name: judged(name, tmp_path) for name in CASES}
    assert not {name: found for name, found in verdicts.items() if not is_right(name, found)}
    assert {found.num_compared for found in verdicts.values()} == {len([*Net().parameters()])}
    assert all(
        note.startswith("6 parameters recognized by weights, under another name: blocks.0.up.weight of rank")
        for found in verdicts.values()
        for note in found.notes
    )


def named(bits: list[int], names: list[str]) -> dict[str, TensorPrint]:
    return {name: TensorPrint((4,), "float32", {WHOLE: Sketch(4, checksum=one)}) for name, one in zip(names, bits, strict=True)}


@given(st.lists(st.integers(0, 3), min_size=2, max_size=30), st.data())
def test_of_parameters_with_equal_bits_neighbors_say_which(bits: list[int], data: st.DataObject) -> None:
    """A stage's parameters follow each other as in the whole; 0 stands for bits that no other parameter has."""
    bits = [one or 100 + i for i, one in enumerate(bits)]
    begin = data.draw(st.integers(0, len(bits) - 1))
    end = data.draw(st.integers(begin + 1, len(bits)))
    own = [f"layer.{i}" for i in range(end - begin)]
    found = names_in_whole(named(bits[begin:end], own), named(bits, [f"whole.{i}" for i in range(len(bits))]))
    if any(bits.count(one) == 1 for one in bits[begin:end]):
        assert found == {name: f"whole.{begin + i}" for i, name in enumerate(own)}


def test_a_model_with_all_names_keeps_them() -> None:
    """Layers that are swapped are other weights."""
    assert not names_in_whole(named([1, 2], ["a", "b"]), named([2, 1], ["a", "b"]))
