"""How many labels of a loss count, and how much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim import SGD
from torch.utils.checkpoint import checkpoint

from numscope import watch
from numscope.records.alert import Alert
from tests.alerts.checks.silent import alerts_of, one
from tests.distributed.ranks import RankPool

Loss = Callable[[Tensor, Tensor], Tensor]


class Words(nn.Module):
    """A model of sequences that is given a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(10, 8), nn.Linear(8, 10)

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.last(self.words(ids)).flatten(0, 1)


def trained(loss_of: Loss, lengths: tuple[int, ...], mask: bool = False, ignored: int = -100, shift: int = 1) -> list[Alert]:
    """Steps of one micro-batch for each of some lengths."""
    model = Words()
    optimizer = SGD(model.parameters(), lr=1e-3)

    def training() -> None:
        generator = torch.Generator().manual_seed(0)
        for _ in range(4):
            optimizer.zero_grad()
            for length in lengths:
                ids = torch.randint(10, (4, 6), generator=generator)
                there = (torch.arange(6) < length).expand(4, 6)
                loss_of(model(ids, there.long() if mask else None), ((ids + shift) % 10).where(there, ignored).flatten()).backward()
            optimizer.step()

    return alerts_of(model, training)


def by_hand(out: Tensor, y: Tensor) -> Tensor:
    there = (y >= 0).float()
    return (F.cross_entropy(out, y.clamp(min=0), reduction="none") * there).sum() / there.sum().clamp(min=1)


def test_labels_that_are_the_inputs_are_asked_about() -> None:
    alert = one(trained(F.cross_entropy, (6,), shift=0), "labels are the inputs")
    assert "backward at test_labels.py" in alert.text and alert.asks
    assert not [alert for alert in trained(F.cross_entropy, (6,), shift=1) if alert.rule == "labels are the inputs"]


@pytest.mark.parametrize("loss_of", [F.cross_entropy, lambda out, y: 8 * F.cross_entropy(out, y) / 2, by_hand])
def test_means_over_unequal_numbers_of_labels_that_count_the_same_are_asked_about(loss_of: Loss) -> None:
    alert = one(trained(loss_of, (2, 6)), "unequal micro-batches")
    assert "8 to 24 labels" in alert.text and "backward at test_labels.py" in alert.text and alert.asks


@pytest.mark.parametrize(
    ("loss_of", "lengths"),
    [
        (F.cross_entropy, (6, 6)),
        (F.cross_entropy, (2,)),
        (lambda out, y: F.cross_entropy(out, y, reduction="sum") / 32, (2, 6)),
        (lambda out, y: F.cross_entropy(out, y) * (y >= 0).sum() / 32, (2, 6)),
        (lambda out, y: F.cross_entropy(out, y) + 0.1 * out.square().mean(), (2, 6)),  # of another kind: not looked into
    ],
)
def test_labels_that_count_the_same_are_left_alone(loss_of: Loss, lengths: tuple[int, ...]) -> None:
    assert trained(loss_of, lengths) == []


@pytest.mark.parametrize("loss_of", [by_hand, lambda out, y: F.cross_entropy(out, y, reduction="sum") / max(1, int((y >= 0).sum()))])
def test_batch_of_which_no_label_counts_is_asked_about(loss_of: Loss) -> None:
    alert = one(trained(loss_of, (0,)), "no label counts")
    assert "None of the 24 labels" in alert.text and alert.asks


@pytest.mark.parametrize(("ignored", "rules"), [(0, ["padding in the loss"]), (-100, [])])
def test_padding_that_counts_is_asked_about(ignored: int, rules: list[str]) -> None:
    def shifted(out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(out, F.pad(y.view(4, 6)[:, 1:], (0, 1), value=-100).flatten())

    for loss_of in (F.cross_entropy, shifted):
        assert [alert.rule for alert in trained(loss_of, (3,), mask=True, ignored=ignored)] == rules
    assert trained(F.cross_entropy, (6,), mask=True, ignored=ignored) == []  # nothing is hidden


def test_labels_of_a_loss_in_a_checkpoint_are_not_read_as_that_would_do_its_forward_again() -> None:
    num = 0

    def loss_of(out: Tensor, y: Tensor) -> Tensor:
        nonlocal num
        num += 1
        return F.cross_entropy(out, y)

    def in_checkpoint(out: Tensor, y: Tensor) -> Tensor:
        return checkpoint(loss_of, out, y, use_reentrant=False)

    assert trained(in_checkpoint, (3, 6)) == []
    assert num == 2 * 8  # a forward and a backward for each


def test_soft_labels_are_no_error_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Linear(4, 3)
    optimizer = SGD(model.parameters(), lr=1e-3)

    def training() -> None:
        for _ in range(3):
            optimizer.zero_grad()
            for length in (2, 5):
                F.cross_entropy(model(torch.randn(length, 4)), torch.rand(length, 3)).div(2).backward()
            optimizer.step()

    assert alerts_of(model, training) == []
    assert "after an error of its own" not in caplog.text


def train_on_ranks(rank: int, how: str, rule: str = "unequal micro-batches") -> list[tuple[bool, str]]:
    torch.manual_seed(0)
    model: Any = nn.Linear(4, 3)
    model = model if how == "alone" else DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watch(model) as scope:
        for _ in range(6):
            labels = torch.zeros(12, dtype=torch.long)
            labels[4 + 4 * rank if how != "as many" else 6 :] = -100
            total = F.cross_entropy(model(torch.randn(12, 4)), labels, reduction="sum")
            number = (labels >= 0).sum().float()
            if how == "over all":
                dist.all_reduce(number)
                number /= dist.get_world_size()
            loss = F.cross_entropy(model(torch.randn(12, 4)), labels) if how == "mean" else total / number
            if how in ("times", "over"):
                labels[labels < 0] = 0
                loss = F.cross_entropy(model(torch.randn(12, 4)), labels)
                loss = loss * 2 if how == "times" else (loss.unsqueeze(0) / dist.get_world_size()).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dist.barrier()
    return [(a.asks, a.text) for a in scope.alerts if a.rule == rule]


@pytest.mark.parametrize("how", ["mean", "own number"])
def test_means_over_other_numbers_of_labels_on_ranks_are_asked_about(ranks: RankPool, how: str) -> None:
    """vllm-project/speculators #942, huggingface/transformers #34242."""
    first, *others = [told.value for told in ranks.run(train_on_ranks, how)]
    assert not any(others)
    ((asks, text),) = first
    assert asks and text.startswith("4 to 8 labels count on 2 ranks, and their means count the same")


@pytest.mark.parametrize("how", ["over all", "as many", "alone"])
def test_healthy_numbers_of_labels_on_ranks_are_silent(ranks: RankPool, how: str) -> None:
    assert [told.value for told in ranks.run(train_on_ranks, how)] == [[], []]


@pytest.mark.parametrize(("how", "done"), [("times", "multiplied"), ("over", "divided")])
def test_a_mean_that_is_scaled_by_the_number_of_ranks_is_asked_about(ranks: RankPool, how: str, done: str) -> None:
    """neuralmagic/sparseml #135, sanderwood/bgpt #5."""
    first, *others = [told.value for told in ranks.run(train_on_ranks, how, "loss scaled by ranks")]
    assert not any(others)
    ((asks, text),) = first
    assert asks and text.startswith(f"A mean over labels is {done} by the number of ranks (2), and DDP averages gradients")


@pytest.mark.parametrize("how", ["mean", "own number", "over all", "alone"])
def test_means_that_are_not_scaled_are_left_alone(ranks: RankPool, how: str) -> None:
    assert [told.value for told in ranks.run(train_on_ranks, how, "loss scaled by ranks")] == [[], []]
