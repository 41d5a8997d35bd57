"""Infinities and nans that go nowhere: no finding, no error, however many steps; at most a note."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.faults.planting import Training, host, train, watched

INF = float("inf")
Level = str


def masked_softmax(x: Tensor) -> Tensor:
    scores = x @ x.t()
    hidden = torch.triu(torch.ones_like(scores, dtype=torch.bool), diagonal=1)
    return scores.masked_fill(hidden, -INF).softmax(-1) @ x


def additive_mask(x: Tensor) -> Tensor:
    scores = x @ x.t()
    mask = torch.full_like(scores, -INF).triu(diagonal=1)
    return F.softmax(scores + mask, dim=-1) @ x


def fused_attention_with_a_mask(x: Tensor) -> Tensor:
    mask = torch.zeros(len(x), len(x)).masked_fill(torch.triu(torch.ones(len(x), len(x), dtype=torch.bool), 1), -INF)
    y: Tensor = F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], attn_mask=mask)
    return y[0, 0]


def log_of_zero_under_where(x: Tensor) -> Tensor:
    distance = torch.arange(8.0)
    bucket = torch.where(distance > 0, distance.log(), torch.zeros(()))
    return x + bucket


def safe_where(x: Tensor) -> Tensor:
    y = F.relu(x)
    inside = torch.where(y > 0, y, 1.0)
    return x + torch.where(y > 0, inside.log(), 0.0)


def pooling_with_infinite_padding(x: Tensor) -> Tensor:
    padded = F.pad(x, (1, 1), value=-INF)
    return F.max_pool1d(padded, 3, stride=1)


def running_maximum(x: Tensor) -> Tensor:
    best = torch.full((len(x),), -INF)
    for column in x.unbind(1):
        best = torch.maximum(best, column)
    return x - best[:, None]


def smallest_of_what_is_allowed(x: Tensor) -> Tensor:
    allowed = x > x.mean()
    return x + torch.where(allowed, x, INF).min()


def nan_in_a_slice_left_out(x: Tensor) -> Tensor:
    table = torch.full((3, 8), float("nan"))
    table[0] = 1
    return x * table[0]


def nan_replaced(x: Tensor) -> Tensor:
    y = torch.zeros(8).log() * 0
    return x + torch.nan_to_num(y)


def infinity_clamped(x: Tensor) -> Tensor:
    return x + torch.zeros(8).log().clamp(min=-1.0)


def reciprocal_of_infinity(x: Tensor) -> Tensor:
    return x + 1 / torch.full((8,), INF)


def exponential_of_minus_infinity(x: Tensor) -> Tensor:
    return x + torch.zeros(8).log().exp()


def gradients_that_torch_masks(x: Tensor) -> Tensor:
    zero = x * 0
    return x + torch.atan2(zero, zero) + (zero + 1).std(-1, keepdim=True) + zero.norm(dim=-1, keepdim=True)


def root_of_relu(x: Tensor) -> Tensor:
    return x + F.relu(x).sqrt()  # the inf of its gradient is let through by no relu


HOSTED = [
    masked_softmax,
    additive_mask,
    fused_attention_with_a_mask,
    log_of_zero_under_where,
    safe_where,
    pooling_with_infinite_padding,
    running_maximum,
    smallest_of_what_is_allowed,
    nan_in_a_slice_left_out,
    nan_replaced,
    infinity_clamped,
    reciprocal_of_infinity,
    exponential_of_minus_infinity,
    gradients_that_torch_masks,
    root_of_relu,
]


@pytest.mark.parametrize("level", ["modules", "sentinel"])
@pytest.mark.parametrize("fn", HOSTED, ids=lambda f: f.__name__)
def test_infinity_inside_a_module_that_stays_there_is_silent(fn: Callable[[Tensor], Tensor], level: Level) -> None:
    scope = watched(lambda: host(fn), level=level)
    assert scope.findings == []
    assert scope.step_number == 3 and scope.batch == 3


class Scores(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        scores = x @ x.t()
        return scores.masked_fill(torch.triu(torch.ones_like(scores, dtype=torch.bool), diagonal=1), -INF)


class MaskedAttention(nn.Module):
    """-inf crosses a module's boundary, as an output and as an input."""

    def __init__(self) -> None:
        super().__init__()
        self.proj, self.scores, self.softmax = nn.Linear(4, 4), Scores(), nn.Softmax(dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.proj(x)
        y: Tensor = self.softmax(self.scores(x)) @ x
        return y


@pytest.mark.parametrize("level", ["modules", "sentinel"])
def test_masked_scores_that_cross_a_module_s_boundary_are_noted_and_silent(level: Level) -> None:
    def plant() -> Training:
        model = MaskedAttention()
        return train(model, lambda i: model(torch.randn(3, 4)).square().mean())

    scope = watched(plant, level=level)
    assert scope.findings == []
    if level == "modules":
        assert [(f.site.module, f.site.slot) for f in scope.contained] == [("scores", "output"), ("softmax", "input[0]")]
        assert all(f.contained and f.culprit is None for f in scope.contained)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 5)
        self.register_buffer("limits", torch.tensor([-INF, INF]))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(x).clamp(*self.limits).masked_fill(torch.tensor([False, False, False, False, True]), -INF)
        return y


@pytest.mark.parametrize("level", ["modules", "sentinel"])
def test_masked_logits_under_cross_entropy_are_silent(level: Level) -> None:
    def plant() -> Training:
        model = Classifier()
        return train(model, lambda i: F.cross_entropy(model(torch.randn(3, 4)), torch.tensor([0, 1, 3])))

    assert watched(plant, level=level).findings == []


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.head(x)
        return {"used": y, "unused": (y.detach() * 0).log() * 0}


@pytest.mark.parametrize("level", ["modules", "sentinel"])
def test_nan_in_an_output_that_nobody_uses_is_silent(level: Level) -> None:
    def plant() -> Training:
        model = TwoHeads()
        return train(model, lambda i: model(torch.randn(3, 4))["used"].square().mean())

    scope = watched(plant, level=level)
    assert scope.findings == []
    assert {f.site.slot for f in scope.contained} == {"output[unused]"}


def test_infinities_in_the_loss_that_go_nowhere_are_silent() -> None:
    def plant() -> Training:
        model = nn.Linear(4, 2)

        def loss_of(i: int) -> Tensor:
            out = model(torch.randn(3, 4))
            far = torch.full_like(out, INF)
            return torch.minimum(out.square(), far).mean() + torch.where(out > out.mean(), out, -INF).max()

        return train(model, loss_of)

    scope = watched(plant)
    assert scope.findings == [] and scope.contained == []


def test_integer_and_boolean_inputs_are_silent() -> None:
    class Embedder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(10, 4), nn.Linear(4, 2)

        def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
            y: Tensor = self.head((self.table(ids) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))
            return y

    def plant() -> Training:
        model = Embedder()
        return train(model, lambda i: model(torch.randint(10, (2, 5)), torch.ones(2, 5, dtype=torch.bool)).square().mean())

    assert watched(plant).findings == []


def test_evaluations_between_steps_are_silent_and_infinite_logits_too() -> None:
    def plant() -> Training:
        model = Classifier()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(i: int) -> None:
            model.train()
            optimizer.zero_grad()
            F.cross_entropy(model(torch.randn(3, 4)), torch.tensor([0, 1, 3])).backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                for _ in range(2):
                    model(torch.randn(3, 4)).argmax(-1)
            with torch.inference_mode():
                x = torch.randn(1, 4)
                for _ in range(4):
                    x = model(x).softmax(-1)[:, :4]

        return Training(model, step)

    scope = watched(plant)
    assert scope.findings == []
    assert scope.step_number == 3 and scope.batch == 3 * 7
