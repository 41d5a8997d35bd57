"""Notes between ranks: nobody waits, what is late is found later, and the store's end is not an error."""

from __future__ import annotations

import time
from typing import Any

import torch.distributed as dist

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
    found += [board.look(), board.details(0)]
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
    assert first[3] == [(0, {0: "a", 1: "b"})]
    assert first[4] == {0: b"zero", 1: b"\x00\xff one"}
    assert second[0] == []  # only the lowest rank reads
    assert first[5] == [] and first[6] == {0: b""}  # the other one's has been written over
    assert first[7] is False  # nobody looks for ever
    assert first[8] == second[-1] == ([], False)
