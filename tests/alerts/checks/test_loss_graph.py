"""Inputs of losses, all pairs, a softmax over the batch, layers that the model does not know."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.nn import functional as F
from torch.optim import SGD

import numscope
from numscope.config.options import WatchOptions
from numscope.records.alert import Alert
from numscope.scope.autowatch import AutoWatch
from tests.alerts.checks.silent import alerts_of, one

Loss = Callable[[Tensor, Tensor], Tensor]


def trained(model: nn.Module, loss_of: Loss, out: int = 4, dtype: torch.dtype = torch.int64) -> list[Alert]:
    optimizer = SGD(model.parameters(), lr=1e-3)

    def training() -> None:
        generator = torch.Generator().manual_seed(0)
        for _ in range(3):
            x = torch.randn(6, 5, generator=generator)
            y = torch.randint(out, (6,), generator=generator) if dtype == torch.int64 else torch.rand(6, generator=generator)
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            optimizer.step()

    return alerts_of(model, training)


def one_hot(y: Tensor) -> Tensor:
    return F.one_hot(y, 4).float()


@pytest.mark.parametrize(
    ("loss_of", "function", "maker"),
    [
        (lambda out, y: F.cross_entropy(out.softmax(-1), y), "cross_entropy", "a softmax"),
        (lambda out, y: F.cross_entropy(out.softmax(-1)[None].view(6, 4), y, label_smoothing=0.1), "cross_entropy", "a softmax"),
        (lambda out, y: F.cross_entropy(out.sigmoid().bfloat16().float(), y), "cross_entropy", "a sigmoid"),
        (lambda out, y: F.cross_entropy(out.softmax(-1)[y > 0], y[y > 0]), "cross_entropy", "a softmax"),
        (lambda out, y: F.nll_loss(out.softmax(-1), y), "nll_loss", "a softmax"),
        (lambda out, y: -Categorical(logits=out.softmax(-1)).log_prob(y).mean(), "Categorical(logits=…)", "a softmax"),
        (lambda out, y: F.nll_loss(out, y), "nll_loss", "a linear layer"),
        (
            lambda out, y: F.nll_loss((out.mm(torch.eye(4)) + torch.zeros(4, requires_grad=True)).view(6, 4), y),
            "nll_loss",
            "a linear layer",
        ),
        (lambda out, y: F.binary_cross_entropy_with_logits(out.sigmoid(), one_hot(y)), "binary_cross_entropy_with_logits", "a sigmoid"),
        (lambda out, y: F.kl_div(out.softmax(-1), one_hot(y), reduction="batchmean"), "kl_div", "a softmax"),
        (lambda out, y: F.cross_entropy(out.softmax(-1).clamp(1e-6) + 1e-8, y), "cross_entropy", "a softmax"),
    ],
)
def test_loss_of_another_kind_of_input_is_named(loss_of: Loss, function: str, maker: str) -> None:
    alert = one(trained(nn.Sequential(nn.Linear(5, 4)), loss_of), "wrong input of a loss")
    assert function in alert.text and f"the output of {maker}: backward at test_loss_graph.py:" in alert.text
    assert (alert.step, alert.asks) == (0, False)


@pytest.mark.parametrize(
    "probabilities", [lambda out: 10 * out.softmax(-1), lambda out: torch.stack([out.softmax(-1), out.flip(1).softmax(-1)]).mean(0)]
)
def test_probabilities_that_are_scaled_or_averaged_are_asked_about(probabilities: Callable[[Tensor], Tensor]) -> None:
    assert one(trained(nn.Sequential(nn.Linear(5, 4)), lambda out, y: F.cross_entropy(probabilities(out), y)), "wrong input of a loss").asks


@pytest.mark.parametrize(
    "loss_of",
    [
        F.cross_entropy,
        lambda out, y: F.cross_entropy(out.relu().unflatten(1, (4, 1)).mean(2), y),  # logits that are pooled
        lambda out, y: F.cross_entropy(torch.stack([out, out.softmax(-1)]).mean(0), y),
        lambda out, y: F.cross_entropy(out @ out.T, torch.arange(6)) - (out @ out.T).log_softmax(0).diagonal().mean(),
        lambda out, y: -Categorical(logits=out).log_prob(y).mean(),
        lambda out, y: -Categorical(probs=out.softmax(-1)).log_prob(y).mean(),
        lambda out, y: F.nll_loss(out.log_softmax(-1), y),
        lambda out, y: F.nll_loss(out.softmax(-1).log(), y),
        lambda out, y: F.cross_entropy(out.tanh(), y),
        lambda out, y: F.binary_cross_entropy(out.sigmoid(), one_hot(y)),
        lambda out, y: F.binary_cross_entropy_with_logits(out, one_hot(y)),
        lambda out, y: F.kl_div(out.log_softmax(-1), one_hot(y), reduction="batchmean"),
        lambda out, y: F.kl_div(out.log_softmax(-1), out.detach().softmax(-1), reduction="batchmean"),
        lambda out, y: (one_hot(y) - out.softmax(-1)).square().mean(),
        lambda out, y: (out.softmax(-1) * one_hot(y)).sum(),
    ],
)
def test_right_inputs_are_left_alone(loss_of: Loss) -> None:
    assert trained(nn.Sequential(nn.Linear(5, 4)), loss_of) == []


def test_a_function_of_the_scripts_own_may_have_an_operations_name() -> None:
    class Softmax(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:  # type: ignore[override]
            return gradient * 2

    assert trained(nn.Linear(5, 4), lambda x, y: F.cross_entropy(Softmax.apply(x), y)) == []  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda out, y: (out - y).square().mean(),
        lambda out, y: (y - out).abs().mean(),
        lambda out, y: -(y * out.sigmoid().log()).mean(),
        lambda out, y: (out.squeeze(1) - y[:, None]).square().mean(),
        pytest.param(F.mse_loss, marks=pytest.mark.filterwarnings("ignore:Using a target size")),
        pytest.param(F.huber_loss, marks=pytest.mark.filterwarnings("ignore:Using a target size")),
    ],
)
def test_predictions_that_meet_all_targets_are_asked_about(loss_of: Loss) -> None:
    alert = one(trained(nn.Sequential(nn.Linear(5, 1)), loss_of, dtype=torch.float32), "loss over all pairs")
    assert "(6, 6)" in alert.text and alert.asks


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda out, y: (out.squeeze(1) - y).square().mean(),
        lambda out, y: F.mse_loss(out, y[:, None]),
        lambda out, y: (out - out.T).relu().mean(),  # of pairs on purpose
        lambda out, y: (out[:, 0].unsqueeze(1) - y).abs().mean(),  # the same
    ],
)
def test_pairs_on_purpose_are_left_alone(loss_of: Loss) -> None:
    assert trained(nn.Sequential(nn.Linear(5, 1)), loss_of, dtype=torch.float32) == []


def two_sided(column: Callable[[Tensor], Tensor], row: Callable[[Tensor], Tensor]) -> list[Alert]:
    return trained(nn.Sequential(nn.Linear(5, 2)), lambda out, y: (column(out) - row(out)).square().mean(), dtype=torch.float32)


def test_two_outputs_that_meet_in_all_pairs_are_asked_about() -> None:
    alert = one(two_sided(lambda out: out.sum(-1, keepdim=True), lambda out: out.min(-1).values), "loss over all pairs")
    assert "shapes (6, 1) and (6,), both computed from the batch, become (6, 6)" in alert.text and alert.asks


def test_two_outputs_in_pairs_on_purpose_are_left_alone() -> None:
    assert two_sided(lambda out: out.sum(-1)[:, None], lambda out: out.min(-1).values) == []
    assert two_sided(lambda out: out.sum(-1, keepdim=True), lambda out: out.min(-1, keepdim=True).values) == []


@pytest.mark.parametrize(
    ("loss", "function"), [(F.cross_entropy, "cross_entropy"), (F.binary_cross_entropy_with_logits, "binary_cross_entropy_with_logits")]
)
def test_logits_behind_a_relu_are_asked_about(loss: Loss, function: str) -> None:
    alert = one(trained(nn.Sequential(nn.Linear(5, 4), nn.ReLU()), lambda out, y: loss(out, one_hot(y))), "wrong input of a loss")
    assert f"{function}" in alert.text and "output of a relu: no logit is below 0" in alert.text and alert.asks


class Routed(nn.Module):
    """Experts of which a router chooses some, by weights that are to sum to 1."""

    def __init__(self, chosen: int, total: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.router, self.experts, self.chosen, self.total = nn.Linear(5, 3), nn.Linear(5, 12), chosen, total

    def forward(self, x: Tensor) -> Tensor:
        weights, places = self.router(x).softmax(-1).topk(self.chosen)
        weights = weights / self.total(weights)
        chosen = self.experts(x).view(-1, 3, 4).gather(1, places[..., None].expand(-1, -1, 4))
        return (chosen * weights[..., None]).sum(1)


@pytest.mark.parametrize(
    "total",
    [
        lambda weights: weights.sum(-1, keepdim=True),
        lambda weights: weights.sum(1, True) + 1e-20,
        lambda weights: weights.sum(-1, True).clamp_min(1e-9),
    ],
)
def test_weight_of_one_expert_that_is_divided_by_itself_is_asked_about(total: Callable[[Tensor], Tensor]) -> None:
    alert = one(trained(Routed(1, total), F.cross_entropy), "normalized over one number")
    assert "shape (6, 1) is divided by its own sum" in alert.text and alert.asks
    assert trained(Routed(2, total), F.cross_entropy) == []


@pytest.mark.parametrize(("dim", "rules"), [(0, ["softmax over the batch"]), (-1, [])])
def test_softmax_over_the_batch_is_asked_about(dim: int, rules: list[str]) -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.last = nn.Linear(5, 3), nn.Linear(3, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.gate(x).softmax(dim))

    assert [alert.rule for alert in trained(Gated(), F.cross_entropy)] == rules
    assert [alert.rule for alert in trained(nn.Linear(5, 4), lambda out, y: F.nll_loss(out.log_softmax(dim), y))] == rules


class Hiding(nn.Module):
    def __init__(self, keep: Callable[[list[nn.Module]], object]) -> None:
        super().__init__()
        self.hidden = keep([nn.Linear(5, 5), nn.Linear(5, 5)])
        self.last = nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        layers = self.hidden.values() if isinstance(self.hidden, dict) else self.hidden
        for layer in layers:  # type: ignore[union-attr]
            x = layer(x).relu()
        return self.last(x)


@pytest.mark.parametrize("keep", [list, tuple, lambda layers: dict(enumerate(layers))])
def test_layers_in_a_list_are_named(keep: Callable[[list[nn.Module]], object]) -> None:
    alert = one(trained(Hiding(keep), F.cross_entropy), "layers outside the model")
    assert "4 tensors in hidden" in alert.text and alert.evidence["attribute"] == "hidden"


class Plain:
    """A layer that derives from nothing."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self.weight = nn.Parameter(torch.ones(4, 5))

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.weight.T

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"nobody asks for {name}")


def test_layer_that_is_no_module_is_named() -> None:
    class WithPlain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.head = nn.Linear(5, 5), Plain()

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.first(x))

    alert = one(trained(WithPlain(), F.cross_entropy), "layers outside the model")
    assert "1 tensor in head, a Python Plain of WithPlain's" in alert.text


class Scaled(nn.Module):
    def __init__(self, scale: Callable[[nn.Module], Tensor]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 5), nn.Linear(5, 4)
        self.scale = scale(self)

    def forward(self, x: Tensor) -> Tensor:
        self.mean = self.last.weight.float().view(-1)  # an attribute that was made from a weight of the model's own
        return self.last(self.first(x) * self.scale)


@pytest.mark.parametrize(
    ("scale", "rules"),
    [
        (lambda model: nn.Parameter(torch.ones(5, dtype=torch.float64)).float(), ["layers outside the model"]),
        (lambda model: nn.Parameter(torch.ones(1)).expand(5), ["layers outside the model"]),
        (lambda model: nn.Parameter(torch.ones(5)), []),
        (lambda model: torch.ones(5), []),
        (lambda model: model.first.bias.view(5), []),
    ],
)
def test_attribute_made_from_a_parameter_is_named(scale: Callable[[nn.Module], Tensor], rules: list[str]) -> None:
    alerts = trained(Scaled(scale), F.cross_entropy)
    assert [alert.rule for alert in alerts] == rules
    assert all("that scale was made from" in alert.text and alert.asks for alert in alerts)


class Forgetful(nn.Module):
    """Its second layer is made in each forward, or kept from the first one on by somebody else."""

    def __init__(self, keep: dict[str, nn.Module] | None = None) -> None:
        super().__init__()
        self.first, self.last, self.keep = nn.Linear(5, 5), nn.Linear(5, 4), keep

    def forward(self, x: Tensor) -> Tensor:
        layer = nn.Linear(5, 5) if self.keep is None else self.keep.setdefault("layer", nn.Linear(5, 5))
        return self.last(layer(self.first(x)))


@pytest.mark.parametrize("held", [True, False])
def test_parameter_that_nothing_holds_is_asked_about(held: bool) -> None:
    model, scale = nn.Linear(5, 4), nn.Parameter(torch.tensor(2.0))
    optimizer = SGD([*model.parameters(), *([scale] if held else [])], lr=1e-3)

    def training() -> None:
        for _ in range(5):
            optimizer.zero_grad()
            (model(torch.randn(6, 5)) * scale.exp()).square().mean().backward()
            optimizer.step()

    found = alerts_of(model, training)
    assert found == [] if held else "of shape ()" in one(found, "layers outside the model").text


def test_layer_that_is_made_in_each_forward_is_asked_about() -> None:
    alert = one(trained(Forgetful(), F.cross_entropy), "layers outside the model")
    assert "2 parameters" in alert.text and "that neither a watched model" in alert.text and alert.step == 2 and alert.asks
    kept = one(trained(Forgetful({}), F.cross_entropy), "layers outside the model")
    assert "that neither a watched model" not in kept.text


def test_loss_of_two_models_is_spoken_of_once() -> None:
    first, second = nn.Linear(5, 4), nn.Linear(4, 4)
    optimizer = SGD([*first.parameters(), *second.parameters()], lr=1e-3)

    def training() -> None:
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(second(first(torch.randn(6, 5))).softmax(-1), torch.randint(4, (6,))).backward()
            optimizer.step()

    with numscope.watch(first) as scope:
        more = alerts_of(second, training)
    assert [alert.rule for alert in (*scope.alerts, *more)] == ["wrong input of a loss"]


@pytest.mark.parametrize(("out", "rules"), [(1, ["normalized over one number"]), (4, [])])
def test_softmax_of_one_number_is_named(out: int, rules: list[str]) -> None:
    model = nn.Sequential(nn.Linear(5, out), nn.Softmax(-1))
    alerts = trained(model, lambda probabilities, y: F.mse_loss(probabilities[:, :1], y[:, None]), dtype=torch.float32)
    assert [alert.rule for alert in alerts if alert.rule != "parameter without gradient"] == rules


@pytest.mark.parametrize(("held", "rules"), [(False, ["model without optimizer"]), (True, [])])
def test_model_whose_optimizer_is_missing_is_named(held: bool, rules: list[str]) -> None:
    backbone, head = nn.Linear(5, 5), nn.Sequential(nn.Linear(5, 4))
    optimizer = SGD([*backbone.parameters(), *(head.parameters() if held else ())], lr=1e-3)

    def training() -> None:
        for step in range(6):
            torch.manual_seed(step)
            optimizer.zero_grad()
            F.cross_entropy(head(backbone(torch.randn(6, 5))), torch.randint(4, (6,))).backward()
            optimizer.step()

    assert [alert.rule for alert in alerts_of(head, training)] == rules


def test_registered_frozen_and_optimized_layers_are_left_alone() -> None:
    assert trained(Hiding(nn.ModuleList), F.cross_entropy) == []
    frozen = Hiding(list)
    for layer in frozen.hidden:  # type: ignore[attr-defined]
        layer.requires_grad_(False)
    assert trained(frozen, F.cross_entropy) == []
    others = Hiding(list)
    held = SGD([p for layer in others.hidden for p in layer.parameters()])  # type: ignore[attr-defined]
    assert trained(others, F.cross_entropy) == []
    del held


def test_loss_of_another_model_is_that_models() -> None:
    teacher, student = nn.Sequential(nn.Linear(5, 4)), nn.Sequential(nn.Linear(5, 4))

    def loss_of(out: Tensor, y: Tensor) -> Tensor:
        loss = F.kl_div(student(torch.ones(6, 5)).softmax(-1), one_hot(y))
        loss.backward()
        return F.cross_entropy(out, y)

    assert [alert.rule for alert in trained(teacher, loss_of)] == []


@pytest.mark.parametrize(
    ("norm", "rules"),
    [
        (nn.Sequential(nn.Unflatten(1, (4, 1)), nn.LayerNorm(1), nn.Flatten()), ["normalized over one number"]),
        (nn.GroupNorm(4, 4), ["normalized over one number"]),
        (nn.LayerNorm(4), []),
        (nn.Sequential(nn.Unflatten(1, (4, 1)), nn.LayerNorm((4, 1)), nn.Flatten()), []),
        (nn.GroupNorm(2, 4), []),
    ],
)
def test_norm_of_one_number_is_asked_about(norm: nn.Module, rules: list[str]) -> None:
    alerts = trained(nn.Sequential(nn.Linear(5, 4), norm, nn.Linear(4, 4)), F.cross_entropy)
    assert [a.rule for a in alerts if a.rule.startswith("normalized")] == rules


@pytest.mark.parametrize(
    ("first", "second", "rules"),
    [
        (lambda a, b: a, lambda a, b: a + b, ["loss twice"]),
        (lambda a, b: b, lambda a, b: (a + b).log(), ["loss twice"]),
        (lambda a, b: a, lambda a, b: b, []),
    ],
)
def test_loss_that_counts_twice_is_asked_about(first: Loss, second: Loss, rules: list[str]) -> None:
    model = nn.Linear(5, 4)
    optimizer = SGD(model.parameters(), lr=1e-3)

    def training(clear: bool = False) -> None:
        for _ in range(3):
            out = model(torch.randn(6, 5))
            a, b = out.square().mean(), out.exp().mean()
            optimizer.zero_grad()
            first(a, b).backward(retain_graph=True)
            if clear:
                optimizer.zero_grad()
            second(a, b).backward()
            optimizer.step()

    assert [a.rule for a in alerts_of(model, training) if a.rule == "loss twice"] == rules
    assert not [a for a in alerts_of(model, lambda: training(clear=True)) if a.rule == "loss twice"]


def test_loss_of_two_models_is_said_once() -> None:
    with AutoWatch(WatchOptions()) as auto:
        body, head = nn.Linear(6, 8), nn.Linear(8, 4)
        optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(head(body(torch.randn(5, 6)).relu()).softmax(-1), torch.randint(4, (5,))).backward()
            optimizer.step()
        assert [alert.rule for scope in auto.scopes for alert in scope.alerts] == ["wrong input of a loss"]
