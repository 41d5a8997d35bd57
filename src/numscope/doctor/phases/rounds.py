"""Who meets whom in phases 3 and 5, in rounds of disjoint pairs, and with whom a rank runs torch's phases.

Up to a number of parties all meet: a tournament (circle method) of N - 1 rounds. Above it the rounds grow with log2 N. Each party then
meets those whose numbers differ from its own in one bit, which connects all; those one and two numbers further, which usually share its
rack or host, so that a part that is cut off is seen to work inside; and three that lie anywhere. So each has several partners: a bad node
fails with all of them, a bad link with one, and where two groups can't reach each other many links between them fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

ALL_NODES = {True: 8, False: 32}  # by quick: so many nodes or fewer all meet
ALL_RANKS = {True: 16, False: 64}
MOST_TOGETHER = 512
_ANYWHERE = 3  # rounds whose partners lie anywhere
_GOLDEN = (sqrt(5) - 1) / 2  # its multiples are spread evenly


def partners(index: int, count: int, most: int) -> list[int | None]:
    """The partner of number ``index`` of ``count`` in each round; None if it pauses. Two meet once at most, ``most`` or fewer all meet."""
    if count <= most:
        return [_opponent(index, number, count) for number in range(count - 1 + count % 2 if count > 1 else 0)]
    # Differ in a bit, after a shift: ((1 + 1) ^ 1) - 1 = 2 is one further, and 3 one further than 2.
    flips = [(0, 1), (1, 1), (0, 2), (2, 2), *((0, 1 << bit) for bit in range(2, (count - 1).bit_length()))]
    found: list[int | None] = [((index + shift) ^ bit) - shift for shift, bit in flips]
    found += [(int(_GOLDEN * number * count) - index) % count for number in range(1, _ANYWHERE + 1)]
    return [
        other if other is not None and 0 <= other < count and other != index and other not in found[:at] else None
        for at, other in enumerate(found)
    ]


def group_of(rank: int, world_size: int) -> int:
    """The group in which a rank runs torch's phases: gloo connects each rank to all others of its group when it starts."""
    return rank * -(-world_size // MOST_TOGETHER) // world_size


def meetings(node_of: Mapping[int, int], most: int) -> dict[int, list[tuple[int, int]]]:
    """Whose port each rank examines in phase 3, as (round, rank), from the node of each.

    A node's lowest rank examines those of other nodes, each of the node's other ranks that one.
    """
    first: dict[int, int] = {}
    for rank in sorted(node_of):
        first.setdefault(node_of[rank], rank)
    plan = {rank: [(0, first[node])] for rank, node in node_of.items()}
    nodes = sorted(first)
    for index, node in enumerate(nodes):
        met = enumerate(partners(index, len(nodes), most))
        plan[first[node]] = [(number, first[nodes[other]]) for number, other in met if other is not None]
    return plan


def _opponent(index: int, number: int, count: int) -> int | None:
    circle = count - 1 + count % 2  # all but the one in the center, which is absent for an odd number
    center = circle if count % 2 == 0 else None
    if index == center:
        return number % circle
    other = (2 * number - index) % circle
    return center if other == index else other
