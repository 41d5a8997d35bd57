"""Weights whose bits change from an optimizer's step to the next call."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import SGD, AdamW

from numscope.records.alert import Alert
from numscope.summary.checksum import checksum, flipped_bit
from tests.alerts.checks.silent import Net, alerts_of, batches, one

RULE = "weight changes between steps"
Write = Callable[[nn.Module, int], None]


def trained(write: Write, steps: int = 6, dtype: torch.dtype = torch.float32) -> list[Alert]:
    """``write`` is called after the optimizer's step, with the step's number."""
    torch.manual_seed(0)
    model = Net().to(dtype)
    optimizer = AdamW(model.parameters(), lr=1e-2)

    def training() -> None:
        for step, (x, y) in enumerate(batches(steps)):
            optimizer.zero_grad()
            F.cross_entropy(model(x.to(dtype)).float(), y).backward()
            optimizer.step()
            write(model, step)

    return alerts_of(model, training)


def flip(model: nn.Module, element: int, bit: int) -> None:
    weight = model.first.weight.data
    weight.view(torch.int16 if weight.itemsize == 2 else torch.int32).view(-1)[element] ^= 1 << bit


@pytest.mark.parametrize(("dtype", "element", "bit"), [(torch.float32, 17, 22), (torch.float32, 0, 3), (torch.bfloat16, 31, 6)])
def test_a_flipped_bit_is_named_with_its_element(dtype: torch.dtype, element: int, bit: int) -> None:
    alert = one(trained(lambda model, step: flip(model, element, bit) if step == 1 else None, dtype=dtype), RULE)
    assert (alert.layer, alert.tensor, alert.asks, alert.step) == ("first", "weight", False, 2)
    assert (alert.evidence["element"], alert.evidence["bit"]) == (element, bit)
    assert alert.text.startswith(f"Bit {bit} of element {element} of first.weight has flipped")
    assert "before the call at test_between_steps.py:" in alert.text


@pytest.mark.parametrize("numel", [1, 1024, 5000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.uint8])
def test_the_checksum_tells_one_flipped_bit_from_all_other_changes(numel: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(numel)
    tensor = torch.randn(numel, generator=generator).mul(100).to(dtype)
    data, before = tensor.view(torch.uint8), checksum(tensor)
    for place in torch.randint(8 * len(data), (8,), generator=generator).tolist():
        data[place // 8] ^= 1 << place % 8
        assert flipped_bit(before, tensor) == place
        data[place // 8] ^= 1 << place % 8
    assert flipped_bit(before, tensor) is None
    for other in range(3, 64, 12):  # the lowest bit and others: a change by one, too, if they carry
        data[0] ^= other
        assert flipped_bit(before, tensor) is None
        data[0] ^= other


def clamp(model: nn.Module, step: int) -> None:
    for p in model.parameters():
        p.data.clamp_(-0.1, 0.1)


def swap(model: nn.Module, step: int) -> None:
    """Weights for an evaluation, which are put back."""
    kept = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.5)
        model.eval()(torch.ones(1, 4))
        for name, p in model.train().named_parameters():
            p.copy_(kept[name])


def write_one(model: nn.Module, step: int) -> None:
    if step == 3:
        model.last.bias.data.mul_(0.5)


def put_another(model: nn.Module, step: int) -> None:
    """As FSDP2 does, whose weights are others within a call: both live."""
    model.kept = [*getattr(model, "kept", []), [model.first.weight]]
    model.first.weight = nn.Parameter(model.first.weight.detach() * 0.5)


@pytest.mark.parametrize("write", [clamp, swap, write_one, put_another, lambda model, step: None])
def test_what_scripts_do_between_steps_is_left_alone(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    assert [alert.rule for alert in trained(write) if alert.rule == RULE] == []
    assert "error of its own" not in caplog.text


def test_two_optimizers_of_one_model_are_left_alone() -> None:
    model = Net()
    optimizers = SGD(model.first.parameters(), lr=0.1), SGD(model.last.parameters(), lr=0.1)

    def training() -> None:
        for x, y in batches(6):
            F.cross_entropy(model(x), y).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()

    assert alerts_of(model, training) == []
