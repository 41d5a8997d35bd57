"""What a script computes before it trains, when no module and no optimizer is there: data, weights and buffers have their lines."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import numscope
from numscope.config.options import WatchOptions
from numscope.records.errors import NonFiniteError
from numscope.records.finding import Finding, Reason
from numscope.records.site import Phase
from numscope.replay import outside
from numscope.scope.autowatch import AutoWatch
from tests.faults.planting import marked_line

Made = Callable[[], tuple[nn.Module, Tensor]]


def found(script: Callable[[], object]) -> Finding:
    with pytest.raises(NonFiniteError) as raised, AutoWatch(WatchOptions()):
        script()
    return raised.value.finding


def training(model: nn.Module, x: Tensor, num_steps: int = 3) -> list[float]:
    optimizer, losses = torch.optim.Adam(model.parameters()), []
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def degrees_to_the_minus_half() -> tuple[nn.Module, Tensor]:
    degrees = torch.tensor([1.0, 2.0, 0.0, 3.0])
    scale = degrees.pow(-0.5)  # FAULT
    return linear(), torch.ones(6, 4) * (scale * (degrees > 0))


def log_of_a_silent_spectrum() -> tuple[nn.Module, Tensor]:
    spectrum = torch.linspace(-1, 1, 24).view(6, 4).clamp_min(0)
    x = torch.log10(spectrum)  # FAULT
    return linear(), (x - x.mean()) / x.std()


class Schedule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        kept = torch.cumprod(1 - torch.tensor([0.1, 0.5, 1.2, 0.9]), 0)
        self.register_buffer("root", kept.sqrt())  # FAULT
        self.net = linear()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.net(x * self.get_buffer("root"))
        return y


def buffer_of_a_negative_root() -> tuple[nn.Module, Tensor]:
    return Schedule(), torch.ones(6, 4)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = linear()
        fan = sum(p.numel() for p in self.net.parameters()) - 49
        self.scale = nn.Parameter(torch.ones(4) / torch.tensor(float(fan)))  # FAULT

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.net(x * self.scale)
        return y


def weight_divided_by_no_fan() -> tuple[nn.Module, Tensor]:
    return Scaled(), torch.ones(6, 4)


MADE: dict[Made, tuple[str, Reason]] = {
    degrees_to_the_minus_half: ("aten.pow", Reason.DIVISION_BY_ZERO),
    log_of_a_silent_spectrum: ("aten.log10", Reason.DOMAIN),
    buffer_of_a_negative_root: ("aten.sqrt", Reason.DOMAIN),
    weight_divided_by_no_fan: ("aten.div", Reason.DIVISION_BY_ZERO),
}


@pytest.mark.parametrize(
    ("made", "before"),
    [*((made, 0) for made in MADE), *((made, 1500) for made in MADE if made is not weight_divided_by_no_fan)],  # then by tensor, not memory
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_was_made_before_the_first_module_has_its_line(made: Made, before: int) -> None:
    def script() -> None:
        x = torch.ones(3)
        for _ in range(before):
            x = x * 1.0
        training(*made())

    finding = found(script)
    culprit = finding.culprit
    assert culprit is not None, finding.replay
    source = Schedule if made is buffer_of_a_negative_root else Scaled if made is weight_divided_by_no_fan else made
    assert (culprit.op, culprit.reason, culprit.phase) == (*MADE[made], Phase.SCRIPT)
    assert (culprit.file, culprit.line, finding.step) == (*marked_line(source), 0)


def test_memory_that_was_never_written_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Prompted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.prompt = nn.Parameter(torch.empty(4))  # FAULT
            self.prompt.data.numpy()[:] = float("nan")  # as it may hold
            self.net = linear()

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.net(x + self.prompt)
            return y

    culprit = found(lambda: training(Prompted(), torch.ones(6, 4))).culprit
    assert culprit is not None
    assert (culprit.op, culprit.reason) == ("aten.empty", Reason.UNINITIALIZED)
    assert (culprit.file, culprit.line) == marked_line(Prompted)


class Masked(nn.Module):
    """A mask by log(0), and the inverse of a frequency that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.net = linear()
        self.register_buffer("mask", torch.log(torch.tril(torch.ones(4, 4))))
        self.register_buffer("inverse", 1 / torch.arange(4.0))

    def forward(self, x: Tensor) -> Tensor:
        weights = F.softmax(x.unsqueeze(1) * x.unsqueeze(2) + self.get_buffer("mask"), -1)
        y: Tensor = self.net((weights @ x.unsqueeze(-1)).squeeze(-1))
        return y


def test_infinite_buffers_that_harm_nothing_are_silent() -> None:
    with AutoWatch(WatchOptions()) as watch:
        assert all(loss == loss for loss in training(Masked(), torch.linspace(-1, 1, 24).view(6, 4)))
        findings = [finding for scope in watch.scopes for finding in scope.findings]
    assert not findings


def test_script_s_values_are_those_without_a_watch() -> None:
    def values() -> list[float]:
        torch.manual_seed(3)
        data = torch.randn(6, 4).exp().cumsum(0)
        data[2] = data[1].log()
        return training(Masked(), data)

    bare = values()
    with AutoWatch(WatchOptions()):
        assert values() == bare


def test_long_preparation_leaves_the_training_recorded() -> None:
    """Of a stretch as long as this nothing is written down any more; an optimizer begins a new one."""

    def script() -> None:
        x = torch.ones(4)
        for _ in range(6000):
            x = x * 1.0
        weight = torch.ones(4, requires_grad=True)
        optimizer = torch.optim.SGD([weight], 0.1)
        for step in range(3):
            optimizer.zero_grad()
            loss = (weight / (x * (step != 1))).sum()  # FAULT
            loss.backward()
            optimizer.step()

    culprit = found(script).culprit
    assert culprit is not None and (culprit.op, culprit.reason) == ("aten.div", Reason.DIVISION_BY_ZERO)
    assert (culprit.file, culprit.line) == marked_line(script)


def test_end_of_a_watch_without_training_leaves_nothing_on_torch_s_stacks() -> None:
    with AutoWatch(WatchOptions()):
        torch.ones(3) + 1
        assert outside.current().watching
    torch.ones(3) + 1
    assert not outside.current().watching
    assert not torch._C._len_torch_dispatch_stack() and not torch._C._len_torch_function_stack()


def standardized() -> tuple[nn.Module, Tensor]:
    raw = torch.randn(80, 6, 4)
    raw[70] = 2.5
    return linear(), (raw - raw.mean((1, 2), keepdim=True)) / raw.std((1, 2), keepdim=True)  # FAULT


@pytest.mark.parametrize("rows", [3500, 200], ids=["few rows", "the tape is begun anew on the way"])
def test_data_that_is_used_many_steps_later_has_the_line_that_made_it(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is a new tensor, put together in the step; what made it bad is long past."""
    monkeypatch.setattr(outside, "_MANY_ROWS", rows)

    def script() -> None:
        torch.manual_seed(0)
        model, data = standardized()
        order = data.reshape(40, 12, 4).clone()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for rows in order:
            optimizer.zero_grad()
            model(torch.stack([*rows])).square().mean().backward()
            optimizer.step()

    finding = found(script)
    culprit = finding.culprit
    assert culprit is not None, finding.replay
    assert (culprit.op, culprit.reason, finding.step) == ("aten.div", Reason.DIVISION_BY_ZERO, 35)
    assert (culprit.file, culprit.line) == marked_line(standardized)
    assert [operand.numbers.num_nonfinite for operand in culprit.inputs if operand.numbers is not None] == [0, 0]


def test_what_is_kept_is_bounded_and_goes_with_its_memory() -> None:
    with AutoWatch(WatchOptions()):
        model = linear()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        masks: list[Tensor] = []
        for step in range(100):
            optimizer.zero_grad()
            model(torch.ones(6, 4)).square().mean().backward()
            optimizer.step()
            masks.append(torch.log(torch.zeros(3)))
            if step == 90:
                assert len(outside.current().tape.kept) == 64
                masks.clear()
        assert 0 < len(outside.current().tape.kept) < 20  # of the last masks


def test_average_that_is_spoiled_in_a_thread_is_named_whatever_the_main_thread_had_recorded() -> None:
    """Each thread has a tape of its own, whose records count from 0."""
    found: list[Finding] = []

    def train(model: nn.Module) -> None:
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        average = [p.detach().clone() for p in model.parameters()]
        try:
            for step in range(4):
                optimizer.zero_grad()
                model(torch.ones(6, 4)).square().mean().backward()
                optimizer.step()
                with torch.no_grad():
                    for i, p in enumerate(model.parameters()):
                        average[i] = (0.9 * average[i] + 0.1 * p) / torch.tensor(float(step != 1))  # FAULT
        except NonFiniteError as error:
            found.append(error.finding)

    other, model = linear(), linear()
    with numscope.watch(other):
        training(other, torch.ones(6, 4), 200)
        assert outside.current().tape.num_records > 200
        scope = numscope.watch(model)
        thread = threading.Thread(target=train, args=(model,))
        thread.start()
        thread.join()
        scope.close()
    (finding,) = found
    assert finding.culprit is not None and finding.culprit.op == "aten.div"
    assert (finding.culprit.file, finding.culprit.line) == marked_line(train)
