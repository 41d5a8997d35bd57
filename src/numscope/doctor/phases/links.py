"""Phase 3: every link between two nodes, each direction separately, with plain sockets.

On each node one rank, the lowest that is alive, examines the node's outgoing links; the others check that they reach that rank. Nodes meet
in the rounds of a tournament, in which each pair meets once (circle method): N - 1 rounds, or log2 N with ``quick`` and more than 8 nodes
(then nodes meet whose numbers differ in one bit). Rounds only spread the work: no node waits for another, so a dead node costs each other
node one timeout. A lock per node, taken in the order of the nodes, keeps two transfers from loading a node at the same time.
"""

from __future__ import annotations

import time
from typing import Any

from numscope.doctor.meet.listener import Listener
from numscope.doctor.phases.context import Context, PhaseFailed
from numscope.doctor.phases.link import Examiner
from numscope.doctor.records import Cell, to_json
from numscope.records.words import few

QUICK_NODES = 8  # with so many or fewer, all pairs meet even with ``quick``: a link that was not examined can't be named


def run(context: Context) -> dict[str, Any]:
    """Examines the outgoing links of this rank's node. Raises: PhaseFailed if one does not work."""
    listener = context.kept.get("listener")
    if not isinstance(listener, Listener):
        raise PhaseFailed("this rank has no listener, so nobody can examine its links", {"cells": []})
    listener.rank = context.identity.rank
    chosen = representatives(context)
    nodes, mine = sorted(chosen), context.identity.node
    plan = partners(nodes.index(mine), len(nodes), context.settings.quick)
    examiner = Examiner(context, listener)
    data: dict[str, Any] = {
        "node": mine,
        "nodes": len(nodes),
        "representative": chosen[mine],
        "rounds": len(plan),
        "cells": [],
        "loopback": None,
    }
    if context.identity.rank != chosen[mine]:
        cells = [examiner.cell(mine, chosen[mine], 0, only_reach=True)]
        data["loopback"] = to_json(cells[0])
    else:
        meetings = [(number, nodes[partner]) for number, partner in enumerate(plan) if partner is not None]
        cells = [examiner.cell(node, chosen[node], number) for number, node in meetings]
        data["cells"] = list(map(to_json, cells))
        _wait_for_datagrams(context, listener, cells)
    data["heard"] = {str(rank): count for rank, count in sorted(listener.heard.items())}
    broken = [cell for cell in cells if not cell.works]
    if broken:
        raise PhaseFailed(few([f"{c.from_host} to {c.to_host} ({c.address}:{c.port}): {c.error}" for c in broken], 1), data)
    return data


def representatives(context: Context) -> dict[int, int]:
    """By node, the rank that examines its links: the lowest that is alive."""
    chosen: dict[int, int] = {}
    for rank in sorted(set(context.alive or context.roster) & set(context.roster) | {context.identity.rank}):
        node = context.identity.node if rank == context.identity.rank else int(context.roster[rank]["identity"]["node"])
        chosen.setdefault(node, rank)
    return chosen


def partners(index: int, count: int, quick: bool) -> list[int | None]:
    """Whom a node, by its index, meets in each round; None if it pauses. Two nodes that meet do so in the same round.

    If ``quick``, only those of many nodes meet whose numbers differ in one bit; so all are connected through others.
    """
    if quick and count > QUICK_NODES:
        bits = (count - 1).bit_length()
        return [index ^ (1 << bit) if index ^ (1 << bit) < count else None for bit in range(bits)]
    return [opponent(index, number, count) for number in range(num_rounds(count))]


def num_rounds(num: int) -> int:
    """Rounds until all of ``num`` have met each other."""
    return num - 1 + num % 2 if num > 1 else 0


def opponent(index: int, round_: int, num: int) -> int | None:
    """Whom number ``index`` of ``num`` meets in a round; None if it pauses, as one does in each round of an odd number."""
    circle = num - 1 + num % 2  # all but the one in the center, which is absent for an odd number
    center = circle if num % 2 == 0 else None
    if index == center:
        return round_ % circle
    other = (2 * round_ - index) % circle
    return center if other == index else other


def rounds_to_play(num: int, quick: bool) -> list[int]:
    """All rounds; with ``quick`` and more than 16, only 0, 1, 2, 4, 8, …"""
    rounds = num_rounds(num)
    if quick and num > 16:
        return [0, *(1 << power for power in range(rounds.bit_length()) if 1 << power < rounds)]
    return list(range(rounds))


def _wait_for_datagrams(context: Context, listener: Listener, cells: list[Cell]) -> None:
    """Waits a moment for datagrams of nodes that could not be reached, which may be slightly behind us."""
    awaited = {cell.to_rank for cell in cells if cell.status in ("dropped", "unreachable")}
    ends = context.deadline.within(0.5 * context.settings.timeout_scale)
    while awaited - set(listener.heard) and not ends.over:
        time.sleep(0.02)
