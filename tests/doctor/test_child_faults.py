"""Faults on request: each is found, has a name, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.doctor.crew import Crew, Told, is_gone
from tests.warm import COLD


@pytest.fixture(scope="module")
def corrupted_then_dead() -> Iterator[dict[int, list[Told]]]:
    """Rank 1 sends wrong bits to rank 0 alone; rank 2 gets wrong results, and later its child dies."""
    fault = "corrupt:rank=1,peer=0; corrupt:rank=2,phase=6; die:phase=6,rank=2,step=broadcast"
    with Crew(3, fault, sizes=(8, 1 << 16)) as crew:
        yield {phase: crew.run(phase, seconds) for phase, seconds in ((4, 100.0), (5, 100.0), (6, 20.0))}
    assert all(is_gone(group) for group in crew.groups)


def test_corrupt_payload_is_found_with_its_offset_and_bits(corrupted_then_dead: dict[int, list[Told]]) -> None:
    told = corrupted_then_dead[5]
    assert "rank 0 received 8 B from rank 1 with 3 wrong bits in 2 bytes, the first at offset 6" in told[0].error
    assert told[0].pair(1)["status"] == "corrupt"
    assert [entry["corrupt"] for entry in told[0].pair(1)["received"]] == [
        {"first_offset": 6, "num_bytes": 2, "num_bits": 3},
        {"first_offset": 4711, "num_bytes": 2, "num_bits": 3},
    ]


def test_corrupt_link_is_one_direction_of_one_pair(corrupted_then_dead: dict[int, list[Told]]) -> None:
    told = corrupted_then_dead[5]
    assert (told[1].error, told[2].error) == ("", "")
    assert (told[0].pair(2)["status"], told[1].pair(0)["status"], told[2].pair(1)["status"]) == ("ok", "ok", "ok")


def test_wrong_result_of_a_collective_is_told_by_its_rank_alone(corrupted_then_dead: dict[int, list[Told]]) -> None:
    (small, _large) = [entry for entry in corrupted_then_dead[6][2].data["collectives"] if entry["name"] == "all_reduce"]
    assert small["status"] == "wrong"
    assert (small["wrong"]["index"], small["wrong"]["num_wrong"], small["wrong"]["num_elements"]) == (2, 1, 3)  # its last two bytes
    for rank in (0, 1):
        done = [entry["status"] for entry in corrupted_then_dead[6][rank].data["collectives"] if entry["name"] == "all_reduce"]
        assert done == ["ok", "ok"]


def test_death_of_a_child_is_told_by_its_agent_and_named_by_the_others(corrupted_then_dead: dict[int, list[Told]]) -> None:
    told = corrupted_then_dead[6]
    assert told[2].error.startswith("rank 2's torch process died in collectives: ended by SIGKILL, during: broadcast, ")
    assert (told[2].data["child"]["hung"], told[2].data["child"]["how"]) == (False, "ended by SIGKILL")
    for rank in (0, 1):
        last = told[rank].data["collectives"][-1]
        assert (last["name"], last["missing"]) == ("broadcast", [2])
        assert told[rank].error.endswith("; rank 2 is gone")
        assert told[rank].data["stopped"].startswith("broadcast")


# Each of these waits for a deadline, so they wait together.


def hang_in_pairs() -> list[list[Told]]:
    with Crew(3, "hang:phase=5,rank=1,step=wait", sizes=(8, 1 << 16)) as crew:
        told = [crew.run(4, 100.0), crew.run(5, 12.0), crew.run(6, 60.0, ranks=(0, 2), alive=(0, 2))]
    assert all(is_gone(group) for group in crew.groups)
    return told


def hang_in_a_pair() -> list[list[Told]]:
    """And later, in a step that can't be abandoned, before a collective."""
    with Crew(2, "hang:phase=5,rank=1,step=send; hang:phase=6,rank=1,step=wait for the other ranks", sizes=(8, 1 << 16)) as crew:
        told = [crew.run(4, 100.0), crew.run(5, 12.0), crew.run(6, 12.0)]
    assert all(is_gone(group) for group in crew.groups)
    return told


def stop_the_host() -> list[list[Told]]:
    with Crew(2, python=COLD, sizes=(8,)) as crew:
        told = [crew.run(4, 100.0)]
        os.killpg(crew.child(0).process_group, signal.SIGSTOP)
        told.append(crew.run(5, 12.0))
    assert all(is_gone(group) for group in crew.groups)
    return told


def stay_away() -> list[list[Told]]:
    with Crew(3, absent=(1,), sizes=(8,)) as crew:
        crew.warm_up()
        return [crew.run(4, 45.0), crew.run(5, 12.0, ranks=(0,))]


def find_no_store() -> list[list[Told]]:
    """A store that is silent, then one whose port refuses."""
    with Crew(2, absent=(0,), sizes=(8,)) as crew, socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as closed:
        crew.warm_up()
        closed.bind(("127.0.0.1", 0))  # bound, not listening: refuses
        told = []
        for port in (silent.getsockname()[1], closed.getsockname()[1]):
            crew.roster[0]["listen"]["store_port"] = port
            told.append(crew.run(4, 12.0))
        return told


@pytest.fixture(scope="module")
def stories() -> Iterator[dict[str, list[list[Told]]]]:
    tellers = (hang_in_pairs, hang_in_a_pair, stop_the_host, stay_away, find_no_store)
    with ThreadPoolExecutor(3) as pool:  # more at once would only wait for torch's import
        told = {teller.__name__: pool.submit(teller) for teller in tellers}
        yield {name: future.result() for name, future in told.items()}


Stories = dict[str, list[list[Told]]]


def test_hang_in_pairs_is_killed_with_its_name_and_the_others_go_on(stories: Stories) -> None:
    started, told, after = stories["hang_in_pairs"]
    assert [rank.error for rank in started] == ["", "", ""]
    assert told[1].error.startswith("rank 1's torch process hung in pairs: wait for the other ranks: start, for ")
    assert told[1].data["child"]["hung"]
    for rank, other in ((0, 2), (2, 0)):
        assert told[rank].data["missing"] == [[1, 1]]
        assert told[rank].pair(other)["status"] == "ok"
        assert told[rank].pair(1)["status"] == "skipped"
    assert (after[0].error, after[2].error) == ("", "")  # in a group without it
    assert after[0].data["members"] == [[0, 0], [2, 2]]


def test_hang_in_the_middle_of_a_pair_is_given_up_and_named(stories: Stories) -> None:
    _, told, _ = stories["hang_in_a_pair"]
    assert (told[0].pair(1)["status"], told[0].pair(1)["doing"]) == ("timeout", "recv from 1, 8 B")
    assert (told[1].pair(0)["status"], told[1].pair(0)["doing"]) == ("timeout", "send to 0, 8 B")
    assert told[0].error.startswith("recv from 1, 8 B was not done within ")
    assert not told[0].data["missing"]  # the rank itself is there


def test_hang_in_collectives_is_killed_with_its_name_and_named_by_the_others(stories: Stories) -> None:
    _, _, told = stories["hang_in_a_pair"]
    assert told[1].error.startswith("rank 1's torch process hung in collectives: wait for the other ranks: collectives, for ")
    assert told[0].data["missing"] == [[1, 1]]
    assert told[0].error == "rank 1 did not join the collectives"


def test_stopped_host_of_the_store_is_killed_and_named_by_the_others(stories: Stories) -> None:
    _, told = stories["stop_the_host"]
    assert told[0].error.startswith("rank 0's torch process hung in pairs: ")
    assert told[1].data["missing"] == [[0, 0]]
    assert "rank 0" in told[1].error
    assert "child" not in told[1].data  # it gave up by itself


def test_rank_that_does_not_come_to_the_store_is_named(stories: Stories) -> None:
    told, after = stories["stay_away"]
    for rank in (0, 2):
        assert told[rank].error == "rank 1 did not join torch's store at rank 0"
        assert told[rank].data["missing"] == [[1, 1]]
    assert after[0].error == "rank 0 has no process group: its backend did not start"


def test_store_that_is_silent_is_given_up_in_time_and_one_that_refuses_at_once(stories: Stories) -> None:
    silent, refusing = (told[1] for told in stories["find_no_store"])
    for told in (silent, refusing):
        assert told.error.startswith("rank 1 could not reach torch's store at ")
        assert "child" not in told.data  # by itself, not by its agent
    assert "Connection refused" in refusing.data["store"]["error"]
    assert refusing.data["store"]["connect_s"] < 1.0 < silent.data["store"]["connect_s"]


def test_rank_alone_is_healthy_and_once_its_child_is_gone_compute_takes_a_fresh_one() -> None:
    with Crew(1, sizes=(8, 4096)) as crew:
        assert [crew.run(phase, 100.0)[0].error for phase in (4, 5, 6)] == ["", "", ""]
        first = crew.child(0).process_group
        os.killpg(first, signal.SIGKILL)
        assert is_gone(first)
        told = crew.run(5, 10.0)[0]
        assert told.error.startswith("rank 0's torch process ")
        assert told.data["child"]["how"] == "ended by SIGKILL"
        assert crew.run(7, 100.0)[0].error == ""
        assert crew.child(0).process_group != first
    assert len(crew.groups) == 2 and all(is_gone(group) for group in crew.groups)
