"""Gradient accumulation: the micro-batch at fault is named."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import Tensor, nn

import numscope

HERE = __file__
MICRO_BATCHES = 4


def line_of(mark: str) -> int:
    with open(HERE, encoding="utf-8") as file:
        return next(n for n, text in enumerate(file, 1) if text.rstrip().endswith(f"# {mark}"))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 2)

    def forward(self, x: Tensor, fault: bool = False) -> Tensor:
        h = self.drop(self.first(x))
        if fault:
            h = h / (h * 0)  # in the micro-batch
        return self.last(h)


def batches(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(3, 4, generator=generator) for _ in range(count)]


@pytest.mark.parametrize("where", ["model", "data", "loss"])
@pytest.mark.parametrize("micro", range(MICRO_BATCHES))
def test_fault_in_one_micro_batch_names_that_batch_and_line(micro: int, where: str) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    numscope.watch(net)
    with pytest.raises(numscope.NonFiniteError) as caught:
        for step in range(3):
            optimizer.zero_grad()
            for k, x in enumerate(batches(MICRO_BATCHES)):
                bad = (step, k) == (1, micro)
                loss = net(x * float("nan") if bad and where == "data" else x, bad and where == "model").square().mean()
                if bad and where == "loss":
                    loss = loss + torch.log(-loss)  # in the loss
                (loss / MICRO_BATCHES).backward()
            optimizer.step()
    finding = caught.value.finding
    assert (finding.step, finding.batch) == (1, MICRO_BATCHES + micro)
    culprit = finding.culprit
    assert culprit is not None and culprit.file == HERE
    if where == "data":
        assert culprit.reason.value == "bad input data"
    else:
        assert culprit.line == line_of({"model": "in the micro-batch", "loss": "in the loss"}[where])


def test_on_or_off_accumulated_training_is_bitwise_the_same() -> None:
    results = []
    for watched in (True, False):
        torch.manual_seed(0)
        net = Net()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        losses = []
        with numscope.watch(net) if watched else contextlib.nullcontext():
            for _ in range(3):
                optimizer.zero_grad()
                for x in batches(MICRO_BATCHES):
                    loss = net(x).square().mean() / MICRO_BATCHES
                    loss.backward()
                    losses.append(loss.item())
                optimizer.step()
        results.append((losses, [p.detach().clone() for p in net.parameters()]))
    assert results[0][0] == results[1][0]
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], results[1][1], strict=True))


def test_micro_batches_of_one_step_count_as_one_step() -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with numscope.watch(net) as scope:
        for _ in range(3):
            for x in batches(MICRO_BATCHES):
                net(x).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert (scope.step_number, scope.batch) == (3, 3 * MICRO_BATCHES)
    assert scope.step_number == 3


def test_float16_sum_that_overflows_although_each_micro_batch_is_finite_says_so() -> None:
    net = nn.Linear(4, 1, bias=False).half()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    numscope.watch(net)
    with pytest.raises(numscope.NonFiniteError) as caught:
        for _ in range(MICRO_BATCHES):
            net(torch.full((1, 4), 30000.0, dtype=torch.float16)).backward()
        optimizer.step()
    finding = caught.value.finding
    assert finding.site.slot == "grad weight" and finding.kind.value == "inf"
    assert finding.culprit is None
    assert "accumulat" in finding.replay


def test_bad_gradient_left_from_an_earlier_micro_batch_is_no_later_ones_fault() -> None:
    """The fault is in the first of four; the other three find the sum bad already."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with numscope.watch(net, on_nonfinite="warn") as scope:
        for k, x in enumerate(batches(MICRO_BATCHES)):
            net(x, k == 0).square().mean().backward()
        optimizer.step()
    assert [f.batch for f in scope.findings] == [0]


def test_data_parallel_on_cpu_is_watched_as_the_module_within() -> None:
    net = Net()
    model = nn.DataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    numscope.watch(model)
    with pytest.raises(numscope.NonFiniteError) as caught:
        for step, x in enumerate(batches(3)):
            optimizer.zero_grad()
            model(x, step == 1).mean().backward()
            optimizer.step()
    finding = caught.value.finding
    assert (finding.step, finding.model, finding.site.module) == (1, "Net", "last")
    assert finding.culprit is not None and finding.culprit.line == line_of("in the micro-batch")
