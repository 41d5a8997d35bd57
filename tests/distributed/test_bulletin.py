"""Notes between ranks: nobody waits, what is late is found later, and the store's end is not an error."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch.distributed as dist

from numscope.distributed import bulletin
from numscope.distributed.bulletin import KEPT, LOOKS, Bulletin
from tests.distributed.ranks import RankPool


def noted(rank: int) -> list[Any]:
    board = Bulletin("test", range(dist.get_world_size()))
    found: list[Any] = []
    if rank == 1:
        dist.barrier()  # the others look while this rank has noted nothing
        board.put(0, "b", b"\x00\xff one")
        dist.barrier()
    else:
        board.put(0, "a", b"zero")
        began = time.monotonic()
        found += [board.look(), time.monotonic() - began < 5, bool(board._pending)]
        dist.barrier()
        dist.barrier()
    found += [board.look(), board.notes(0), board.details(0)]
    dist.barrier()
    for step in range(1, 3 * KEPT):  # one rank is far ahead, and writes over its notes
        if rank == 1 or step < 3:
            board.put(step, f"{rank}")
    dist.barrier()
    found += [board.look(), board.details(1)]
    for _ in range(LOOKS):
        board.look()
    found.append(bool(board._pending))
    with board._gone_with_its_host():
        raise RuntimeError("the store's host has gone")
    board.put(99, "is not written")
    found.append((board.look(), bool(board._pending)))
    return found


def test_notes_are_found_when_all_have_written_them(ranks: RankPool) -> None:
    first, second = (t.value for t in ranks.run(noted))
    assert first[:3] == [[], True, True]
    assert first[3] == [(0, 2)]
    assert first[4:6] == [{0: "a", 1: "b"}, {0: b"zero", 1: b"\x00\xff one"}]
    assert second[0] == []  # only the lowest rank reads
    assert first[6] == [] or {kinds for _, kinds in first[6]} == {2}  # counted, if the one ahead has not taken the counters away
    assert first[7] == {0: b""}  # the other one's has been written over
    assert first[8] is False  # nobody looks for ever
    assert first[9] == second[-1] == ([], False)


def noted_twice(rank: int) -> list[Any]:
    """One rank comes to a step again, as where its GradScaler leaves one out, while the other one has not been there."""
    board = Bulletin("twice", range(dist.get_world_size()))
    if rank == 0:
        board.put(5, "a")
        board.put(5, "b")
        early = [board.look(), board.notes(5), board.details(5)]
    dist.barrier()
    board.put(5, "c" if rank else "d")
    dist.barrier()
    return [*early, board.look(), board.notes(5)] if rank == 0 else []


def test_a_step_that_a_rank_comes_to_twice_makes_nobody_wait(ranks: RankPool) -> None:
    first, _ = (t.value for t in ranks.run(noted_twice))
    assert first == [[], {}, {}, [(5, 2)], {0: "a", 1: "c"}]


def counted(rank: int) -> Any:
    """Notes by their first words, and what of them the store still holds."""
    board = Bulletin("counts", range(dist.get_world_size()))
    asked: list[str] = []
    found = []
    for step, notes in enumerate([("a 1", "a 2", "a 3", "a 4"), ("a", "b", "c", "d"), ("a", "b", "a", "b")]):
        board.put(step, notes[rank])
        dist.barrier()
        with pytest.MonkeyPatch.context() as patch:
            real = bulletin.store()
            patch.setattr(bulletin, "store", lambda real=real: Asked(real, asked))
            found += board.look()
        dist.barrier()
    held = real.num_keys()
    for step in range(3, 6 * KEPT):
        board.put(step, str(step * 4 + rank))
        dist.barrier()
    return found, sorted(set(asked)), real.num_keys() - held


class Asked:
    def __init__(self, store: Any, asked: list[str]) -> None:
        self._store, self._asked = store, asked

    def __getattr__(self, name: str) -> Any:
        self._asked.append(name)
        return getattr(self._store, name)


def test_reader_asks_for_counts_alone_and_the_store_holds_no_more_with_time(four_ranks: RankPool) -> None:
    (found, asked, grown), *others = (t.value for t in four_ranks.run(counted))
    assert found == [(0, 1), (1, 4), (2, 2)] and asked == ["add"]
    assert [one[:2] for one in others] == [([], [])] * 3
    assert grown < 4 * KEPT * 4 + 2 * KEPT + 8
