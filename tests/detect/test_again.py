"""A step that is done again: healthy ones come out the same, and what does not is named with its operation, line and cause."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import numscope
from numscope.detect import experiments
from numscope.detect.experiments import HARDWARE, NOT_THE_SAME, ROUNDING, WRONG_GRADIENT
from numscope.detect.float64 import LOST, WRONG_RESULT
from numscope.records.errors import UsageError
from tests.distributed.ranks import RankPool
from tests.harm.test_models import TRAININGS, bare_notes, run_of
from tests.harm.training import assert_equal, noted

OURS = (HARDWARE, NOT_THE_SAME, WRONG_GRADIENT, WRONG_RESULT, LOST)


@pytest.mark.parametrize("training", TRAININGS)
def test_a_healthy_step_comes_out_the_same_and_training_is_bitwise_what_it_is_without(training: str) -> None:
    scopes: list[Any] = []

    @contextlib.contextmanager
    def watch(model: nn.Module) -> Iterator[Any]:
        with numscope.watch(model, check="again,gradients,float64:at=1") as scope:
            scopes.append(scope)
            yield scope

    assert_equal(noted(run_of(training, False), watch), bare_notes(training, False))
    assert [alert for scope in scopes for alert in scope.alerts if alert.rule in OURS] == []


class Net(nn.Module):
    """Two layers, with an operation of the test's in between."""

    def __init__(self, between: Any) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 1)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self, self.first(x).relu()))


def kept(net: Net, x: Tensor) -> Tensor:
    return x


class Flip(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Flips a bit of one element of an operation's first result, once."""

    def __init__(self, op: str, bit: int) -> None:
        super().__init__()
        self.op, self.bit, self.done = op, bit, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.done and func.__name__.partition(".")[0] == self.op:
            self.done = True
            where = result.flatten().abs().argmax()
            kind = torch.int32 if result.dtype is torch.float32 else torch.int16
            sign = kind is torch.int16 and self.bit == 15
            result.view(-1)[where : where + 1].view(kind).bitwise_xor_(-(1 << 15) if sign else 1 << self.bit)
        return result


def train(net: nn.Module, check: str | None, *, flipped: Flip | None = None, at: int = 4, steps: int = 8, **options: Any) -> Any:
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    dtype = next(net.parameters()).dtype
    with numscope.watch(net, check=check, **options) as scope:
        for step in range(steps):
            with flipped if flipped is not None and step == at else contextlib.nullcontext():
                net(torch.randn(16, 8, dtype=dtype)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return scope


def own(scope: Any) -> list[Any]:
    return [alert for alert in scope.alerts if alert.rule in OURS]


@pytest.mark.parametrize(
    ("op", "bit", "module", "phase", "in_place"),
    [
        ("addmm", 0, "first", "forward", False),
        ("addmm", 22, "first", "forward", True),
        ("relu", 9, "last", "forward", False),
        ("threshold_backward", 3, "first", "backward", True),
        ("sum", 5, "last", "backward", False),
    ],
)
def test_a_flipped_bit_is_suspected_hardware(
    op: str, bit: int, module: str, phase: str, in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_place:
        monkeypatch.setattr(experiments, "in_child", lambda *args, **options: None)
    torch.manual_seed(0)
    [alert] = own(train(Net(kept), "again:every=2", flipped=Flip(op, bit)))
    is_proved = bit >= ROUNDING  # one element, and no rounding
    assert (alert.rule, alert.layer, alert.step) == (HARDWARE if is_proved else NOT_THE_SAME, module, 4)
    assert alert.asks is not is_proved and "dcgmi" in alert.advice
    assert alert.evidence["op"] == f"aten.{op}" and f"aten.{op} ({phase}) at " in alert.text
    assert alert.evidence["line"].startswith(__file__)
    assert "rank 0; 2 steps after it were checked too: all the same." in alert.text and f" again: bit {bit})" in alert.text


@pytest.mark.parametrize("bit", (0, 6, 9, 15))
def test_each_bit_of_bfloat16_is_seen(bit: int) -> None:
    torch.manual_seed(0)
    [alert] = own(train(Net(kept).bfloat16(), "again:every=2", flipped=Flip("addmm", bit), on_nonfinite="warn"))
    assert alert.rule == (HARDWARE if bit >= ROUNDING else NOT_THE_SAME) and alert.layer == "first"


class Overflow(Flip):
    """Flips the exponent's highest bit of a number between 1 and 2, which is an infinity or a nan then."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.done and func.__name__.partition(".")[0] == self.op:
            flat = result.view(-1)
            for where in ((flat.abs() >= 1) & (flat.abs() < 2)).nonzero().flatten()[:1].tolist():
                flat[where : where + 1].view(torch.int32).bitwise_xor_(1 << 30)
                self.done = True
        return result


@pytest.mark.parametrize(
    ("op", "plan", "rule", "layer"),
    [
        ("addmm", "again:every=2", HARDWARE, "first"),
        ("relu", "again:every=2", HARDWARE, "last"),
        ("mm", "again:every=2", HARDWARE, "last"),  # the weight's gradient
        ("addmm", "again:at=1", NOT_THE_SAME, "first"),  # no sums were taken at step 4
        ("relu", "again:at=1", NOT_THE_SAME, "last"),
    ],
)
def test_a_step_that_is_left_out_is_done_again_and_a_flip_to_an_infinity_is_named(op: str, plan: str, rule: str, layer: str) -> None:
    torch.manual_seed(0)
    net = Net(kept)
    for linear in (net.first, net.last):
        linear.weight.data.mul_(3)
    scope = train(net, plan, flipped=Overflow(op, 30), on_nonfinite="skip")
    assert scope.events == [(4, "numscope left the step out: a gradient was not finite")] and scope.findings == []
    [alert] = own(scope)
    assert (alert.rule, alert.layer, alert.step, alert.evidence["op"]) == (rule, layer, 4, f"aten.{op}")
    assert ("bit 30" in alert.text) == (rule == HARDWARE)


def test_steps_that_are_left_out_for_what_the_model_computes_are_the_same_again_and_so_are_the_bits_of_the_run() -> None:
    def bad_at_each_third(net: Net, x: Tensor) -> Tensor:
        net.num = getattr(net, "num", -1) + 1  # type: ignore[assignment]
        return nn.functional.dropout(x) / (net.num % 3 != 2)

    def trained(check: str | None) -> tuple[Any, list[Tensor]]:
        torch.manual_seed(0)
        net = Net(bad_at_each_third)
        scope = train(net, check, on_nonfinite="skip")
        return scope, [*net.state_dict().values(), torch.get_rng_state()]

    (scope, bits), (_, bare) = trained("again:at=1"), trained(None)
    assert [step for step, _ in scope.events] == [2, 5] and own(scope) == []
    assert all(torch.equal(a, b) for a, b in zip(bits, bare, strict=True))


def test_a_step_that_differs_at_the_end_of_a_run_is_told_without_further_ones() -> None:
    [alert] = own(train(Net(kept), "again:every=2", flipped=Flip("addmm", 3), at=6, steps=7))
    assert alert.rule == HARDWARE and "no later step could be checked" in alert.text


@pytest.mark.parametrize(
    ("second", "rules"), [((10, "addmm", 9), [HARDWARE]), ((5, "addmm", 12), [HARDWARE]), ((5, "addmm", 0), [NOT_THE_SAME])]
)
def test_a_second_step_that_differs_is_no_accident_unless_one_bit_explains_it_too(second: tuple[int, str, int], rules: list[str]) -> None:
    torch.manual_seed(0)
    net, optimizer = Net(kept), None
    flips = {4: Flip("addmm", 9), second[0]: Flip(*second[1:])}
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    with numscope.watch(net, check="again:every=2") as scope:
        for step in range(14):
            with flips.get(step, contextlib.nullcontext()):
                net(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert [alert.rule for alert in own(scope)] == rules and own(scope)[0].step == 4
    if second == (5, "addmm", 12):
        assert "2 steps after it were checked too: 1 of their calls gave other bits, by one flipped bit each." in own(scope)[0].text


def test_a_step_within_the_backward_is_not_compared(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    net = Net(kept)
    optimizers = {p: torch.optim.SGD([p], 0.1) for p in net.parameters()}

    def step(parameter: Any) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for p in optimizers:
        p.register_post_accumulate_grad_hook(step)
    with numscope.watch(net, check="again,float64:every=1") as scope:
        for _ in range(4):
            net(torch.randn(16, 8)).square().mean().backward()
    assert own(scope) == [] and capfd.readouterr().err.endswith("checked: no step; each from the second on is due.\n")
    said = [record.message for record in caplog.records if "not checked in full" in record.message]
    assert any("weights have been written since the call began" in line for line in said)


def test_what_was_checked_is_said_at_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    train(Net(kept), "again,float64:at=2,4")
    train(Net(kept), "again", steps=1)
    said = [line for line in capfd.readouterr().err.splitlines() if ": checked: " in line]
    assert said == [
        "numscope: Net: checked: again at 2 steps, float64 at 2 steps.",
        "numscope: Net: checked: no step; the second and each 1,000th are due.",
    ]


GENERATOR, COUNT, NUMBERS = torch.Generator(), [0], random.Random(0)


def draws(net: Net, x: Tensor) -> Tensor:
    return x + torch.randn(x.shape, generator=GENERATOR)


def counts(net: Net, x: Tensor) -> Tensor:
    COUNT[0] += 1
    return x * (1 + COUNT[0])


def blank(net: Net, x: Tensor) -> Tensor:
    COUNT[0] += 1
    memory = torch.empty(8)
    memory.data.numpy()[:] = COUNT[0]  # as what was there before; no operation of torch's writes it
    return x + memory.clamp(-1e3, 1e3)


def outside(net: Net, x: Tensor) -> Tensor:
    return x + torch.tensor([NUMBERS.random()] * 8)


@pytest.mark.parametrize(
    ("between", "cause", "op", "at"),
    [(draws, "random", "randn", 1), (counts, "state", "mul", 2), (blank, "uninitialized", "clamp", 4), (outside, "state", "lift_fresh", 1)],
)
def test_what_is_not_reproducible_is_named_with_its_cause(between: Any, cause: str, op: str, at: int) -> None:
    [alert] = own(train(Net(between), "again:every=3"))
    assert (alert.rule, alert.step, alert.evidence["cause"]) == (NOT_THE_SAME, 1, cause)
    assert alert.evidence["op"] == f"aten.{op}" and alert.asks
    assert alert.evidence["line"] == f"{__file__}:{between.__code__.co_firstlineno + at}"


class Remembers(nn.Module):
    """Its state is its own: a number, a list, a hidden state."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(8, 8), nn.Linear(8, 1)
        self.calls, self.seen = 0, [0.0]
        self.state: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen.append(float(self.calls))
        state = self.cell(x, self.state)
        self.state = state.detach()
        return self.head(nn.functional.dropout(state, 0.5)) * self.calls + sum(self.seen)


def test_a_models_own_state_is_as_it_was() -> None:
    scope = train(Remembers(), "again:every=1")
    assert own(scope) == [] and scope.step_number == 8


def test_a_gradient_that_comes_in_other_strides_is_the_same() -> None:
    net = nn.Sequential(nn.Conv2d(8, 16, 2, stride=2), nn.Flatten(), nn.Linear(256, 1))
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    with numscope.watch(net, check="again:every=1") as scope:
        for _ in range(3):
            net(torch.randn(4, 8, 8, 8).to(memory_format=torch.channels_last)).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert own(scope) == [] and scope.step_number == 3


def test_micro_batches_are_checked_one_by_one() -> None:
    net, flip = Net(kept), Flip("threshold_backward", 4)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    with numscope.watch(net, check="again:every=2") as scope:
        for step in range(6):
            for batch in range(3):
                with flip if (step, batch) == (2, 1) else contextlib.nullcontext():
                    net(torch.randn(4, 8)).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    [alert] = own(scope)
    assert (alert.rule, alert.step, alert.layer) == (HARDWARE, 2, "first")


def test_steps_are_those_that_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    original = experiments.compare

    def noting(probe: Any, buffers: Any, journal: Any, calls: Any, gradients: Any) -> Any:
        seen.append(calls[0].index)
        checked = original(probe, buffers, journal, calls, gradients)
        assert checked.num_compared > 10 and len(gradients) == 4
        return checked

    monkeypatch.setattr(experiments, "compare", noting)
    monkeypatch.setattr(experiments, "in_child", lambda *args, **options: None)
    check = "again:at=0,3,5"
    train(Net(kept), check)
    train(Net(kept), None, config={"check": check})
    train(Net(kept), "again:at=2", config={"check": check})
    assert seen == [0, 3, 5, 0, 3, 5, 2]


def test_a_check_that_takes_long_says_so_once(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    train(Net(kept), "again,float64:at=2")
    assert "is being checked" not in capfd.readouterr().err
    monkeypatch.setattr("numscope.replay.fork.PATIENCE_SECONDS", -1)
    train(Net(kept), "again,float64:at=2")
    said = [line for line in capfd.readouterr().err.splitlines() if "is being checked" in line]
    assert said == [
        f"numscope: step 2 is being checked ({kind}), at most 10 minutes; then the run goes on." for kind in ("again", "float64")
    ]


def test_an_error_of_ours_ends_the_checks_and_nothing_else(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fails(*args: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(experiments, "compare", fails)
    monkeypatch.setattr(experiments, "in_child", lambda work, *args, **options: work())
    scope = train(Net(kept), "again:every=1")
    assert scope.step_number == 8 and not scope.findings
    assert [record.message for record in caplog.records if "checked any more" in record.message] == [
        "numscope: no step is checked any more: RuntimeError: ours"
    ]


def test_a_call_that_cant_be_done_again_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    class Spoils(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(8, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = self.head(x.clone())
            with torch.no_grad():
                x.add_(1)
            return y

    train(Spoils(), "again:every=1")
    told = [record.message for record in caplog.records if "not checked in full" in record.message]
    assert told == [
        "numscope: step 1 was not checked in full: not reproduced: an argument of the model was changed in place after the call began."
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"check": "agian"},
            "check: got 'agian', expected one of again, rank, gradients, float64, eager, precision, capsule. Did you mean 'again'?",
        ),
        (
            {"check": 3},
            "check: got 3, expected text: again,rank,gradients,float64,eager,precision,capsule, with :every=N or :at=N,N behind it.",
        ),
        ({"check": "again:every=0"}, "check: got '0' for every, expected one whole number of at least 1."),
        (
            {"check": "again:now"},
            "check: got 'again:now', expected again,rank,gradients,float64,eager,precision,capsule, with :every=N or :at=N,N behind it.",
        ),
        (
            {"check": "again", "alerts": "off"},
            "check: got 'again', expected detection with level modules, and alerts, which say what comes of it. Leave the options out that "
            "switch one of them off.",
        ),
        (
            {"check": "again", "level": "sentinel"},
            "check: got 'again', expected detection with level modules, and alerts, which say what comes of it. Leave the options out that "
            "switch one of them off.",
        ),
    ],
)
def test_wrong_use_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        numscope.watch(nn.Linear(1, 1), **options)
    assert str(raised.value) == message


def ranked(rank: int, passes: int, watched: str) -> Any:
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(8, 1))
    ddp = nn.parallel.DistributedDataParallel(inner)
    model: Any = torch.compile(ddp, backend="eager") if watched == "compiled" else ddp
    torch.manual_seed(rank)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with numscope.watch(inner if watched == "inner" else model, check="again:every=2") as scope:
        for step in range(8):
            for number in range(passes):
                last = number == passes - 1
                flips = Flip("mm", 9) if (rank, step, number) == (1, 4, 0) and watched != "compiled" else contextlib.nullcontext()
                with contextlib.nullcontext() if last else ddp.no_sync(), flips:
                    model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return [(a.rule, a.layer, a.tensor, a.step, a.evidence["op"]) for a in own(scope)], [p._backward_hooks for p in model.parameters()]


@pytest.mark.parametrize(("passes", "watched"), [(2, "ddp"), (1, "inner"), (1, "compiled")])
def test_a_gradient_that_ranks_average_is_compared_as_it_was_before(passes: int, watched: str, ranks: RankPool) -> None:
    """What one rank's flipped bit makes of the average is the same on all ranks. No mode sees into compiled code: nothing flips there."""
    one, other = (told.value for told in ranks.run(ranked, passes, watched))
    assert one[0] == [] and not any(one[1] + other[1])
    assert other[0] == ([] if watched == "compiled" else [(HARDWARE, "0", "wgrad", 4, "aten.mm")])
