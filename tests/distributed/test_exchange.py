"""The exchange between ranks by itself: rows merge by their own law, keys come and go, ranks leave, fail, or never come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from numscope.distributed import agree, channel, reduce
from numscope.distributed.reduce import Item, Reduced, Reducer
from numscope.summary.dispatch import summarize
from numscope.summary.state import EMPTY_ROW, Groups, Summary, merge_rows
from tests.distributed.ranks import RankPool
from tests.distributed.wholes import MLP
from tests.summary.test_moments import assert_right

# ---- the exchange itself


def of_all_ranks() -> tuple[Reducer, Any]:
    model = nn.Linear(2, 2)
    reducer = Reducer(model, model, "test")
    reducer.places.set_group(dist.group.WORLD)
    return reducer, dist.group.WORLD


def by_hand(rank: int, cells: int) -> Any:
    """Rows with all kinds of cells."""
    generator = torch.Generator().manual_seed(rank)
    reducer, group = of_all_ranks()
    items = []
    for k in range(5):
        tensor = torch.randn(rank * k, generator=generator) * 10.0 ** (3 * k)
        if rank == 1 and k:
            tensor[0] = (math.inf, -math.inf, math.nan, 0.0)[k - 1]
        extra = torch.randn(cells, generator=generator).exp().tolist()
        is_max = [bool((j + k) % 2) for j in range(cells)]
        items.append(Item(f"site{k}", (group,), summarize(tensor, Groups.ALL).to_row(), extra, is_max))
    return items, reducer.reduce(items[: 5 - rank] + items[5 - rank :]), reducer.reduce(list(reversed(items)))


def plain_items(items: Sequence[Item]) -> list[tuple[Any, ...]]:
    return [(i.key, i.row, i.cells, i.is_max) for i in items]


def by_hand_plain(rank: int, cells: int) -> Any:
    items, first, second = by_hand(rank, cells)
    return plain_items(items), first, list(reversed(second))


@pytest.mark.parametrize("cells", [0, 5])
def test_ranks_merge_by_the_rows_own_law(four_ranks: RankPool, cells: int) -> None:
    told = four_ranks.run(by_hand_plain, cells)
    for k in range(5):
        parts = [t.value[0][k] for t in told]
        row = list(EMPTY_ROW)
        for part in parts:
            row = merge_rows(row, part[1])
        merged = [
            max(p[2][j] for p in parts) if parts[0][3][j] else sum(p[2][j] for p in parts) for j in range(cells)
        ]  # fmt: skip
        for t in told:
            for found in (t.value[1][k], t.value[2][k]):
                assert found.row[:10] == row[:10] and found.row[11] == pytest.approx(row[11]) and found.ranks == 4
                assert found.writes == (t is told[0])
                mine, theirs = Summary.from_row(found.row), Summary.from_row(row)  # about different centers
                for name in ("sum", "square_sum", "cube_sum", "fourth_sum"):
                    assert getattr(mine, name) == pytest.approx(getattr(theirs, name), rel=1e-12, nan_ok=True)
                assert found.row == told[0].value[1][k].row  # to the bit
                assert found.cells == pytest.approx(merged, rel=1e-13) and found.cells == told[0].value[1][k].cells


def far_from_zero(rank: int) -> list[float]:
    """Norms' weights: each rank has a center of its own; one has no elements."""
    reducer, group = of_all_ranks()
    return reducer.reduce([Item("norm", (group,), summarize(far_part(rank), Groups.ALL).to_row())])[0].row


def far_part(rank: int) -> torch.Tensor:
    x = torch.randn(500, generator=torch.Generator().manual_seed(rank), dtype=torch.float64)
    return x.exp() + 1e8 + rank if rank != 1 else x[:0]


def test_ranks_far_from_zero_merge_to_the_moments_of_the_whole(four_ranks: RankPool) -> None:
    told = [t.value for t in four_ranks.run(far_from_zero)]
    assert all(row == told[0] for row in told)
    assert_right(Summary.from_row(told[0]), torch.cat([far_part(rank) for rank in range(4)]).tolist())


def changing(rank: int, script: Sequence[Sequence[str]]) -> Any:
    reducer, group = of_all_ranks()
    found = []
    for names in script:
        keys = names[rank].split()
        # a key with a digit has that many cells
        items = [
            Item(
                key,
                (group,),
                summarize(torch.tensor([float(rank + 1)]), Groups.ALL).to_row(),
                [1.0] * (c := int(key[1:] or 0)),
                [False] * c,
            )
            for key in keys
        ]
        found.append([(r.key, r.row[0], Summary.from_row(r.row).sum, r.cells, r.ranks, r.writes) for r in reducer.reduce(items)])
    return found


SCRIPTS: list[list[tuple[str, str]]] = [
    [("a b", "a b"), ("a b", "a b c"), ("d a b", "c"), ("", "e"), ("e", ""), ("a", "a")],
    [("", ""), ("a", ""), ("", "b"), ("b a", "a b")],
    [("a3", "a3"), ("a3 b2", "b2 a3"), ("b2", "a3")],
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_keys_come_and_go_on_any_rank(ranks: RankPool, script: list[tuple[str, str]]) -> None:
    told = ranks.run(changing, script)
    for step, names in enumerate(script):
        for rank in range(2):
            expected = []
            for key in names[rank].split():
                those = [r for r in range(2) if key in names[r].split()]
                cells = [float(len(those))] * int(key[1:] or 0)
                expected.append((key, len(those), sum(r + 1.0 for r in those), cells, len(those), rank == those[0]))
            assert told[rank].value[step] == expected


def different_cells(rank: int) -> Any:
    reducer, group = of_all_ranks()
    item = Item("a", (group,), summarize(torch.ones(1), Groups.ALL).to_row(), [1.0] * rank, [False] * rank)
    return [reducer.reduce([item])[0] for _ in range(2)]


def test_sites_whose_cells_are_not_alike_stay_apart(ranks: RankPool) -> None:
    told = ranks.run(different_cells)
    assert [[(r.ranks, r.cells, r.writes) for r in t.value] for t in told] == [[(1, [], True)] * 2, [(1, [1.0], True)] * 2]


# ---- ranks that go, or never come


def leaving(rank: int, step_of_failure: int) -> Any:
    reducer, group = of_all_ranks()
    item = Item("a", (group,), summarize(torch.ones(rank + 1), Groups.ALL).to_row())
    found = []
    for step in range(4):
        if rank == 1 and step == step_of_failure:
            reducer.close()
            reducer.say_goodbye()
            break
        found.append(reducer.reduce([item])[0])
    return [(r.ranks, r.row[0], r.writes) for r in found]


@pytest.mark.parametrize("step", [0, 2])
def test_rank_that_leaves_says_goodbye_and_the_others_go_on_alone(ranks: RankPool, step: int) -> None:
    told = ranks.run(leaving, step)
    assert told[0].value == [(2, 3.0, True)] * step + [(1, 1.0, True)] * (4 - step)
    assert told[1].value == [(2, 3.0, False)] * step
    assert len(told[0].said) == 1 and "a rank watches no longer; from now on rank 0 reports its own statistics" in told[0].said[0]
    assert told[1].said == []


def alone(rank: int, how: str) -> Any:
    patience, agree.PATIENCE_S = agree.PATIENCE_S, 0.5
    try:
        model = MLP()
        wrapper = DDP(model)
        if how == "without" and rank == 1:
            return []
        reducer = Reducer(model, wrapper, f"config-{rank}" if how == "other" else "config")
        if how == "group":
            reducer.places.set_group(other := dist.new_group([0, 1]))
            assert other is not None
            if rank == 1:
                reducer.places.set_group(None)
        found = []
        for _ in range(3):
            item = Item("a", reducer.places.default("data"), summarize(torch.ones(rank + 1), Groups.ALL).to_row())
            weight = Item("w", reducer.places.default("parameter"), item.row)
            found.append([(r.ranks, r.row[0], r.writes) for r in reducer.reduce([item, weight])])
        return found
    finally:
        agree.PATIENCE_S = patience


@pytest.mark.parametrize("how", ["without", "other", "group"])
def test_rank_without_the_same_configuration_leaves_each_alone_and_it_is_said_once(ranks: RankPool, how: str) -> None:
    told = ranks.run(alone, how)
    assert told[0].value == [[(1, 1.0, True)] * 2] * 3
    assert len([line for line in told[0].said if "not all of ranks [0, 1] collect these statistics" in line]) == 1
    if how != "without":
        assert told[1].value == [[(1, 2.0, True)] * 2] * 3


def out_of_step(rank: int) -> Any:
    reducer, group = of_all_ranks()
    item = Item("a", (group,), summarize(torch.ones(1), Groups.ALL).to_row())
    return [reducer.reduce([item], step)[0].ranks for step in (0, 10 + 10 * rank, 30)]


def test_ranks_that_are_at_different_steps_part(ranks: RankPool) -> None:
    told = ranks.run(out_of_step)
    assert [t.value for t in told] == [[2, 1, 1]] * 2
    assert all("ranks are at different steps (10 and 20)" in t.said[0] for t in told)


def ends_without_its_store(rank: int) -> Any:
    reducer, group = of_all_ranks()
    reducer.places.known  # looked up as it is used
    original = agree.store

    def gone() -> Any:
        raise RuntimeError("the store's host is gone")

    reduce.store = channel.store = gone
    try:
        reducer.close()
    finally:
        reduce.store = channel.store = original
    item = Item("a", (group,), summarize(torch.ones(1), Groups.ALL).to_row())
    return reducer.reduce([item])[0].ranks


def test_a_watch_ends_though_the_store_is_gone(ranks: RankPool) -> None:
    assert [t.value for t in ranks.run(ends_without_its_store)] == [1, 1]


class Broken:
    def reduce(self, *_: Any) -> None:
        raise RuntimeError("planted")


def broken(rank: int) -> Any:
    reducer, group = of_all_ranks()
    item = Item("a", (group,), summarize(torch.ones(1), Groups.ALL).to_row())
    found = [reducer.reduce([item])[0].ranks]
    reducer._exchange(group).channel._families = [Broken()]
    return [*found, *(reducer.reduce([item])[0].ranks for _ in range(2))]


def test_exchange_that_fails_leaves_each_rank_with_its_own_rows(ranks: RankPool) -> None:
    told = ranks.run(broken)
    assert [t.value for t in told] == [[2, 1, 1]] * 2
    assert all(len(t.said) == 1 and "planted; from now on" in t.said[0] for t in told)


def test_process_by_itself_merges_nothing() -> None:
    model = nn.Linear(2, 2)
    reducer = Reducer(model, model, "test")
    row = summarize(torch.ones(3), Groups.ALL).to_row()
    tensor = torch.ones(2)
    local, groups = reducer.places.of(tensor, "data")
    assert local is tensor and groups == ()
    assert reducer.reduce([Item("a", groups, row, [2.0], [True])]) == [Reduced("a", row, [2.0], 1, True)]
