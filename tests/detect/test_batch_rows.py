"""Rows of a batch that make a call bad: found by halving, named, and without them the script goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import numscope
from numscope.detect.batch_rows import MOST_REPLAYS, bad_rows
from tests.faults.planting import quiet

pytestmark = pytest.mark.tried


@given(st.data(), st.integers(2, 200))
def test_rows_that_each_fail_alone_are_found_all_of_them_and_no_other(data: st.DataObject, total: int) -> None:
    most = min(3, max(1, total // 4))
    bad = data.draw(st.lists(st.integers(0, total - 1), min_size=1, max_size=most, unique=True))
    asked: list[Sequence[int]] = []

    def fails(rows: Sequence[int]) -> bool:
        asked.append(rows)
        return not set(bad).isdisjoint(rows)

    found = bad_rows(total, fails)
    assert len(asked) <= MOST_REPLAYS and (found == sorted(bad) or (not found and len(bad) > 1))


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_where_many_fail_no_rows_are_named(share: float) -> None:
    assert bad_rows(64, lambda rows: any(row < 64 * share for row in rows)) == []


def test_a_call_that_can_not_be_done_on_few_rows_names_none() -> None:
    assert bad_rows(64, lambda rows: None) == []


class Log(nn.Module):
    """The logarithm of what is 0 for a row of zeros. Of a row alone a BatchNorm has no variance."""

    def __init__(self, norm: bool) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4) if norm else nn.Identity()

    def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
        y = self.layer(x).abs().log()
        z: Tensor = self.norm(y if mask is None else y * mask)
        return z


def remedies(model: nn.Module, x: Any, **more: Tensor) -> list[str]:
    with quiet(), numscope.watch(model, on_nonfinite="note") as scope:
        model(x, **more).square().mean().backward()
        torch.optim.SGD(model.parameters(), 1e-3).step()
    found = scope.findings[0].culprit if scope.findings else None
    return [one.remedy for one in found.tried if one.worked] if found is not None else []


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(("rows", "text"), [([13], "row 13"), ([2, 30], "rows 2 and 30")])
def test_a_batch_without_them_is_finite(rows: list[int], text: str, norm: bool) -> None:
    torch.manual_seed(0)
    x, mask = torch.randn(32, 4), torch.ones(32, 4)
    x[rows] = 0
    assert f"a batch without {text} of 32" in remedies(Log(norm), x, mask=mask)
    model, rest = Log(norm), [row for row in range(32) if row not in rows]
    assert remedies(model, x[rest], mask=mask[rest]) == [] and not any(p.isnan().any() for p in model.parameters())


@dataclass
class Batch:
    x: Tensor
    more: dict[str, Tensor]


class OfBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.log = Log(False)

    def forward(self, batch: Batch) -> Tensor:
        y: Tensor = self.log(batch.x, mask=batch.more["mask"])
        return y


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.rnn(x / x.norm(dim=(0, 2), keepdim=True))[0]
        return y


def test_batches_in_dataclasses_and_behind_time_are_read() -> None:
    torch.manual_seed(0)
    x = torch.randn(256, 4)
    x[[3, 200]] = 0
    assert "a batch without rows 3 and 200 of 256" in remedies(OfBatch(), Batch(x, {"mask": torch.ones(256, 4)}))
    x = torch.randn(8, 16, 4)
    x[:, 9] = 0
    assert "a batch without row 9 of 16" in remedies(Recurrent(), x)


def test_bad_rows_of_the_data_are_named() -> None:
    torch.manual_seed(0)
    x = torch.randn(32, 4)
    x[7, 1] = torch.nan
    assert remedies(Log(False), x) == ["a batch without row 7 of 32"]


def test_of_a_sequence_model_a_row_is_a_sample() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(8, 4), nn.Linear(4, 8)

        def forward(self, tokens: Tensor) -> Tensor:
            h = self.embedding(tokens)
            h = h / (tokens.sum(-1, keepdim=True) > 0).unsqueeze(-1)
            z: Tensor = self.head(h).flatten(0, 1)  # rows times positions
            return z

    tokens = torch.randint(1, 8, (16, 5), generator=torch.Generator().manual_seed(0))
    tokens[9] = 0
    assert "a batch without row 9 of 16" in remedies(Model(), tokens)
