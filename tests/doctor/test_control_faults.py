"""Ranks that do not come, die, stop or hang, as real processes: everybody else ends in time, with one exit code, and names the culprit."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from numscope.doctor.budget import share
from tests.doctor.fleet import BRISK, DIE, HANG, OVERHEAD_S, STOP, Ended, fleet, in_phase

DYING, STOPPING = ("facts", "compare"), ("rendezvous", "links")


def late(phase: str, fault: str) -> str:
    """A prelude of rank 0 that has the fault strike once the others have joined, or have heard of the phase: who comes later finds a port
    that refuses or is silent, and says that."""
    watching = """
from numscope.doctor.meet.hub import Hub
hubs, begin = [], Hub.__init__
def remember(self, *given):
    begin(self, *given)
    hubs.append(self)
Hub.__init__ = remember
def until(all_joined):
    while not all_joined():
        time.sleep(0.01)
    time.sleep(0.3)
"""
    return watching + in_phase(phase, f"until(lambda: len(hubs[0].members) == 3) or {fault}")


@dataclass(frozen=True)
class Case:
    """A fleet with a fault, and the ranks whose ends are looked at."""

    fleet: dict[str, Any]
    ranks: tuple[int, ...] | None = None
    size: int = 3


HUB_GONE = [("rendezvous", DIE, "hub-died"), ("links", STOP, "hub-silent")]
CASES = {
    "absent 2": Case({"absent": (2,)}, size=4),
    "absent 0": Case({"absent": (0,)}),
    "token": Case({"environs": {1: {"NUMSCOPE_DOCTOR_TOKEN": "another"}}}, size=2),
    **{f"1 {phase} {DIE}": Case({"preludes": {1: in_phase(phase, DIE)}}, (0, 2)) for phase in DYING},
    **{f"1 {phase} {STOP}": Case({"preludes": {1: in_phase(phase, STOP)}}, (0, 2)) for phase in STOPPING},
    **{f"0 {phase} {fault}": Case({"preludes": {0: late(phase, fault)}}, (1, 2)) for phase, fault, _ in HUB_GONE},
}
Ends = Callable[[str], tuple[dict[int, Ended], float]]


@pytest.fixture(scope="module")
def end_of() -> Iterator[Ends]:
    """How the ranks of a case ended, and the seconds it took. They wait most of the time, so several cases wait at once."""

    def sail(case: Case) -> tuple[dict[int, Ended], float]:
        with fleet(case.size, **case.fleet) as ranks:
            return ranks.end(case.ranks), ranks.seconds

    with ThreadPoolExecutor(2) as pool:  # as many as the smallest machine has cores
        running = {name: pool.submit(sail, case) for name, case in CASES.items()}
        yield lambda name: running[name].result()


def test_healthy_ranks_each_print_their_own_line_and_exit_with_0() -> None:
    with fleet(4) as ranks:
        ended = ranks.end()
    assert {rank: one.code for rank, one in ended.items()} == dict.fromkeys(range(4), 0), ended
    for rank, one in ended.items():
        assert [line for line in one.out.splitlines() if line.endswith(f":{rank}] is OK")], one
    assert ranks.seconds < BRISK.deadline_s


def test_rank_that_never_starts_is_named(end_of: Ends) -> None:
    ended, seconds = end_of("absent 2")
    assert {one.code for one in ended.values()} == {1}
    assert "Rank 2 never joined" in ended[0].out
    assert seconds < share(BRISK, 1) + 2 + OVERHEAD_S


@pytest.mark.parametrize("phase", DYING)
def test_rank_that_dies_is_named_with_its_phase(phase: str, end_of: Ends) -> None:
    ended, _ = end_of(f"1 {phase} {DIE}")
    assert {one.code for one in ended.values()} == {1}, ended
    assert "rank-died" in ended[0].out or phase == "facts", ended[0]  # it may die of its facts before it is with the others
    assert "Rank 1" in ended[0].out


@pytest.mark.parametrize("phase", STOPPING)
def test_rank_that_is_stopped_is_named_with_its_phase(phase: str, end_of: Ends) -> None:
    ended, seconds = end_of(f"1 {phase} {STOP}")
    assert {one.code for one in ended.values()} == {1}, ended
    assert "Rank 1" in ended[0].out
    assert "rank-silent" in ended[0].out, ended[0]
    assert seconds < share(BRISK, 1) + 2 + OVERHEAD_S


def test_rank_that_hangs_while_its_heart_beats_is_given_up_by_itself() -> None:
    with fleet(3, preludes={1: in_phase("compare", HANG)}) as ranks:
        ended = ranks.end()
    assert len({one.code for one in ended.values()}) == 1, ended
    assert ended[0].code in (1, 3)
    assert " is OK" in ended[2].out and " is OK" not in ended[1].out
    assert ranks.seconds < share(BRISK, 2) + 2 + OVERHEAD_S


@pytest.mark.parametrize(("phase", "fault", "finding"), HUB_GONE)
def test_rank_0_that_is_gone_is_named_by_everybody_left(phase: str, fault: str, finding: str, end_of: Ends) -> None:
    ended, _ = end_of(f"0 {phase} {fault}")
    assert {one.code for one in ended.values()} == {1}, ended
    for one in ended.values():
        assert finding in one.out, one
        assert "in rank 0's process or launcher" in one.out
        assert f"({phase})" in one.out


def test_rank_0_that_never_starts_is_told_as_a_hub_that_refuses(end_of: Ends) -> None:
    ended, _ = end_of("absent 0")
    assert {one.code for one in ended.values()} == {1}
    assert all("hub-refused" in one.out for one in ended.values()), ended


def test_two_ranks_with_one_number_are_both_named() -> None:
    with fleet(3, environs={2: {"RANK": "1"}}) as ranks:
        ended = ranks.end()
    assert {one.code for one in ended.values()} == {1}, ended
    assert "rank-duplicate" in ended[0].out
    assert [one.out for one in ended.values() if "was not admitted: " in one.out and "both claim rank 1" in one.out]
    assert ranks.seconds < BRISK.deadline_s  # nobody is waited for who can't come any more


def test_world_sizes_that_disagree_are_told() -> None:
    with fleet(3, environs={2: {"WORLD_SIZE": "4"}}) as ranks:
        ended = ranks.end()
    assert {one.code for one in ended.values()} == {1}, ended
    assert "world-size-differs" in ended[0].out
    assert "has world size 4, rank 0 has 3" in ended[2].out


def test_other_token_is_another_job(end_of: Ends) -> None:
    ended, _ = end_of("token")
    assert {one.code for one in ended.values()} == {1}, ended
    assert "hub-wrong-job" in ended[1].out
    assert "does not hold this job's token" in ended[0].out


def test_stopped_rank_that_wakes_up_ends_too() -> None:
    with fleet(2, preludes={1: in_phase("compare", STOP)}) as ranks:
        first = ranks.end_of(0)
        assert first.code == 1
        started = time.monotonic()
        ranks.send(1, signal.SIGCONT)
        assert ranks.end_of(1).code == 1
        assert time.monotonic() - started < OVERHEAD_S
