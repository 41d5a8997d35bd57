"""Who meets whom: few rounds, all connected, and no single fault that could be another one."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numscope.doctor.diagnose.matrix import Cell, attribute
from numscope.doctor.phases.rounds import ALL_NODES, MOST_TOGETHER, group_of, meetings, partners
from tests.effort import examples

MANY = st.integers(ALL_NODES[False] + 1, 300) | st.sampled_from([511, 512, 513, 2000])


def rounds(count: int, most: int) -> list[set[tuple[int, int]]]:
    """The pairs of each round, both ways round, which are disjoint."""
    plans = [partners(index, count, most) for index in range(count)]
    assert len(set(map(len, plans))) == 1
    found = [{(index, other) for index, plan in enumerate(plans) if (other := plan[at]) is not None} for at in range(len(plans[0]))]
    for pairs in found:
        assert all((other, index) in pairs and index != other for index, other in pairs)  # so nobody plays twice in a round
    assert sum(map(len, found)) == len(set().union(*found))  # none meets another twice
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9, 17, 31, 32])
def test_few_all_meet_each_other(count: int) -> None:
    found = rounds(count, 32)
    assert sum(map(len, found)) == count * (count - 1)
    assert len(found) == (0 if count == 1 else count - 1 + count % 2)


@given(MANY)
def test_many_meet_in_rounds_that_grow_with_their_logarithm(count: int) -> None:
    found = rounds(count, ALL_NODES[False])
    assert len(found) <= 2.2 * math.log2(count)
    met = set().union(*found)
    assert min(sum(index == one for one, _ in met) for index in (0, 1, count // 2, count - 2, count - 1)) >= 4
    together, new = {0}, [0]
    of: dict[int, list[int]] = {}
    for index, other in met:
        of.setdefault(index, []).append(other)
    while new:
        new = [other for index in new for other in of[index] if other not in together]
        together |= set(new)
    assert together == set(range(count))


@given(MANY, st.data())
@settings(max_examples=examples(30), deadline=None)
def test_single_dead_node_and_single_broken_link_are_named(count: int, data: st.DataObject) -> None:
    cells: dict[Cell, bool] = dict.fromkeys(set().union(*rounds(count, ALL_NODES[False])), True)
    node = data.draw(st.integers(0, count - 1))
    (cause,) = attribute({cell: node not in cell for cell in cells}).causes
    assert (cause.kind, cause.nodes, cause.confidence) == ("node", (node,), "certain")
    link = data.draw(st.sampled_from(sorted(cells)))
    (cause,) = attribute({cell: set(cell) != set(link) for cell in cells}).causes
    assert (cause.kind, cause.nodes, cause.confidence) == ("link", tuple(sorted(link)), "certain")
    (cause,) = attribute({cell: cell != link for cell in cells}).causes
    assert (cause.kind, cause.nodes, cause.confidence) == ("direction", link, "certain")


@given(st.integers(1, 40_000))
def test_groups_are_stretches_of_like_size(num_ranks: int) -> None:
    groups = [group_of(rank, num_ranks) for rank in range(num_ranks)]
    assert groups == sorted(groups)
    sizes = Counter(groups)
    assert set(sizes) == set(range(-(-num_ranks // MOST_TOGETHER)))
    assert max(sizes.values()) <= MOST_TOGETHER and max(sizes.values()) - min(sizes.values()) <= 1


def test_smallest_living_rank_of_a_node_examines_and_the_others_reach_it() -> None:
    node_of = {1: 0, 2: 1, 3: 1, 5: 2}
    found = meetings(node_of, 8)
    assert {rank: {other for _, other in met} for rank, met in found.items()} == {1: {2, 5}, 2: {1, 5}, 3: {2}, 5: {1, 2}}
