"""What several ranks' rows must be: those of the whole tensors, joined on one process."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from numscope.distributed.reduce import Reduced
from numscope.records.observation import FIELDS
from numscope.summary.dispatch import summarize
from numscope.summary.state import Groups, Summary
from tests.distributed.ranks import Told
from tests.summary.oracle import SUMS


class MLP(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(4, width), nn.LayerNorm(width), nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.norm(self.up(x)).relu())


def batches(seed: int, count: int = 2, rows: int = 3) -> list[Tensor]:
    generator = torch.Generator().manual_seed(100 + seed)
    return [torch.randn(rows, 4, generator=generator) for _ in range(count)]


def row_of(parts: Sequence[Tensor]) -> list[float]:
    """Of all the parts together, as float64."""
    return summarize(torch.cat([p.reshape(-1) for p in parts]), Groups.ALL).to_row()


def check(found: Reduced, parts: Sequence[Tensor], ranks: int) -> None:
    """Counts and extrema are those of the joined tensors, exactly; sums to rounding."""
    expected = row_of(parts)
    assert found.ranks == ranks, found.key
    for name in (*FIELDS[:10], *SUMS):
        got, wanted = getattr(Summary.from_row(found.row), name), getattr(Summary.from_row(expected), name)
        if name in SUMS:
            assert math.isclose(got, wanted, rel_tol=1e-12, abs_tol=1e-12 * abs(expected[11])), (found.key, name, got, wanted)
        else:
            assert got == wanted, (found.key, name, got, wanted)


def writers(told: Sequence[Told], key: str) -> list[int]:
    return [rank for rank, t in enumerate(told) if key in t.value[0] and t.value[0][key].writes]


def same_bits(told: Sequence[Told], key: str, among: Sequence[int]) -> None:
    assert len({tuple(told[rank].value[0][key].row) for rank in among}) == 1


def check_data(told: Sequence[Told], groups: Sequence[Sequence[int]], keys: Sequence[str]) -> None:
    """Plain data of each group's ranks, joined."""
    for group in groups:
        for key in keys:
            parts = [part for rank in group for part in told[rank].value[1][key]]
            for rank in group:
                check(told[rank].value[0][key], parts, len(group))
            same_bits(told, key, group)
            assert [w for w in writers(told, key) if w in group] == [group[0]]


def check_whole(told: Sequence[Told], key: str, ranks: int, groups: Sequence[Sequence[int]]) -> None:
    """A distributed tensor: each rank of a group knows the whole of it."""
    for group in groups:
        for rank in group:
            check(told[rank].value[0][key], told[group[0]].value[1][key], ranks)
        same_bits(told, key, group)
        assert [w for w in writers(told, key) if w in group] == [group[0]]
