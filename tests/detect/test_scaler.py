"""GradScaler: a step that it leaves out is an event; many in a row are a finding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import numscope

HERE = __file__


def line_of(mark: str) -> int:
    with open(HERE, encoding="utf-8") as file:
        return next(n for n, text in enumerate(file, 1) if text.rstrip().endswith(f"# {mark}"))


class Half(nn.Module):
    """Computes in float16, so that a scaled gradient can overflow."""

    def __init__(self, gain: float = 1.0) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)
        self.gain = gain

    def forward(self, x: Tensor, gain: float = 1.0) -> Tensor:
        h = self.first(x).half()
        h = h * (self.gain * gain)  # overflows in its backward
        return self.last(h.float()).square().mean()


def model(seed: int = 0, gain: float = 1.0) -> Half:
    torch.manual_seed(seed)
    return Half(gain)


def batches(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(3, 4, generator=generator) for _ in range(count)]


def train(net: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, steps: int, gain: Any = None) -> list[float]:
    scales = []
    for step, x in enumerate(batches(steps)):
        optimizer.zero_grad()
        scaler.scale(net(x, 1.0 if gain is None else gain(step))).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


def test_skipped_steps_while_the_scale_settles_are_events_and_no_findings() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=3)
    with numscope.watch(net, alerts={"scale falls": {"finding": 10}}) as scope:
        scales = train(net, optimizer, scaler, 24)
    assert min(scales) < 2.0**22
    assert len(scope.events) >= 2 and "left the step out" in scope.events[0][1]
    assert scope.events[0][0] == 0 and scope.findings == []


def test_scale_that_recovers_never_alarms_however_long_it_goes_on() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=2)
    with numscope.watch(net, alerts={"scale falls": {"finding": 3}}) as scope:
        train(net, optimizer, scaler, 60)
    assert len(scope.events) >= 3 and scope.findings == []


def test_many_skips_in_a_row_are_a_finding_with_a_culprit() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    numscope.watch(net, alerts={"scale falls": {"finding": 3}})
    before: list[Tensor] = []

    def gain(step: int) -> float:
        if step == 1:  # the first step was good
            before.extend(p.detach().clone() for p in net.parameters())
        return 6e4 if step else 1.0

    with pytest.raises(numscope.NonFiniteError) as caught:
        train(net, optimizer, scaler, 20, gain)
    finding = caught.value.finding
    assert (finding.kind.value, finding.step) == ("scaler_skips", 3)
    assert finding.note == "GradScaler left out 3 steps in a row"
    assert finding.culprit is not None
    assert (finding.culprit.file, finding.culprit.line) == (HERE, line_of("overflows in its backward"))
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


def test_skips_counted_in_a_row_start_again_after_a_step() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4, growth_interval=1000)
    with numscope.watch(net, alerts={"scale falls": {"finding": 3}}) as scope:
        train(net, optimizer, scaler, 12, lambda step: 1.0 if step % 3 == 2 else 6e7)
    assert len(scope.events) == 8 and scope.findings == []


def test_fused_optimizer_that_gets_the_scalers_verdict_is_an_event_too() -> None:
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.001, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4)
    with numscope.watch(net, alerts={"scale falls": {"finding": 5}}) as scope:
        train(net, optimizer, scaler, 6, lambda step: 6e7 if step == 2 else 1.0)
    assert [step for step, _ in scope.events] == [2] and scope.findings == []


def test_fused_optimizer_many_skips_in_a_row_are_a_finding() -> None:
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.001, fused=True)
    numscope.watch(net, alerts={"scale falls": {"finding": 3}})
    with pytest.raises(numscope.NonFiniteError) as caught:
        train(net, optimizer, torch.amp.GradScaler("cpu", init_scale=2.0**4), 6, lambda step: 6e7 if step else 1.0)
    assert (caught.value.finding.kind.value, caught.value.finding.step) == ("scaler_skips", 3)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = Half(), Half()

    def forward(self, x: Tensor, gain: float = 1.0) -> tuple[Tensor, Tensor]:
        return self.left(x), self.right(x, gain)


@pytest.mark.parametrize("order", ["skipped first", "skipped last"])
@pytest.mark.parametrize("always", [False, True])
def test_several_optimizers_are_judged_each_by_its_own_skips(order: str, always: bool) -> None:
    torch.manual_seed(0)
    net = Two()
    optimizers = [torch.optim.SGD(net.left.parameters(), lr=0.001), torch.optim.SGD(net.right.parameters(), lr=0.001)]
    if order == "skipped first":
        optimizers.reverse()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4)
    findings = []
    scope = numscope.watch(net, alerts={"scale falls": {"finding": 3}})
    for step, x in enumerate(batches(7)):
        for optimizer in optimizers:
            optimizer.zero_grad()
        left, right = net(x, 6e7 if (always and step) or step == 1 else 1.0)
        scaler.scale(left).backward(retain_graph=True)
        scaler.scale(right).backward()
        try:
            for optimizer in optimizers:
                scaler.step(optimizer)
        except numscope.NonFiniteError as error:
            findings.append((step, error.finding.kind.value))
            break
        scaler.update()
    scope.close()
    assert findings == ([(3, "scaler_skips")] if always else [])
    assert [step for step, _ in scope.events] == ([1, 2, 3] if always else [1])


def test_nan_loss_with_finite_gradients_is_a_finding_under_a_scaler() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4)
    numscope.watch(net)
    loss = net(batches(1)[0])
    loss = loss + torch.log(-loss.detach())  # in the loss
    scaler.scale(loss).backward()
    with pytest.raises(numscope.NonFiniteError) as caught:
        scaler.step(optimizer)
    assert caught.value.finding.culprit is not None
    assert caught.value.finding.culprit.line == line_of("in the loss")


def test_disabled_scaler_is_as_none() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    numscope.watch(net)
    with pytest.raises(numscope.NonFiniteError) as caught:
        train(net, optimizer, torch.amp.GradScaler("cpu", enabled=False), 4, lambda step: float("inf") if step == 2 else 1.0)
    assert caught.value.finding.step == 2


def test_on_or_off_a_scaled_training_is_bitwise_the_same() -> None:
    results = []
    for watched in (True, False):
        net = model()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.001)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=3)
        scope = numscope.watch(net) if watched else None
        scales = train(net, optimizer, scaler, 12)
        if scope is not None:
            scope.close()
        results.append((scales, [p.detach().clone() for p in net.parameters()]))
    assert results[0][0] == results[1][0]
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], results[1][1], strict=True))


def test_accelerates_wrapped_optimizer_is_found() -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(mixed_precision="no", cpu=True)
    net = model()
    net, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=0.001))
    with numscope.watch(net, on_nonfinite="warn") as scope:
        for step, x in enumerate(batches(6)):
            with accelerator.accumulate(net):
                optimizer.zero_grad()
                accelerator.backward(net(x, float("inf") if step == 3 else 1.0))
                optimizer.step()
                assert len(scope.findings) == (step >= 3)
    assert scope.step_number == 6 and [f.step for f in scope.findings] == [3]


def test_scale_that_only_falls_from_its_start_is_no_finding() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    with numscope.watch(net, alerts={"scale falls": {"finding": 3}}) as scope:
        scales = train(net, optimizer, torch.amp.GradScaler("cpu", init_scale=2.0**40), 40)
    assert len(scope.events) > 10 and scope.findings == [] and scales[-1] < 2.0**30


def test_forward_that_overflows_at_any_scale_is_a_finding_before_the_search_is_over() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    numscope.watch(net, alerts={"scale falls": {"finding": 3}})
    with pytest.raises(numscope.NonFiniteError) as caught:
        train(net, optimizer, torch.amp.GradScaler("cpu", init_scale=2.0**4), 20, lambda step: 6e7)
    assert (caught.value.finding.kind.value, caught.value.finding.step) == ("scaler_skips", 2)
