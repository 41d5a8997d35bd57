"""The tree over which ranks exchange numbers, by itself and over real sockets."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from numscope.distributed.channel import Channel, families_of
from tests.distributed.ranks import RankPool


@given(st.integers(1, 3000))
def test_families_are_a_tree_of_few_sockets_and_few_levels(num: int) -> None:
    members: dict[tuple[int, ...], list[int]] = {}
    above = {}
    for place in range(num):
        families = families_of(place, num)
        assert sum(len(family) - 1 for family in families) <= 4
        for family in families:
            members.setdefault(family, []).append(place)
            if family[0] != place:
                above[place] = family[0]
    assert all(list(family) == places for family, places in members.items())  # all of a family know it
    assert sorted(above) == [*range(1, num)]  # each has one place above it, but for the first
    depth = [0] * num
    for place in range(1, num):
        assert above[place] < place
        depth[place] = depth[above[place]] + 1
    assert max(depth) <= num.bit_length()


def test_most_of_a_place_s_family_is_on_its_own_host() -> None:
    far = sum(family[0] // 8 != place // 8 for place in range(4096) for family in families_of(place, 4096) if family[0] != place)
    assert far < 3 * 4096 / 8  # of 4,095 messages


def exchanged(rank: int) -> Any:
    channel = Channel("test", dist.group.WORLD, 30.0)
    sums = channel.total(torch.tensor([0.1 * 3**rank, 1.0]))
    largest = channel.largest(torch.tensor([float(rank), -float(rank), float("-inf")]))
    said = channel.gather("said", 3, {"rank": rank} if rank % 2 else None)
    nobody = channel.gather("nobody", 3, None)
    moved = channel.total(torch.tensor([1.0, 0.1 * 3**rank]))[1].item()
    channel.close()
    return sums.tolist(), largest.tolist(), said, nobody, moved


def test_all_ranks_get_the_same_bits_wherever_a_number_is(four_ranks: RankPool) -> None:
    told = [t.value for t in four_ranks.run(exchanged)]
    assert all(value == told[0] for value in told)
    sums, largest, said, nobody, moved = told[0]
    assert sums[1] == 4.0 and sums[0] == pytest.approx(4.0) and moved == sums[0]
    assert largest == [3.0, 0.0, float("-inf")]
    assert said == [{"rank": 1}, {"rank": 3}] and nobody == []
