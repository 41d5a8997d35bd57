"""A run's loss step by step, known by what backward is called on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from numscope.precision.search.measuring import LossRecorder


@pytest.fixture
def recorder() -> Iterator[LossRecorder]:
    one = LossRecorder()
    one.open()
    yield one
    one.close()


def parts() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def test_loss_of_each_step_is_what_backward_was_called_on(recorder: LossRecorder) -> None:
    model, optimizer = parts()
    expected = []
    for _ in range(4):
        loss = model(torch.randn(5, 3)).square().mean()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert recorder.losses == expected


def test_micro_batches_of_a_step_are_summed(recorder: LossRecorder) -> None:
    model, optimizer = parts()
    losses = [model(torch.randn(5, 3)).square().mean() / 2 for _ in range(2)]
    for loss in losses:
        loss.backward()
    optimizer.step()
    assert recorder.losses == [sum(loss.item() for loss in losses)]


def test_scaled_loss_counts_as_it_was_before_scaling_also_where_the_step_is_left_out(recorder: LossRecorder) -> None:
    model, optimizer = parts()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    expected = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(5, 3)).square().mean() * 100
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        expected.append(loss.item())
    assert recorder.losses == expected


def test_roots_with_several_elements_are_no_loss(recorder: LossRecorder) -> None:
    model, optimizer = parts()
    output = model(torch.randn(5, 3))
    output.backward(torch.ones_like(output))
    optimizer.step()
    assert recorder.losses == []


def test_second_optimizer_of_a_step_makes_no_further_step(recorder: LossRecorder) -> None:
    model, optimizer = parts()
    other = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    model(torch.randn(5, 3)).square().mean().backward()
    optimizer.step()
    other.step()
    assert len(recorder.losses) == 1


def test_close_ends_a_step_without_an_optimizer_and_gives_back_what_was_patched() -> None:
    scale = torch.amp.GradScaler.scale
    recorder = LossRecorder()
    recorder.open()
    model, _ = parts()
    model(torch.randn(5, 3)).mean().backward()
    recorder.close()
    assert len(recorder.losses) == 1
    assert torch.amp.GradScaler.scale is scale


def test_step_that_is_over_is_told_with_its_number_and_loss() -> None:
    told: list[tuple[int, float]] = []
    recorder = LossRecorder(lambda step, loss: told.append((step, loss)))
    recorder.open()
    model, optimizer = parts()
    for _ in range(2):
        model(torch.randn(5, 3)).square().mean().backward()
        optimizer.step()
    recorder.close()
    assert told == list(enumerate(recorder.losses))
