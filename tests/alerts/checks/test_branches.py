"""Targets and advantages that carry a gradient."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Normal
from torch.nn import functional as F
from torch.optim import SGD

from numscope.records.alert import Alert
from tests.alerts.checks.silent import alerts_of, line_of, one

TARGET, ADVANTAGE = "target carries a gradient", "advantage carries a gradient"
Loss = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]  # of the model, observations, the next ones, and numbers such as rewards


class Agent(nn.Module):
    """Values of three actions, and of the state."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.head, self.critic = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.trunk(x))
        return self.head(hidden), self.critic(hidden).squeeze(-1)


def trained(loss_of: Loss, model: nn.Module | None = None) -> list[Alert]:
    torch.manual_seed(0)
    agent = model or Agent()
    optimizer = SGD(agent.parameters(), lr=1e-3)

    def training() -> None:
        generator = torch.Generator().manual_seed(0)
        for _ in range(3):
            x, then = torch.randn(2, 6, 4, generator=generator)
            optimizer.zero_grad()
            loss_of(agent, x, then, torch.rand(6, generator=generator)).backward()  # here
            optimizer.step()

    return alerts_of(agent, training)


def chosen(values: Tensor) -> Tensor:
    return values.gather(1, torch.zeros(6, 1, dtype=torch.long)).squeeze(1)


def q_learning(loss: Callable[[Tensor, Tensor], Tensor], detach: bool) -> Loss:
    def loss_of(agent: nn.Module, x: Tensor, then: Tensor, reward: Tensor) -> Tensor:
        (q, value), (following, _) = agent(x), agent(then)
        target = reward + 0.9 * (1 - reward.round()) * following.max(1)[0]
        return loss(chosen(q), target.detach() if detach else target) + value.square().mean()

    return loss_of


def squared(prediction: Tensor, target: Tensor) -> Tensor:
    return ((prediction - target) ** 2).mean()


@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss, F.huber_loss, squared, lambda q, t: (t - q).abs().sum()])
def test_a_value_s_target_with_a_gradient_is_asked_about(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    alert = one(trained(q_learning(loss, detach=False)), TARGET)
    assert alert.asks and "a reward and the model's own output, carries a gradient" in alert.text
    assert alert.evidence["line"] == line_of(trained, "here")
    assert trained(q_learning(loss, detach=True)) == []


def distilled(agent: nn.Module, x: Tensor, then: Tensor, detach: bool, both: bool = False, kl: bool = True) -> Tensor:
    (student, value), (teacher, _) = agent(x), agent(then)
    target = teacher.detach() if detach else teacher
    loss = (
        F.kl_div(student.log_softmax(-1), target.softmax(-1), reduction="batchmean") if kl else F.cross_entropy(student, target.softmax(-1))
    )
    if both:
        loss = loss + F.kl_div(teacher.log_softmax(-1), student.softmax(-1), reduction="batchmean")
    return loss + value.square().mean()


@pytest.mark.parametrize("kl", [True, False])
def test_soft_targets_with_a_gradient_are_asked_about_unless_each_is_the_others(kl: bool) -> None:
    alert = one(trained(lambda m, x, t, r: distilled(m, x, t, False, kl=kl)), TARGET)
    assert "probabilities of the model's own" in alert.text
    assert trained(lambda m, x, t, r: distilled(m, x, t, True, kl=kl)) == []
    assert trained(lambda m, x, t, r: distilled(m, x, t, False, both=True)) == []


def labels_of_itself(agent: nn.Module, x: Tensor, then: Tensor, detach: bool) -> Tensor:
    (q, value), (following, _) = agent(x), agent(then)
    target = following.detach() if detach else following
    return F.binary_cross_entropy_with_logits(q, target.sigmoid()) + value.square().mean()


def test_targets_of_binary_cross_entropy_with_a_gradient_are_asked_about() -> None:
    one(trained(lambda m, x, t, r: labels_of_itself(m, x, t, False)), TARGET)
    assert trained(lambda m, x, t, r: labels_of_itself(m, x, t, True)) == []


def policy_gradient(kind: str, detach: bool) -> Loss:
    def loss_of(agent: nn.Module, x: Tensor, then: Tensor, returns: Tensor) -> Tensor:
        (logits, value), (_, following) = agent(x), agent(then)
        if kind == "normal":
            normal = Normal(logits, 1.0)
            log_prob = normal.log_prob(returns[:, None].expand(6, 3)).sum(-1)
        elif kind == "log_softmax":
            log_prob = chosen(logits.log_softmax(-1))
        else:
            log_prob = Categorical(logits=logits).log_prob(torch.zeros(6))
        advantage = returns + 0.9 * following.detach() - value if kind == "bootstrapped" else returns - value
        value_loss = advantage.square().mean()
        if kind == "normalized":
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        advantage = advantage.detach() if detach else advantage
        if kind == "stacked":  # an episode's steps
            log_prob, advantage = torch.stack([log_prob, log_prob]), torch.stack([advantage, advantage])
        if kind == "clipped":
            ratio = (log_prob - log_prob.detach()).exp()
            return -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean() + value_loss
        return -(log_prob * advantage).mean() + value_loss - 0.01 * Categorical(logits=logits).entropy().mean()

    return loss_of


@pytest.mark.parametrize("kind", ["plain", "normal", "log_softmax", "bootstrapped", "normalized", "stacked", "clipped"])
def test_an_advantage_with_a_gradient_is_asked_about(kind: str) -> None:
    assert one(trained(policy_gradient(kind, detach=False)), ADVANTAGE).asks
    assert trained(policy_gradient(kind, detach=True)) == []


def focal(agent: nn.Module, x: Tensor, then: Tensor, returns: Tensor) -> Tensor:
    logits, value = agent(x)
    log_prob = chosen(logits.log_softmax(-1))
    return -((1 - log_prob.exp()) * log_prob).mean() - ((1 - chosen(logits.softmax(-1))) * log_prob).mean() + value.square().mean()


def invariance(agent: nn.Module, x: Tensor, then: Tensor, returns: Tensor) -> Tensor:
    (one_view, value), (other, _) = agent(x), agent(then)
    return F.mse_loss(one_view, other) + (one_view + 1.0 - other).relu().mean() + value.square().mean()


@pytest.mark.parametrize("loss_of", [focal, invariance])
def test_losses_whose_sides_both_learn_are_left_alone(loss_of: Loss) -> None:
    assert trained(loss_of) == []
