"""With ``on_nonfinite="skip"`` a run does to the bit what one does whose script drops the bad batches; what that can't help ends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp import GradScaler

import numscope
from numscope.detect.skips import MOST_IN_A_ROW
from tests.distributed.ranks import RankPool
from tests.distributed.test_sharded import Net, batches, digest, shard

BAD = (2, 3, 6)


def batch(step: int) -> Tensor:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(step))


class Trains:
    """A small network with running statistics, trained with or without numscope.

    Args:
        skip: the script's own way: it goes on with the next batch, with buffers as they were.
    """

    def __init__(self, optimizers: Callable[[nn.Module], list[torch.optim.Optimizer]], num_micro: int = 1) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
        self.optimizers = optimizers(self.model)
        self.num_micro = num_micro

    def run(self, drops: bool, num_steps: int = 9) -> None:
        for step in range(num_steps):
            buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
            for part in range(self.num_micro):
                loss = self.model(batch(10 * step + part)).square().mean()
                if step in BAD and part == 0:
                    loss = loss * torch.tensor(float("inf"))
                loss.backward()
            if drops and step in BAD:
                for name, buffer in self.model.named_buffers():
                    buffer.copy_(buffers[name])
            else:
                for optimizer in self.optimizers:
                    optimizer.step()
            for optimizer in self.optimizers:
                optimizer.zero_grad()

    @property
    def state(self) -> list[Any]:
        counted = [getattr(optimizer, "t", 0) for optimizer in self.optimizers]
        return [self.model.state_dict(), *(optimizer.state_dict() for optimizer in self.optimizers), counted]


def assert_same(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=False)


class Plain(torch.optim.Optimizer):
    """One of a script's own, which expects a gradient of each parameter."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})
        self.t = 0

    def step(self, closure: Any = None) -> None:
        self.t += 1
        for group in self.param_groups:
            group["k"] = group.get("k", 0) + 1
            for p in group["params"]:
                state = self.state[p]
                state["count"] = state.get("count", 0) + 1
                state["mean"] = state.get("mean", torch.zeros_like(p)).lerp(p.grad, 0.1)
                p.data.add_(state["mean"] + 0.01 * p.data, alpha=-1e-2)


OPTIMIZERS: dict[str, Callable[[nn.Module], list[torch.optim.Optimizer]]] = {
    "adamw": lambda model: [torch.optim.AdamW(model.parameters(), 1e-2)],
    "adamw, for each": lambda model: [torch.optim.AdamW(model.parameters(), 1e-2, foreach=False)],
    "momentum": lambda model: [torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9, weight_decay=0.1)],
    "own": lambda model: [Plain(model.parameters())],
    "two": lambda model: [torch.optim.Adam(model[0].parameters()), torch.optim.RMSprop([*model[1].parameters(), *model[3].parameters()])],
}


@pytest.mark.parametrize("level", ["modules", "sentinel"])
@pytest.mark.parametrize("num_micro", [1, 2])
@pytest.mark.parametrize("optimizers", OPTIMIZERS)
def test_a_run_goes_on_as_one_that_drops_the_batches(optimizers: str, num_micro: int, level: Any) -> None:
    own, watched = (Trains(OPTIMIZERS[optimizers], num_micro) for _ in range(2))
    own.run(drops=True)
    with numscope.watch(watched.model, on_nonfinite="skip", level=level) as scope:
        watched.run(drops=False)
    assert_same(watched.state, own.state)
    assert scope.findings == []
    assert scope.events == [(step, "numscope left the step out: a gradient was not finite") for step in BAD]
    assert "numscope left this step out" in scope.contained[0].note and scope.contained[0].step == BAD[0]


def test_one_bad_gradient_leaves_out_the_steps_of_all_optimizers_of_the_model() -> None:
    torch.manual_seed(0)
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    both = [torch.optim.Adam(part.parameters()) for part in model]
    before = [part.weight.detach().clone() for part in model]
    for order in ((0, 1), (1, 0)):
        with numscope.watch(model, on_nonfinite="skip") as scope:
            (model[0](torch.rand(3, 2)).sum() + (model[1](torch.rand(3, 2)) * torch.tensor(float("nan"))).sum()).backward()
            assert model[0].weight.grad.isfinite().all()
            for number in order:
                both[number].step()
        assert [torch.equal(part.weight, weight) for part, weight in zip(model, before, strict=True)] == [True, True]
        assert len(scope.events) == 1 and scope.findings == []


def test_the_step_after_ten_in_a_row_is_a_finding() -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(numscope.NonFiniteError) as raised, numscope.watch(model, on_nonfinite="skip"):
        for _ in range(MOST_IN_A_ROW + 5):
            model(torch.full((3, 2), float("inf"))).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert raised.value.finding.step == MOST_IN_A_ROW
    assert model.weight.isfinite().all()


def test_what_skipping_cannot_help_ends_the_run() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 3e38)  # the gradient is finite, the weight is not any more
    with pytest.raises(numscope.NonFiniteError), numscope.watch(model, on_nonfinite="skip"):
        (model(torch.full((3, 2), 1e9)).sum()).backward()
        optimizer.step()


def test_without_gradients_it_is_refused() -> None:
    with pytest.raises(numscope.UsageError, match=r"^on_nonfinite: got 'skip' with gradients off, expected gradients to look at\. "):
        numscope.watch(nn.Linear(2, 1), on_nonfinite="skip", gradients=False)


def test_buffers_are_put_back_where_the_scaler_skips() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), GradScaler("cpu", init_scale=2.0)
    with numscope.watch(model, on_nonfinite="skip") as scope:
        for step in range(4):
            before = {name: value.clone() for name, value in model.state_dict().items()}
            x = batch(step) * (float("inf") if step == 2 else 1.0)
            scaler.scale(model(x).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            if step == 2:
                assert_same(dict(model.state_dict()), before)
    assert [step for step, _ in scope.events] == [2] and scope.findings == []
    assert int(model[1].num_batches_tracked) == 3


def sharded(rank: int, skips: bool) -> Any:
    torch.manual_seed(7)
    model = shard(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with numscope.watch(model, on_nonfinite="skip" if skips else None) as scope:
        for step, x in enumerate(batches(rank)):
            model(x).square().mean().backward()
            if step == 1:
                if not skips:
                    optimizer.zero_grad()
                    continue
                if rank == 1:  # in its shard alone
                    next(p for p in model.parameters() if p.grad is not None).grad.to_local().view(-1)[0] = float("nan")
            optimizer.step()
            optimizer.zero_grad()
    return digest(model), [step for step, _ in scope.events], len(scope.findings)


def test_ranks_of_a_sharded_model_leave_out_the_same_steps(ranks: RankPool) -> None:
    skips, drops = (ranks.run(sharded, skips) for skips in (True, False))
    assert [one.value[1:] for one in skips] == [([1], 0)] * 2
    assert [one.value[0] for one in skips] == [one.value[0] for one in drops]


def averaged(rank: int) -> Any:
    torch.manual_seed(7)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with numscope.watch(model, on_nonfinite="skip") as scope:
        for step in range(5):
            before = {name: value.clone() for name, value in model.state_dict().items()}
            x = batch(step + 100 * rank) * (float("inf") if (step, rank) == (2, 1) else 1.0)
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 2 and rank == 0:  # whose buffers the others get as their call begins
                assert_same(dict(model.state_dict()), before)
    return model.module[0].weight.detach().clone(), [step for step, _ in scope.events], len(scope.findings)


def test_ranks_that_average_leave_out_the_same_steps(ranks: RankPool) -> None:
    (one, *told), (other, *theirs) = (answer.value for answer in ranks.run(averaged))
    assert torch.equal(one, other) and one.isfinite().all()
    assert told == theirs == [[2], 0]


class Labelled(nn.Module):
    """Its loss is 0/0 where no label counts; gradients are 0 then."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.layer(x), y)


def labelled(rank: int, bad_rank: int, watched: str = "skip", num_micro: int = 2) -> Any:
    torch.manual_seed(7)
    net = Labelled()
    model = nn.parallel.DistributedDataParallel(net) if torch.distributed.is_initialized() else net
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with numscope.watch(model, on_nonfinite=watched or None, alerts="off" if not watched else None) as scope:
        for step in range(4):
            for part in range(num_micro):
                y = torch.full((8,), -100) if (step, part, rank) == (2, 0, bad_rank) else torch.arange(8) % 3
                model(batch(10 * step + part + 100 * rank), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    return net.layer.weight.detach().clone(), list(scope.events), [len(scope.findings), len({one.step for one in scope.contained})]


@pytest.mark.parametrize("how", ["skip", "heal"])
@pytest.mark.parametrize("num_micro", [1, 2])
def test_a_loss_that_is_not_finite_does_not_stop_a_run_whose_gradients_are(num_micro: int, how: str) -> None:
    bare, (weight, events, told) = labelled(0, 0, "", num_micro)[0], labelled(0, 0, how, num_micro)
    assert torch.equal(weight, bare) and weight.isfinite().all() and (events, told) == ([], [0, 1])


def test_on_one_of_several_ranks_neither(ranks: RankPool) -> None:
    (one, *told), (other, *theirs) = (answer.value for answer in ranks.run(labelled, 1))
    assert torch.equal(one, other) and one.isfinite().all()
    assert (told, theirs) == ([[], [0, 0]], [[], [0, 1]])


def test_many_such_losses_in_a_row_are_a_finding() -> None:
    torch.manual_seed(0)
    net = Labelled()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with pytest.raises(numscope.NonFiniteError) as raised, numscope.watch(net, on_nonfinite="skip"):
        for step in range(MOST_IN_A_ROW + 9):
            net(batch(step), torch.full((8,), 0 if step == 3 else -100)).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert raised.value.finding.step == 4 + MOST_IN_A_ROW
