"""Ranks that do not come, die, stop or hang, as real processes: everybody else ends in time, with one exit code, and names the culprit."""

from __future__ import annotations

import signal
import time

import pytest

from numscope.doctor.budget import share
from tests.doctor.fleet import BRISK, DIE, HANG, OVERHEAD_S, STOP, fleet, in_phase

PHASES = ["facts", "rendezvous", "compare", "links"]


def test_healthy_ranks_each_print_their_own_line_and_exit_with_0() -> None:
    with fleet(4) as ranks:
        ended = ranks.end()
    assert {rank: one.code for rank, one in ended.items()} == dict.fromkeys(range(4), 0), ended
    for rank, one in ended.items():
        assert [line for line in one.out.splitlines() if line.endswith(f":{rank}] is OK")], one
    assert ranks.seconds < BRISK.deadline_s


def test_rank_that_never_starts_is_named() -> None:
    with fleet(4, absent=(2,)) as ranks:
        ended = ranks.end()
    assert {one.code for one in ended.values()} == {1}
    assert "Rank 2 never came to the rendezvous" in ended[0].out
    assert ranks.seconds < share(BRISK, 1) + 2 + OVERHEAD_S


@pytest.mark.parametrize("phase", PHASES)
def test_rank_that_dies_is_named_with_its_phase(phase: str) -> None:
    with fleet(3, preludes={1: in_phase(phase, DIE)}) as ranks:
        ended = ranks.end()
    assert {ended[rank].code for rank in (0, 2)} == {1}, ended
    assert "rank-died" in ended[0].out or phase == "facts", ended[0]  # it may die of its facts before it is with the others
    assert "Rank 1" in ended[0].out


@pytest.mark.parametrize("phase", PHASES)
def test_rank_that_is_stopped_is_named_with_its_phase(phase: str) -> None:
    with fleet(3, preludes={1: in_phase(phase, STOP)}) as ranks:
        ended = ranks.end((0, 2))
    assert {one.code for one in ended.values()} == {1}, ended
    assert "Rank 1" in ended[0].out
    assert "rank-silent" in ended[0].out or phase == "facts", ended[0]
    assert ranks.seconds < share(BRISK, 1) + 2 + OVERHEAD_S


def test_rank_that_hangs_while_its_heart_beats_is_given_up_by_itself() -> None:
    with fleet(3, preludes={1: in_phase("compare", HANG)}) as ranks:
        ended = ranks.end()
    assert len({one.code for one in ended.values()}) == 1, ended
    assert ended[0].code in (1, 3)
    assert " is OK" in ended[2].out and " is OK" not in ended[1].out
    assert ranks.seconds < share(BRISK, 2) + 2 + OVERHEAD_S


@pytest.mark.parametrize(
    ("phase", "fault", "finding"),
    [("rendezvous", DIE, "hub-died"), ("links", DIE, "hub-died"), ("rendezvous", STOP, "hub-silent"), ("links", STOP, "hub-silent")],
)
def test_rank_0_that_is_gone_is_named_by_everybody_left(phase: str, fault: str, finding: str) -> None:
    # The others have joined by then: a rank that comes later finds a port that refuses, or is silent.
    late = f"time.sleep(0.7) or {fault}" if phase == "rendezvous" else fault
    with fleet(3, preludes={0: in_phase(phase, late)}) as ranks:
        ended = ranks.end((1, 2))
    assert {one.code for one in ended.values()} == {1}, ended
    for one in ended.values():
        assert finding in one.out, one
        assert "in rank 0's process or launcher" in one.out
        assert f"({phase})" in one.out


def test_rank_0_that_never_starts_is_told_as_a_hub_that_refuses() -> None:
    with fleet(3, absent=(0,)) as ranks:
        ended = ranks.end()
    assert {one.code for one in ended.values()} == {1}
    assert all("hub-refused" in one.out for one in ended.values()), ended


def test_two_ranks_with_one_number_are_both_named() -> None:
    with fleet(3, environs={2: {"RANK": "1"}}) as ranks:
        ended = ranks.end()
    assert {one.code for one in ended.values()} == {1}, ended
    assert "rank-duplicate" in ended[0].out
    assert [one.out for one in ended.values() if "was not let in: rank 1 is said by" in one.out]
    assert ranks.seconds < share(BRISK, 1) + 1  # nobody is waited for who can't come any more


def test_world_sizes_that_disagree_are_told() -> None:
    with fleet(3, environs={2: {"WORLD_SIZE": "4"}}) as ranks:
        ended = ranks.end()
    assert {one.code for one in ended.values()} == {1}, ended
    assert "world-size-differs" in ended[0].out
    assert "says world size 4, rank 0's is 3" in ended[2].out


def test_other_token_is_another_job() -> None:
    with fleet(2, environs={1: {"NUMSCOPE_DOCTOR_TOKEN": "another"}}) as ranks:
        ended = ranks.end()
    assert {one.code for one in ended.values()} == {1}, ended
    assert "hub-of-another-job" in ended[1].out
    assert "does not hold this job's token" in ended[0].out


def test_stopped_rank_that_wakes_up_ends_too() -> None:
    with fleet(2, preludes={1: in_phase("compare", STOP)}) as ranks:
        first = ranks.end_of(0)
        assert first.code == 1
        started = time.monotonic()
        ranks.send(1, signal.SIGCONT)
        assert ranks.end_of(1).code == 1
        assert time.monotonic() - started < OVERHEAD_S
