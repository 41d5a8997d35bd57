"""Shared modules, tied weights, odd outputs, several models, evaluations: the right module, the right step, the right model."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import numscope
from numscope.records.errors import NonFiniteError
from numscope.records.finding import Finding, Kind, Reason
from numscope.records.site import Phase
from tests.faults.planting import Training, found, quiet, train, watched
from tests.tape import line_of


def fault_line(marker: str) -> tuple[str, int]:
    return __file__, line_of(marker, __file__)


def at(finding: Finding) -> tuple[str, int]:
    assert finding.culprit is not None, finding.headline()
    return finding.culprit.file, finding.culprit.line


def trained(model: nn.Module, forward: Callable[[Tensor], Tensor] | None = None, width: int = 4) -> Callable[[], Training]:
    run = forward or model
    return lambda: train(model, lambda i: run(torch.randn(3, width)).square().mean())


class Log(nn.Module):
    """Bad below zero."""

    def forward(self, x: Tensor) -> Tensor:
        return x.log()  # log module


class Called(nn.Module):
    """Calls one module several times."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.log(x.abs() + 1)
        y = y + self.log(x.abs() + 2)
        y = y + self.log(self.head(y) - 100)  # third call
        return y


@pytest.mark.parametrize("level", ["modules", "sentinel"])
def test_fault_in_a_module_s_third_call_is_found_and_the_caller_is_on_the_stack(level: str) -> None:
    finding = found(trained(Called()), level=level)
    assert at(finding) == fault_line("log module")
    culprit = finding.culprit
    assert culprit is not None and culprit.module == "log" and culprit.reason == Reason.DOMAIN
    assert fault_line("third call") in [(file, line) for file, line, _, _ in culprit.stack]
    if level == "modules":
        assert (finding.site.module, finding.site.slot) == ("log", "output")
        assert [f.module for f in finding.frames].count("log") == 3


def test_module_under_two_names_is_named_by_its_first() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 4)
            self.first = nn.ModuleDict({"log": Log()})
            self.second = nn.ModuleList([self.first["log"]])

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.second[0](self.head(x) - 100)
            return y

    finding = found(trained(Shared()))
    assert at(finding) == fault_line("log module")
    assert finding.culprit is not None and finding.culprit.module == finding.site.module == "first.log"


def test_tied_weight_that_is_bad_from_an_update_is_named_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(6, 4)
            self.head = nn.Linear(4, 6, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids: Tensor) -> Tensor:
            y: Tensor = self.head(self.embed(ids))
            return y

    def plant() -> Training:
        model = Tied()

        def loss_of(i: int) -> Tensor:
            if i == 2:
                with torch.no_grad():
                    model.embed.weight[1, 1] = float("nan")
            return F.cross_entropy(model(torch.tensor([0, 1, 2])), torch.tensor([1, 2, 3]))

        return train(model, loss_of)

    finding = found(plant)
    assert finding.step == 2
    assert (finding.site.module, finding.site.slot) == ("embed", "weight")
    culprit = finding.culprit
    assert culprit is not None and culprit.reason == Reason.BAD_PARAMETER
    assert "embed.weight" in culprit.detail


@pytest.mark.parametrize("kind", ["keywords", "method", "dict", "dataclass", "nested", "no parameters inside"])
def test_calls_and_outputs_of_any_kind(kind: str) -> None:
    @dataclass
    class Output:
        hidden: Tensor
        extra: tuple[Tensor, ...] = ()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.log = nn.Linear(4, 4), Log()
            self.scale = nn.Parameter(torch.ones(()))

        def encode(self, x: Tensor) -> Tensor:
            y: Tensor = self.log(self.stem(x) - 100)
            return y

        def forward(self, x: Tensor) -> Any:
            if kind == "no parameters inside":
                return self.log(x - 100) * self.scale
            y = self.log(self.stem(x) - 100)
            return {
                "dict": {"loss": y.sum(), "logits": y},
                "dataclass": Output(x, (y,)),
                "nested": [(x, {"deep": [y]})],
            }.get(kind, y)

    model = Model()
    pick: dict[str, Callable[[Tensor], Tensor]] = {
        "keywords": lambda x: model(x=x),
        "method": model.encode,
        "dict": lambda x: model(x)["logits"],
        "dataclass": lambda x: model(x).extra[0],
        "nested": lambda x: model(x)[0][1]["deep"][0],
        "no parameters inside": lambda x: model(x),
    }
    finding = found(trained(model, pick[kind]))
    assert at(finding) == fault_line("log module")
    assert finding.culprit is not None and finding.culprit.module == "log"
    assert finding.site.module == "log"


class LanguageModel(nn.Module):
    """Returns its logits beside the loss, which alone gets a gradient; as in nanoGPT."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.temperature = nn.Linear(4, 6), 1.0

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logits = (self.head(x) * self.temperature) / self.temperature  # heated
        return logits, F.cross_entropy(logits, y)


@pytest.mark.parametrize(
    ("way", "backend"),
    [("eager", ""), *itertools.product(("compiled before", "compiled after", "method"), ("aot_eager",)), ("compiled before", "inductor")],
)
def test_model_one_of_whose_outputs_gets_no_gradient_is_watched(way: str, backend: str) -> None:
    model = LanguageModel()
    compiled: Callable[[], Any] = lambda: torch.compile(model, backend=backend, dynamic=True)  # noqa: E731
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    call: Any = compiled() if way == "compiled before" else model
    if way == "method":
        model.compile(backend=backend, dynamic=True)
    with pytest.raises(NonFiniteError) as caught, quiet(), numscope.watch(call) as scope:
        if way == "compiled after":
            call = compiled()
        for i in range(5):
            model.temperature = 0.0 if i >= 3 else 1.0
            _, loss = call(torch.randn(3, 4), torch.tensor([0, 1, 2]))
            loss.backward()
            optimizer.step()
    assert i == 3 and not scope.contained
    assert at(caught.value.finding) == fault_line("heated")
    assert caught.value.finding.site.slot.startswith("output")


def test_module_one_of_whose_outputs_gets_no_gradient_is_watched() -> None:
    """Of one autograd node with several outputs: hooks on those without a gradient are called with None."""

    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return self.body(x).unbind()

    model = nn.Sequential(Halves())
    finding = found(trained(model, lambda x: model(x)[1].add(-100).log()))  # one half
    assert at(finding) == fault_line("one half")


def test_bad_batch_is_named_by_its_argument() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def plant() -> Training:
        def loss_of(i: int) -> Tensor:
            x = torch.randn(3, 4)
            if i == 2:
                x[1, 2] = float("nan")
            return model(x).square().mean()

        return train(model, loss_of)

    finding = found(plant)
    culprit = finding.culprit
    assert culprit is not None
    assert (culprit.reason, culprit.module, finding.step) == (Reason.BAD_INPUT, "0", 2)
    assert culprit.detail == "input[0] held 1 nan of 12 elements before any operation."
    assert (finding.site.module, finding.site.slot) == ("0", "input[0]")


def test_bad_target_is_named_where_it_is_made() -> None:
    model = nn.Linear(4, 2)

    def plant() -> Training:
        def loss_of(i: int) -> Tensor:
            target = torch.full((3, 2), float("nan") if i else 1.0)  # bad target
            return F.mse_loss(model(torch.randn(3, 4)), target)

        return train(model, loss_of)

    finding = found(plant)
    assert at(finding) == fault_line("bad target")
    assert finding.culprit is not None and finding.culprit.reason == Reason.UNKNOWN  # written on purpose
    assert finding.culprit.phase is Phase.SCRIPT and finding.step == 1


def test_second_epoch_only() -> None:
    class Schedule(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 4)
            self.temperature = 1.0

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.head(x) / self.temperature  # cooled down
            return y

    def plant() -> Training:
        model = Schedule()

        def loss_of(i: int) -> Tensor:
            model.temperature = 1.0 if i < 7 else 0.0
            return model(torch.randn(3, 4)).square().mean()

        training = train(model, loss_of)
        training.steps = 10
        return training

    finding = found(plant)
    assert at(finding) == fault_line("cooled down")
    assert finding.step == finding.batch == 7


def test_gradient_accumulation_names_the_micro_batch() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Log())

    def plant() -> Training:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        with torch.no_grad():
            model[0].bias.fill_(100)

        def step(i: int) -> None:
            optimizer.zero_grad()
            for micro in range(4):
                shift = -1e4 if (i, micro) == (1, 2) else 0.0
                model(torch.randn(3, 4) + shift).mean().backward()
            optimizer.step()

        with torch.no_grad():
            model[0].weight.abs_()
        return Training(model, step)

    finding = found(plant)
    assert at(finding) == fault_line("log module")
    assert (finding.step, finding.batch) == (1, 6)


# ---- several models


class Player(nn.Module):
    """A generator or a discriminator."""

    def __init__(self, faulty: bool) -> None:
        super().__init__()
        self.body, self.faulty = nn.Linear(4, 4), faulty

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        if self.faulty:
            y = y / (y - y)  # player
        return y


@pytest.mark.parametrize("guilty", ["generator", "discriminator"])
def test_of_a_gan_the_player_at_fault_is_named(guilty: str) -> None:
    class Generator(Player):
        pass

    class Discriminator(Player):
        pass

    torch.manual_seed(0)
    generator, discriminator = Generator(False), Discriminator(False)
    opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
    opt_d = torch.optim.Adam(discriminator.parameters(), lr=1e-3)

    def play(i: int) -> None:
        opt_d.zero_grad()
        fake = generator(torch.randn(3, 4)).detach()
        (discriminator(torch.randn(3, 4)).mean() - discriminator(fake).mean()).backward()
        opt_d.step()
        opt_g.zero_grad()
        if i == 1:  # in the generator's own step
            (generator if guilty == "generator" else discriminator).faulty = True
        (-discriminator(generator(torch.randn(3, 4))).mean()).backward()
        opt_g.step()

    with pytest.raises(NonFiniteError) as caught, quiet(), numscope.watch(generator), numscope.watch(discriminator):
        for i in range(3):
            play(i)
    finding = caught.value.finding
    assert finding.model == guilty.capitalize()
    assert at(finding) == fault_line("player")


@pytest.mark.parametrize("guilty", ["teacher", "student"])
def test_of_teacher_and_student_the_one_at_fault_is_named(guilty: str) -> None:
    class Teacher(Player):
        pass

    class Student(Player):
        pass

    torch.manual_seed(0)
    teacher, student = Teacher(False), Student(False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    with pytest.raises(NonFiniteError) as caught, quiet(), numscope.watch(teacher), numscope.watch(student):
        for i in range(3):
            (teacher if guilty == "teacher" else student).faulty = i == 1
            x = torch.randn(3, 4)
            with torch.no_grad():
                wanted = teacher(x)
            optimizer.zero_grad()
            F.mse_loss(student(x), wanted).backward()
            optimizer.step()
    finding = caught.value.finding
    assert finding.model == guilty.capitalize()
    assert at(finding) == fault_line("player")


def test_teacher_that_is_not_watched_shows_as_bad_target() -> None:
    student = nn.Linear(4, 4)
    teacher = Player(True)

    def plant() -> Training:
        def loss_of(i: int) -> Tensor:
            x = torch.randn(3, 4)
            with torch.no_grad():
                wanted = teacher(x)
            return F.mse_loss(student(x), wanted)  # distillation

        return train(student, loss_of)

    finding = found(plant)
    assert at(finding) == fault_line("distillation")
    assert finding.culprit is not None and finding.culprit.reason == Reason.BAD_INPUT


# ---- evaluation


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_bad_output_of_an_evaluation_is_noted_with_its_batch_and_module(mode: Callable[[], Any]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), Log())
    with torch.no_grad():
        model[0].bias.fill_(100)

    def plant() -> Training:
        def step(i: int) -> None:
            with mode():
                model(torch.randn(3, 4) - (1e4 if i == 2 else 0)).sum()

        with torch.no_grad():
            model[0].weight.abs_()
        return Training(model, step, steps=4)

    scope = watched(plant)
    (note,) = scope.contained
    assert scope.findings == [] and note.contained and at(note) == fault_line("log module")
    assert (note.batch, note.kind, note.phase) == (2, Kind.NAN, Phase.FORWARD)
    assert note.culprit is not None and note.culprit.module == "1"


def test_evaluation_between_steps_does_not_hide_the_step_s_fault() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Log())

    def plant() -> Training:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        with torch.no_grad():
            model[0].weight.abs_()
            model[0].bias.fill_(100)

        def step(i: int) -> None:
            optimizer.zero_grad()
            model(torch.randn(3, 4) - (1e4 if i == 1 else 0)).mean().backward()
            optimizer.step()
            with torch.no_grad():
                model(torch.randn(3, 4))

        return Training(model, step)

    finding = found(plant)
    assert at(finding) == fault_line("log module")
    assert (finding.step, finding.batch) == (1, 2)


# ---- models of torch's own modules only


@pytest.mark.parametrize("kind", ["weight", "input"])
def test_model_without_a_line_of_the_user_s_is_named_by_the_line_that_calls_it(kind: str) -> None:
    model = nn.LSTM(4, 4, batch_first=True)

    def plant() -> Training:
        def loss_of(i: int) -> Tensor:
            x = torch.randn(2, 5, 4)
            if i == 1:
                with torch.no_grad():
                    (x if kind == "input" else model.weight_hh_l0)[0, 0] = float("nan")
            states, _ = model(x)  # calls the model
            return states.square().mean()

        return train(model, loss_of)

    finding = found(plant)
    assert at(finding) == fault_line("calls the model")
    culprit = finding.culprit
    assert culprit is not None and culprit.reason == (Reason.BAD_INPUT if kind == "input" else Reason.BAD_PARAMETER)


def test_gradients_spoiled_after_backward_are_named_where_they_were() -> None:
    model = nn.Linear(4, 4)

    def plant() -> Training:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(i: int) -> None:
            optimizer.zero_grad()
            model(torch.randn(3, 4)).square().mean().backward()
            for p in model.parameters():
                assert p.grad is not None
                p.grad.div_(float(i != 1))  # an own way of clipping
            optimizer.step()

        return Training(model, step)

    finding = found(plant)
    assert (finding.step, finding.site.slot, finding.phase) == (1, "grad weight", Phase.BACKWARD)
    assert at(finding) == fault_line("an own way of clipping")
    assert finding.culprit is not None and finding.culprit.reason is Reason.DIVISION_BY_ZERO


def test_normalized_weight_of_zeros_is_named() -> None:
    model = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))

    def plant() -> Training:
        def loss_of(i: int) -> Tensor:
            if i == 1:
                with torch.no_grad():
                    model.parametrizations.weight.original1.zero_()
            return model(torch.randn(3, 4)).mean()  # normalized weight

        return train(model, loss_of)

    finding = found(plant)
    assert at(finding) == fault_line("normalized weight")
    culprit = finding.culprit
    assert culprit is not None and (culprit.reason, culprit.module) == (Reason.DIVISION_BY_ZERO, "parametrizations.weight.0")
