"""Train and eval mode, autocast, dtypes of weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Adam

from tests.alerts.checks.silent import Net, alerts_of, batches, line_of, one, train


def test_eval_left_on_after_an_evaluation_is_named_with_the_step_and_the_line() -> None:
    model = Net()
    optimizer = Adam(model.parameters())

    def evaluate_and_go_on() -> None:
        for step, (x, y) in enumerate(batches(12)):
            if step == 6:
                model.eval()
                with torch.no_grad():
                    model(x)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)  # the call
            loss.backward()
            optimizer.step()

    alert = one(alerts_of(model, evaluate_and_go_on), "eval mode")
    assert (alert.step, alert.asks) == (6, False)
    assert alert.evidence["line"] == line_of(test_eval_left_on_after_an_evaluation_is_named_with_the_step_and_the_line, "the call")
    assert "its 1 dropout layer does nothing. It was in train mode until step 5." in alert.text


def test_eval_mode_from_the_start_is_asked_about() -> None:
    model = Net().eval()
    alert = one(alerts_of(model, lambda: train(model, Adam(model.parameters()))), "eval mode")
    assert (alert.step, alert.asks) == (1, True)


def test_eval_mode_that_makes_no_difference_is_left_alone() -> None:
    model = Net(dropout=0.0).eval()
    assert alerts_of(model, lambda: train(model, Adam(model.parameters()))) == []


def test_evaluation_between_steps_is_left_alone() -> None:
    model = Net()
    optimizer = Adam(model.parameters())

    def train_and_evaluate() -> None:
        for x, y in batches(8):
            model.train()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                model(x)
            model(x)  # somebody forgot no_grad

    assert alerts_of(model, train_and_evaluate) == []


def test_evaluation_in_train_mode_is_asked_about_with_its_line() -> None:
    model = Normed()
    optimizer = Adam(model.parameters())

    def forget() -> None:
        for _ in range(2):
            train(model, optimizer, 3)
            with torch.no_grad():
                for x, _ in batches(10):
                    model(x)  # as in training

    alert = one(alerts_of(model, forget), "train mode in evaluation")
    assert (alert.step, alert.asks) == (3, True)
    assert "with 1 dropout layer at work and 1 batch norm writing statistics" in alert.text
    assert alert.evidence["line"] == line_of(test_evaluation_in_train_mode_is_asked_about_with_its_line, "as in training")


def test_targets_made_without_gradients_in_train_mode_are_left_alone() -> None:
    model = Normed()
    optimizer = Adam(model.parameters())

    def guess() -> None:
        for x, y in batches(8):
            with torch.no_grad():
                target = (model(x) + model(x + 0.1)).softmax(1)
            optimizer.zero_grad()
            out = model(x)
            (F.cross_entropy(out, y) + F.mse_loss(out, target)).backward()
            optimizer.step()

    assert alerts_of(model, guess) == []


@pytest.mark.parametrize(
    ("write", "mode", "rules"),
    [
        (None, True, ["train mode in evaluation"]),
        (None, False, []),
        (lambda p: p.data.mul_(0.999), True, []),  # a moving average, whose dropouts are meant
    ],
)
def test_frozen_teacher_in_train_mode_is_asked_about(write: Callable[[Tensor], object] | None, mode: bool, rules: list[str]) -> None:
    teacher = Normed().train(mode).requires_grad_(False)

    def teach() -> None:
        for x, _ in batches(24):
            with torch.no_grad():
                teacher(x)
            for p in teacher.parameters() if write is not None else ():
                write(p)

    alerts = alerts_of(teacher, teach)
    assert [alert.rule for alert in alerts] == rules
    assert all(alert.asks and "though nothing trains it" in alert.text for alert in alerts)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(self.norm(self.first(x))))


def test_frozen_batch_norm_is_left_alone() -> None:
    model = Normed()
    model.norm.eval()
    assert alerts_of(model, lambda: train(model, SGD(model.parameters(), lr=0.1))) == []


def test_rate_of_a_functional_dropout_counts() -> None:
    class Functional(Net):
        def __init__(self) -> None:
            super().__init__(0.0)
            self.resid_dropout = 0.2

        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(super().forward(x), self.resid_dropout, self.training)

    model = Functional().eval()
    alert = one(alerts_of(model, lambda: train(model, SGD(model.parameters(), lr=0.1))), "eval mode")
    assert "dropout (resid_dropout) does nothing" in alert.text


# ---- autocast


def train_under(model: nn.Module, device: str, dtype: torch.dtype) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for x, y in batches(5):
        optimizer.zero_grad()
        with torch.autocast(device, dtype):
            loss = F.cross_entropy(model(x).float(), y)
        loss.backward()
        optimizer.step()


def test_autocast_that_reaches_the_model_is_left_alone() -> None:
    model = Net()
    assert alerts_of(model, lambda: train_under(model, "cpu", torch.bfloat16)) == []


class Walled(Net):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return super().forward(x.float())


def test_autocast_that_the_model_switches_off_is_named() -> None:
    model = Walled()
    alert = one(alerts_of(model, lambda: train_under(model, "cpu", torch.bfloat16)), "autocast without effect")
    assert "no module's output is in bfloat16" in alert.text
    assert alert.evidence["code"].startswith("loss = F.cross_entropy")


def test_model_without_anything_to_cast_is_left_alone() -> None:
    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            return (x * self.scale)[:, :3]

    model = Sums()
    assert alerts_of(model, lambda: train_under(model, "cpu", torch.bfloat16)) == []


# ---- dtypes


@pytest.mark.parametrize("how", ["around the loop", "around each step", "around each forward", "left in between", "without a cache"])
def test_autocast_that_is_never_left_is_named(how: str) -> None:
    model = Net(dropout=0.0)
    optimizer = SGD(model.parameters(), lr=0.1)

    def autocast(on: bool = True) -> torch.autocast:
        return torch.autocast("cpu", torch.bfloat16, enabled=on, cache_enabled=how != "without a cache")

    def step(x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        with autocast() if how == "around each forward" else autocast(torch.is_autocast_enabled("cpu")):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    def training() -> None:
        data = list(batches(4))
        if how in ("around the loop", "without a cache"):
            with autocast():
                for x, y in data:
                    step(x, y)
        elif how == "left in between":
            for half in (data[:1], data[1:2], data[2:3]):
                with autocast():
                    for x, y in half:
                        step(x, y)
        else:
            for x, y in data:
                with autocast(how == "around each step"):
                    step(x, y)

    alerts = alerts_of(model, training)
    if how == "around the loop":
        assert one(alerts, "autocast is never left").step == 1
    else:
        assert alerts == []


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("momentum", [0.1, 0.99, 0.0])
def test_batch_norms_that_move_or_forget_are_asked_about(frozen: bool, momentum: float) -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, momentum=momentum), nn.Linear(5, 3))
    model[1].requires_grad_(not frozen)
    alerts = alerts_of(model, lambda: train(model, SGD(model.parameters(), lr=1e-2)))
    assert {alert.rule for alert in alerts} == {
        *(["frozen batch norm moves"] if frozen else []),
        *(["batch norm forgets"] if momentum != 0.1 else []),
    }
    assert all(alert.asks and alert.step == 1 for alert in alerts)
    model[1].eval()
    assert alerts_of(model, lambda: train(model, SGD(model.parameters(), lr=1e-2))) == []


class Dropping(nn.Module):
    """Drops out by a function."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.dropout(x, 0.2))  # careless


class Telling(Dropping):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.dropout(x, 0.2, training=self.training))


class Sampling(Dropping):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(x + torch.randn_like(x))


@pytest.mark.parametrize("kind", [Dropping, Telling, Sampling])
def test_dropout_that_is_active_in_evaluation_is_named_with_its_line(kind: type[Dropping]) -> None:
    inner = kind()
    model = nn.Sequential(nn.Linear(4, 4), inner)

    def training() -> None:
        train(model, SGD(model.parameters(), lr=1e-2), 3)
        model.eval()
        before = torch.get_rng_state()
        with torch.no_grad():
            model(torch.ones(2, 4))
        assert torch.equal(before, torch.get_rng_state()) == (kind is Telling)

    alerts = alerts_of(model, training)
    if kind is Dropping:
        alert = one(alerts, "dropout in evaluation")
        assert (alert.layer, alert.asks) == ("1", False)
        assert alert.evidence["line"] == line_of(Dropping.forward, "careless")
    else:
        assert alerts == []
