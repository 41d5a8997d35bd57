"""Differences between ranks, by majority."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from numscope.doctor.diagnose.differing_facts import clocks, differences, split
from tests.doctor.examples import examination


def test_equal_facts_have_no_difference() -> None:
    assert differences(examination(4)) == []


@given(st.dictionaries(st.integers(0, 20), st.sampled_from("abc"), min_size=1))
def test_majority_and_others_are_all_ranks(values: dict[int, str]) -> None:
    found = split(values, "version-mismatch", "x")
    if found is None:
        assert len(set(values.values())) == 1
        return
    kept = {rank for rank, value in values.items() if value == found.majority}
    assert kept | set(found.ranks) == set(values)
    assert not kept & set(found.ranks)
    assert found.tie == (max(map(list(values.values()).count, values.values())) * 2 <= len(values))
    assert not kept or len(kept) * 2 > len(values)


def test_a_tie_is_said_as_a_tie() -> None:
    (found,) = differences(examination(2, own_facts={1: {"versions": {"python": "3.11.7", "numscope": "0.1.0", "torch": "2.12.0"}}}))
    assert (found.subject, found.tie, found.ranks) == ("torch version", True, (0, 1))


def test_one_rank_among_many_differs_from_the_majority() -> None:
    (found,) = differences(examination(5, own_facts={3: {"environment": {"NCCL_PROTO": "LL"}}}))
    assert (found.subject, found.majority, found.others) == ("NCCL_PROTO", "not set", {"'LL'": (3,)})


def test_what_differs_rightly_is_left_out() -> None:
    own = {rank: {"environment": {"CUDA_VISIBLE_DEVICES": str(rank), "TORCHELASTIC_ERROR_FILE": f"x{rank}"}} for rank in range(3)}
    assert differences(examination(3, own_facts=own)) == []


def test_fact_that_could_not_be_had_is_no_difference() -> None:
    examined = examination(3)
    del examined.results[1].data["limits"], examined.results[1].data["gpus"]  # type: ignore[attr-defined]
    assert differences(examined) == []


def test_gpus_are_compared_by_kind_and_number_not_by_their_own_numbers() -> None:
    def gpus(count: int, first: int) -> dict[str, object]:
        devices = [{"index": at, "name": "NVIDIA H200", "uuid": f"GPU-{first + at}", "memory_bytes": 1} for at in range(count)]
        return {"gpus": {"status": "ok", "error": "", "driver": "570", "devices": devices}}

    assert differences(examination(3, own_facts={rank: gpus(8, 8 * rank) for rank in range(3)})) == []
    (found,) = differences(examination(3, own_facts={rank: gpus(7 if rank == 2 else 8, 8 * rank) for rank in range(3)}))
    assert (found.majority, found.others) == ("8 × NVIDIA H200", {"7 × NVIDIA H200": (2,)})


def test_clock_offset_counts_beyond_a_second() -> None:
    examined = examination(3)
    examined.roster[2]["offset_s"] = 1.4  # type: ignore[index]
    assert list(clocks(examined)) == [2]
    examined.roster[2]["offset_s"] = 0.9  # type: ignore[index]
    assert clocks(examined) == {}


def test_of_many_clocks_those_are_off_that_differ_from_most_even_if_the_hubs_is() -> None:
    examined = examination(5)
    for rank in range(1, 5):
        examined.roster[rank]["offset_s"] = 60.0  # type: ignore[index]
    assert list(clocks(examined)) == [0]
