"""Gradients that nobody clears, that are cleared too early, and losses that reach nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import LBFGS, SGD, Adam

from tests.alerts.checks.silent import Net, alerts_of, batches, line_of, one, train


def test_zero_grad_that_is_forgotten_is_named_with_the_backward() -> None:
    model = Net()
    optimizer = Adam(model.parameters())

    def forget() -> None:
        for x, y in batches(6):
            loss = F.cross_entropy(model(x), y)
            loss.backward()  # adds up
            optimizer.step()

    alert = one(alerts_of(model, forget), "gradients not cleared")
    assert alert.step == 2
    assert alert.evidence["line"] == line_of(test_zero_grad_that_is_forgotten_is_named_with_the_backward, "adds up")
    assert "test_clearing.py:" in alert.text


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_that_are_cleared_are_left_alone(to_none: bool) -> None:
    model = Net()
    optimizer = Adam(model.parameters())

    def at_the_end() -> None:
        for x, y in batches(6):
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad(to_none)

    assert alerts_of(model, at_the_end) == []


@pytest.mark.parametrize("to_none", [True, False])
def test_micro_batches_that_add_up_within_a_step_are_left_alone(to_none: bool) -> None:
    model = Net()
    optimizer = Adam(model.parameters())

    def accumulate() -> None:
        for i, (x, y) in enumerate(batches(24)):
            (F.cross_entropy(model(x), y) / 4).backward()
            if i % 4 == 3:
                optimizer.step()
                optimizer.zero_grad(to_none)

    assert alerts_of(model, accumulate) == []


def test_step_at_each_micro_batch_with_clearing_at_each_fourth_is_named() -> None:
    model = Net()
    optimizer = Adam(model.parameters())

    def mixed_up() -> None:
        for i, (x, y) in enumerate(batches(24)):
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            if i % 4 == 3:
                optimizer.zero_grad()

    one(alerts_of(model, mixed_up), "gradients not cleared")


@pytest.mark.parametrize("to_none", [True, False])
def test_two_models_that_clear_just_before_their_own_backward_are_left_alone(to_none: bool) -> None:
    maker, judge = Net(), nn.Linear(3, 1)
    both = nn.ModuleDict({"maker": maker, "judge": judge})
    of_maker, of_judge = Adam(maker.parameters()), Adam(judge.parameters())

    def duel() -> None:
        for x, _ in batches(8):
            of_judge.zero_grad(to_none)
            judge(maker(x).detach()).sum().backward()
            of_judge.step()
            of_maker.zero_grad(to_none)
            judge(maker(x)).square().mean().backward()
            of_maker.step()

    assert alerts_of(both, duel) == []


def test_momentum_by_hand_in_the_gradients_is_left_alone() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)

    def decay() -> None:
        for x, y in batches(8):
            for p in model.parameters():
                if p.grad is not None:
                    p.grad.mul_(0.9)
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    assert alerts_of(model, decay) == []


def test_gradients_that_others_replace_before_the_step_are_left_alone() -> None:
    """Bilevel training: an outer parameter's gradient is put in place by hand; the inner loss's backward adds to the last one."""
    model = Net()
    outer = nn.Parameter(torch.zeros(()))
    optimizer, of_outer = SGD(model.parameters(), lr=0.1), Adam([outer])

    def bilevel() -> None:
        for x, y in batches(8):
            outer.grad = torch.autograd.grad(F.cross_entropy(model(x) * outer.exp(), y), outer)[0]
            of_outer.step()
            optimizer.zero_grad()
            (F.cross_entropy(model(x) * outer.exp(), y)).backward()
            optimizer.step()

    model.register_parameter("outer", outer)
    assert alerts_of(model, bilevel) == []


def test_closure_that_clears_is_left_alone() -> None:
    model = Net(dropout=0.0)
    optimizer = LBFGS(model.parameters(), max_iter=3)

    def fit() -> None:
        for x, y in batches(5):

            def closure() -> Tensor:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)  # noqa: B023
                loss.backward()
                return loss

            optimizer.step(closure)

    assert alerts_of(model, fit) == []


def test_zero_grad_between_backward_and_step_is_named_with_both_lines() -> None:
    model = Net()
    optimizer = Adam(model.parameters())

    def too_early() -> None:
        for x, y in batches(6):
            loss = F.cross_entropy(model(x), y)
            loss.backward()  # in vain
            optimizer.zero_grad()
            optimizer.step()  # with nothing

    here = test_zero_grad_between_backward_and_step_is_named_with_both_lines
    alert = one(alerts_of(model, too_early), "gradients cleared before the step")
    assert alert.step == 0
    assert (alert.evidence["line"], alert.evidence["backward"]) == (line_of(here, "with nothing"), line_of(here, "in vain"))


def test_loss_that_is_made_anew_from_its_number_is_named_with_the_backward() -> None:
    model = Net()
    optimizer = Adam(model.parameters())

    def rewrap() -> None:
        for x, y in batches(6):
            optimizer.zero_grad()
            loss = torch.tensor(F.cross_entropy(model(x), y).item(), requires_grad=True)
            loss.backward()  # of a leaf
            optimizer.step()

    alert = one(alerts_of(model, rewrap), "loss does not reach the model")
    assert alert.step == 0
    assert alert.text.startswith("The loss is a new tensor without a graph: backward at test_clearing.py:")
    assert alert.evidence["line"] == line_of(test_loss_that_is_made_anew_from_its_number_is_named_with_the_backward, "of a leaf")


def test_loss_of_detached_outputs_is_named() -> None:
    model = Net()
    scale = nn.Parameter(torch.ones(3))
    optimizer = Adam([*model.parameters(), scale])

    def detach() -> None:
        for x, y in batches(6):
            optimizer.zero_grad()
            F.cross_entropy(model(x).detach() * scale, y).backward()
            optimizer.step()

    alert = one(alerts_of(model, detach), "loss does not reach the model")
    assert "The loss's graph holds none of the model's parameters" in alert.text


def test_training_that_is_right_is_left_alone() -> None:
    model = Net()
    assert alerts_of(model, lambda: train(model, Adam(model.parameters()), 30)) == []


def test_gradients_that_are_asked_for_and_put_in_place_are_left_alone() -> None:
    """Gradient surgery: ``autograd.grad`` adds to no gradient, and each step puts new ones in their place."""
    model = Net()
    optimizer = Adam(model.parameters())

    def surgery() -> None:
        for x, y in batches(8):
            parameters = list(model.parameters())
            gradients = torch.autograd.grad(F.cross_entropy(model(x), y), parameters)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clamp(-1, 1)
            optimizer.step()

    assert alerts_of(model, surgery) == []


@pytest.mark.parametrize("in_place", [True, False])
def test_gradients_in_memory_of_the_script_s_own_beside_another_model_s_backward_are_left_alone(in_place: bool) -> None:
    """An actor's gradients are asked for and kept in place, or in buffers that become ``.grad``; the backward is the critic's."""
    actor, critic = Net(), nn.Linear(4, 1)
    of_actor, of_critic = Adam(actor.parameters()), Adam(critic.parameters())
    kept = [torch.zeros_like(p) for p in actor.parameters()]

    def train_both() -> None:
        for p, own in zip(actor.parameters(), kept, strict=True):
            p.grad = own
        for x, y in batches(8):
            of_critic.zero_grad()
            critic(x).square().mean().backward()
            of_critic.step()
            given = torch.autograd.grad(F.cross_entropy(actor(x), y), list(actor.parameters()))
            for p, own, gradient in zip(actor.parameters(), kept, given, strict=True):
                own.copy_(gradient)
                if not in_place:
                    p.grad = own
            of_actor.step()

    assert alerts_of(actor, train_both) == []


@pytest.mark.parametrize("how", ["each micro-batch", "each step", "an attack first", "a GAN", "put together", "of other leaves"])
def test_gradients_cleared_for_each_micro_batch_are_asked_about(how: str) -> None:
    model = Net(dropout=0.0)
    optimizer = SGD(model.parameters(), lr=0.1)

    def accumulate() -> None:
        data = list(batches(9))
        for step in range(3):
            if how != "of other leaves":
                optimizer.zero_grad()
            each = []
            for micro, (x, y) in enumerate(data[3 * step : 3 * step + 3]):
                if how == "an attack first":
                    for _ in range(2):
                        x.requires_grad_()
                        F.cross_entropy(model(x), y).backward()
                        optimizer.zero_grad()
                if how == "a GAN":
                    F.cross_entropy(model(x), y).neg().backward()
                    optimizer.zero_grad()
                if micro and how in ("each micro-batch", "put together"):
                    optimizer.zero_grad()
                if how == "of other leaves":
                    torch.ones(2, requires_grad=True).sum().backward()
                    optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                each.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
                if how == "of other leaves":
                    optimizer.step()
                if how in ("an attack first", "a GAN"):
                    optimizer.step()
                    optimizer.zero_grad()
            if how == "put together":  # as PCGrad does
                for p, gradients in zip(model.parameters(), zip(*each, strict=True), strict=True):
                    p.grad = torch.stack(gradients).mean(0)
            optimizer.step()

    alerts = [alert for alert in alerts_of(model, accumulate) if "cleared" in alert.rule]
    if how == "each micro-batch":
        alert = one(alerts, "gradients cleared between micro-batches")
        assert alert.asks and "Of 3 backwards at test_clearing.py:" in alert.text and "the gradients of 2 are cleared" in alert.text
    else:
        assert [alert.rule for alert in alerts if alert.rule.endswith("micro-batches")] == []


@pytest.mark.parametrize("how", ["never", "the second time", "by hand, without an optimizer", "another optimizer's model"])
def test_an_optimizer_that_never_steps_is_asked_about(how: str) -> None:
    model, other = Net(dropout=0.0), Net()
    optimizer = SGD((other if how.startswith("another") else model).parameters(), lr=0.1)
    if how.startswith("by hand"):
        del optimizer

    def loop() -> None:
        for number, (x, y) in enumerate(batches(20)):
            model.zero_grad()
            F.cross_entropy(model(x), y).backward()
            if how == "the second time" and number == 1:
                optimizer.step()
            if how.startswith("by hand"):
                with torch.no_grad():
                    for p in model.parameters():
                        p -= 0.1 * p.grad

    alerts = [alert for alert in alerts_of(model, loop) if alert.rule == "optimizer never steps"]
    assert len(alerts) == (how == "never")
    assert all(alert.asks and "16 backwards at test_clearing.py:" in alert.text and "SGD has not stepped" in alert.text for alert in alerts)


@pytest.mark.parametrize("steps", [False, True])
def test_an_optimizer_that_never_steps_beside_another_that_does_is_asked_about(steps: bool) -> None:
    """Of a GAN's two, the judge's is cleared, and the generator's steps twice. The judge gets no gradient in the generator's turn."""
    generator, judge = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    makes, judges = Adam(generator.parameters()), Adam(judge.parameters())

    def loop() -> None:
        for x, y in batches(40):
            judge.requires_grad_(False)
            makes.zero_grad()
            F.cross_entropy(judge(generator(x)), y).backward()
            makes.step()
            judge.requires_grad_(True)
            judges.zero_grad()
            F.cross_entropy(judge(generator(x).detach()), y).backward()
            (judges if steps else makes).step()

    alerts = [alert for alert in alerts_of(judge, loop) if alert.rule == "optimizer never steps"]
    assert len(alerts) == (not steps) and all("Adam has not stepped" in alert.text for alert in alerts)


@pytest.mark.parametrize("clears", ["after its own step", "before its own backward", "in place before its own backward"])
def test_gradients_that_another_model_s_loss_leaves_are_asked_about(clears: str) -> None:
    generator, judge = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    makes, judges = Adam(generator.parameters()), Adam(judge.parameters())

    def adversaries() -> None:
        for x, y in batches(6):
            F.cross_entropy(judge(generator(x)), y).backward()  # leaves
            makes.step()
            makes.zero_grad()
            if clears != "after its own step":
                judges.zero_grad(set_to_none=clears == "before its own backward")
            F.cross_entropy(judge(x), y).backward()  # adds
            judges.step()
            if clears == "after its own step":
                judges.zero_grad()

    alerts = alerts_of(judge, adversaries)
    if clears == "after its own step":
        alert = one(alerts, "gradients of another loss")
        assert alert.asks and alert.step == 1
        leaves, adds = (
            line_of(test_gradients_that_another_model_s_loss_leaves_are_asked_about, mark).rpartition("/")[2] for mark in ("leaves", "adds")
        )
        assert f"the backward at {leaves}" in alert.text and f"at backward at {adds}" in alert.text
    else:
        assert alerts == []


def test_a_third_loss_that_adds_nothing_to_gradients_that_are_cleared_then_is_left_alone() -> None:
    actor, critic, temperature = nn.Linear(4, 2), nn.Linear(6, 1), nn.Parameter(torch.zeros(()))
    acts, judges, warms = Adam(actor.parameters()), Adam(critic.parameters()), Adam([temperature])

    def play() -> None:
        for x, _ in batches(8):
            judges.zero_grad()
            critic(torch.cat([x, actor(x).detach()], 1)).square().mean().backward()
            judges.step()
            acts.zero_grad()
            critic(torch.cat([x, actor(x)], 1)).mean().backward()  # leaves gradients in the critic
            acts.step()
            warms.zero_grad()
            temperature.square().add(temperature).backward()
            warms.step()

    assert alerts_of(critic, play) == []


def test_a_loss_that_reaches_a_model_after_its_last_step_is_no_step_of_it() -> None:
    generator, judge = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    makes, judges = Adam(generator.parameters(), 1e-4), Adam(judge.parameters(), 1e-4)

    def adversaries() -> None:
        for x, _ in batches(60):
            judges.zero_grad()
            judge(x).square().mean().backward()
            judges.step()
            makes.zero_grad()
            (judge(generator(x)).square().mean() + 40).backward()
            makes.step()

    assert alerts_of(judge, adversaries) == []


def test_losses_that_add_up_between_an_optimizer_s_steps_are_left_alone() -> None:
    trunk, head = nn.Linear(4, 4), nn.Linear(4, 3)
    optimizer, heads = SGD(trunk.parameters(), lr=0.1), SGD(head.parameters(), lr=0.1)

    def together() -> None:
        for x, y in batches(6):
            for loss in (F.cross_entropy(head(trunk(x)), y), trunk(x).square().mean()):
                loss.backward()
            optimizer.step()
            heads.step()
            optimizer.zero_grad()
            heads.zero_grad()

    assert alerts_of(trunk, together) == []


def test_gradients_that_a_scaler_left_out_are_not_missed() -> None:
    """Every second step is left out, as where a scale begins far too high."""
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_interval=1)

    def training() -> None:
        for step, (x, y) in enumerate(batches(6)):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y)).backward()
            if step % 2 == 0:
                model.last.bias.grad[0] = torch.inf
            scaler.step(optimizer)
            scaler.update()

    assert [alert.rule for alert in alerts_of(model, training) if alert.rule.startswith("gradients cleared")] == []
