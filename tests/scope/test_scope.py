"""A scope's bookkeeping: steps and batches, what ends a step, closing, options."""

from __future__ import annotations

import dataclasses
import inspect
import json
import pickle
import typing
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.config.options import WatchOptions
from numscope.records.errors import AbortAfter, NonFiniteError, UsageError
from numscope.records.finding import Kind
from numscope.records.site import Phase
from tests.harm.training import assert_no_hooks, assert_nothing_left


@pytest.fixture(autouse=True)
def _clean() -> Any:
    yield
    assert_nothing_left()


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))


X = torch.ones(2, 4)


def backward(model: nn.Module, factor: float = 1.0) -> None:
    (model(X) * factor).sum().backward()


# ---- steps and batches


@pytest.mark.parametrize("level", ["modules", "sentinel"])
def test_step_ends_with_the_optimizers_and_counts_its_micro_batches(level: str) -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    with numscope.watch(model, level=level) as scope:
        for _ in range(3):
            for _ in range(2):
                backward(model)
                seen.append((scope.step_number, scope.batch))
            optimizer.step()
            optimizer.zero_grad()
    assert seen == [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6)]


@pytest.mark.parametrize("zero", ["before forward", "before backward", "after step"])
def test_place_of_zero_grad_changes_nothing(zero: str) -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model) as scope:
        for _ in range(3):
            if zero == "before forward":
                optimizer.zero_grad()
            loss = model(X).sum()
            if zero == "before backward":
                optimizer.zero_grad(set_to_none=False)
            loss.backward()
            optimizer.step()
            if zero == "after step":
                optimizer.zero_grad()
        assert scope.step_number == 3 and scope.batch == 3


def test_evaluation_between_steps_counts_batches_and_no_steps() -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model) as scope:
        backward(model)
        optimizer.step()
        with torch.no_grad():
            for _ in range(3):
                model(X)
        backward(model)
        assert scope.batch == 5 and scope.step_number == 1


def test_without_an_optimizer_the_next_forward_ends_the_step() -> None:
    model = small()
    numbers = []
    with numscope.watch(model) as scope:
        for _ in range(3):
            backward(model)
            numbers.append(scope.step_number)
            for p in model.parameters():
                p.data -= 0.1 * p.grad
                p.grad = None
    assert numbers == [0, 1, 2]


def test_optimizer_that_has_not_stepped_yet_leaves_micro_batches_in_one_step() -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model) as scope:
        for _ in range(5):
            backward(model)
        assert scope.step_number == 0
        optimizer.step()
        backward(model)
        assert scope.step_number == 1


def test_optimizer_made_after_the_watch_is_found() -> None:
    model = small()
    with numscope.watch(model) as scope:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            backward(model)
            optimizer.step()
        assert scope.step_number == 3


def test_two_optimizers_of_one_step_end_one_step() -> None:
    model = small()
    optimizers = [torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.Adam(model[2].parameters())]
    with numscope.watch(model) as scope:
        for _ in range(3):
            backward(model)
            for optimizer in optimizers:
                optimizer.step()
        assert scope.step_number == 3


def test_another_models_optimizer_ends_no_step() -> None:
    model, other = small(), small()
    mine, theirs = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(other.parameters(), lr=0.1)
    with numscope.watch(model) as scope:
        for _ in range(3):
            backward(model)
            backward(other)
            theirs.step()
        assert scope.step_number == 0
        mine.step()
        backward(model)
        assert scope.step_number == 1


def test_step_says_that_one_is_over() -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # found, and never stepped
    with numscope.watch(model, optimizer=optimizer) as scope:
        for i in range(3):
            backward(model)
            scope.step()
            assert scope.step_number == i + 1
        scope.step()  # nothing happened since, and the user counts it all the same
        assert scope.step_number == 4


def test_step_finds_what_is_bad(capfd: Any) -> None:
    model = small()
    with numscope.watch(model) as scope:
        backward(model, float("nan"))
        with pytest.raises(NonFiniteError) as caught:
            scope.step()
    assert caught.value.finding.phase is Phase.LOSS


def test_step_that_raised_is_no_step_and_the_next_one_is_judged_anew(capfd: Any) -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model) as scope:
        for i in range(6):
            optimizer.zero_grad()
            backward(model, float("inf") if i % 2 else 1.0)
            if i % 2:
                with pytest.raises(NonFiniteError):
                    optimizer.step()
            else:
                optimizer.step()
        assert len(scope.findings) == 3
    assert all(p.isfinite().all() for p in model.parameters())


def test_skips_of_gradscaler_are_events_and_many_in_a_row_a_finding(capfd: Any) -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_interval=1000)
    with numscope.watch(model, on_nonfinite="warn", alerts={"scale falls": {"finding": 3}}) as scope:
        for i in range(6):
            optimizer.zero_grad()
            scaler.scale((model(X) * (1.0 if i == 0 else torch.inf)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            assert len(scope.events) == i
            assert len(scope.findings) == (1 if i >= 3 else 0), i
        assert scope.findings[0].kind is Kind.SCALER_SKIPS


# ---- closing


def test_closing_twice_does_no_harm() -> None:
    model = small()
    scope = numscope.watch(model)
    backward(model)
    scope.close()
    batch = scope.batch
    scope.close()
    backward(model)
    scope.step()
    assert scope.closed and scope.batch == batch
    assert_no_hooks(model)


def test_context_manager_gives_the_scope_and_closes_it() -> None:
    model = small()
    with numscope.watch(model) as scope:
        assert isinstance(scope, numscope.Scope) and not scope.closed
    assert scope.closed
    assert_no_hooks(model)


def test_last_step_is_judged_when_the_scope_closes(capfd: Any) -> None:
    model = small()
    with pytest.raises(NonFiniteError), numscope.watch(model):
        backward(model, float("nan"))


def test_exception_on_its_way_stands_and_what_is_bad_by_then_is_reported(capfd: Any) -> None:
    model = small()
    with pytest.raises(KeyError), numscope.watch(model) as scope:
        backward(model, float("nan"))
        raise KeyError("mine")
    (finding,) = scope.findings
    assert scope.closed and finding.note == "the script ended with KeyError: 'mine'"
    assert "numscope: nan" in capfd.readouterr().err


def test_files_are_written_when_the_scope_closes(tmp_path: Any, capfd: Any) -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model, on_nonfinite="warn", json=str(tmp_path / "found.json"), log_dir=str(tmp_path / "logs")) as scope:
        backward(model, float("nan"))
        optimizer.step()
    told = json.loads((tmp_path / "found.json").read_text())
    assert len(told["findings"]) == len(scope.findings) == 1
    expected = ["findings-rank0.json", "ranks", "report-rank0.txt", "resume", "run.json", "statistics"]
    assert sorted(p.name for p in (tmp_path / "logs").iterdir()) == expected


def test_folder_that_can_not_be_written_is_said_and_stops_nothing(tmp_path: Any, caplog: Any) -> None:
    (tmp_path / "file").write_text("")
    with numscope.watch(small(), json=str(tmp_path / "file" / "found.json")):
        pass
    assert any(f"could not write the findings to {tmp_path / 'file' / 'found.json'}: " in r.message for r in caplog.records)


# ---- abort and trace


@pytest.mark.parametrize("options", [{}, {"level": "sentinel"}, {"on_nonfinite": None}, {"trace": (0,)}])
def test_abort_after_stops_after_that_batch(options: dict[str, Any], capsys: Any) -> None:
    model = small()
    ran = []
    with pytest.raises(AbortAfter, match="stopped after batch 2") as caught, numscope.watch(model, abort_after=2, **options):
        for i in range(5):
            ran.append(i)
            backward(model)
    assert ran == [0, 1, 2] and caught.value.batch == 2 and caught.value.exit_status == 0
    assert_no_hooks(model)


def test_traced_batches_are_printed_in_the_guides_format(capsys: Any) -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Identity())
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, -0.5], [0.25, 2.0]]))
    with numscope.watch(model, trace=(1, 2)):
        for i in range(4):
            model(torch.tensor([[float(i), 1.0]]))
    text = capsys.readouterr().out
    assert text.split("*** Starting batch number=")[1:] == [
        """1 ***
abs min  abs max  metadata
                  0 Linear
2.50e-01 2.00e+00 weight
1.00e+00 1.00e+00 input[0]
5.00e-01 2.25e+00 output
                  1 Identity
5.00e-01 2.25e+00 input[0]
5.00e-01 2.25e+00 output
                   Sequential
1.00e+00 1.00e+00 input[0]
5.00e-01 2.25e+00 output


                  """,
        """2 ***
abs min  abs max  metadata
                  0 Linear
2.50e-01 2.00e+00 weight
1.00e+00 2.00e+00 input[0]
1.50e+00 2.50e+00 output
                  1 Identity
1.50e+00 2.50e+00 input[0]
1.50e+00 2.50e+00 output
                   Sequential
1.00e+00 2.00e+00 input[0]
1.50e+00 2.50e+00 output
""",
    ]


def test_batches_off_the_trace_run_bare_modules(capsys: Any) -> None:
    model = small()
    with numscope.watch(model, trace=(2,)):
        for _ in range(2):
            model(X)
            assert not model[0]._forward_hooks
        model(X)
        model(X)
        assert not model[0]._forward_hooks


def test_detection_is_off_while_tracing_and_where_it_is_not_asked_for(capsys: Any) -> None:
    for options in ({"trace": (0,)}, {"on_nonfinite": None}):
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with numscope.watch(model, **options) as scope:
            backward(model, float("nan"))
            optimizer.step()
            assert not scope.findings


# ---- dead gradients, contained values


def test_gradients_that_are_all_zero_many_steps_in_a_row_are_told_once(capfd: Any) -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model, alerts={"dead gradients": {"finding": 3}}) as scope:
        for i in range(8):
            optimizer.zero_grad()
            backward(model, 0.0 if i else 1.0)
            optimizer.step()
    assert [(f.kind, f.step) for f in scope.findings] == [(Kind.DEAD_GRADIENTS, 3)]


def test_contained_value_is_noted_once_a_site() -> None:
    class Masking(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.masked_fill(torch.eye(2, dtype=torch.bool), -torch.inf)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.masking = nn.Linear(2, 2), Masking()

        def forward(self, x: Tensor) -> Tensor:
            return self.masking(self.layer(x)).softmax(-1)

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model) as scope:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 2)).pow(2).sum().backward()
            optimizer.step()
    assert not scope.findings
    assert [(f.site.module, f.site.slot, f.contained) for f in scope.contained] == [("masking", "output", True)]


def test_weight_that_was_bad_before_the_watch_is_no_news(capfd: Any) -> None:
    model = small()
    unused = nn.Parameter(torch.tensor([torch.inf]))
    model.register_parameter("unused", unused)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model) as scope:
        for _ in range(2):
            backward(model)
            optimizer.step()
    assert not scope.findings


# ---- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "module"}, "level: got 'module', expected one of 'modules', 'sentinel'. Did you mean 'modules'?"),
        ({"level": "xyz"}, "level: got 'xyz', expected one of 'modules', 'sentinel'."),
        (
            {"on_nonfinite": "rise"},
            "on_nonfinite: got 'rise', expected one of 'raise', 'warn', 'note', 'skip', 'heal', 'off'. Did you mean 'raise'?",
        ),
        ({"frames": 0}, "frames: got 0, expected a whole number of at least 1."),
        ({"frames": True}, "frames: got True, expected a whole number of at least 1."),
        ({"frames": 2.5}, "frames: got 2.5, expected a whole number of at least 1."),
        ({"trace": "149,150"}, "trace: got '149,150', expected batch numbers from 0, as in trace=(149, 150)."),
        ({"trace": 3}, "trace: got 3, expected batch numbers from 0, as in trace=(149, 150)."),
        ({"trace": [1, -2]}, "trace: got -2, expected a whole number of at least 0."),
        ({"abort_after": -1}, "abort_after: got -1, expected a whole number of at least 0."),
        (
            {"alerts": {"scale falls": {"finding": 0}}},
            "alerts: scale falls.finding: got 0, expected a whole number above 0 and below 1e+18.",
        ),
        ({"alerts": {"dead gradients": {"finding": "3"}}}, 'alerts: dead gradients.finding: got "3", expected a whole number.'),
    ],
    ids=str,
)
def test_wrong_option_is_refused_with_what_it_may_be(options: dict[str, Any], message: str) -> None:
    model = small()
    with pytest.raises(UsageError) as caught:
        numscope.watch(model, **options)
    assert str(caught.value) == message
    assert_no_hooks(model)


def test_watch_shows_all_its_options_with_their_defaults() -> None:
    shown = inspect.signature(numscope.watch).parameters
    options = {field.name: field.default for field in dataclasses.fields(WatchOptions)}
    assert {name: one.default for name, one in shown.items() if name not in ("model", "optimizer")} == options
    assert all(f"\n        {name}: " in str(numscope.watch.__doc__) for name in shown if name != "kwargs")
    hints = typing.get_type_hints(numscope.watch)
    assert all(hints[name] is not Any for name in shown)
    assert len([name for name in dir(numscope.Scope) if not name.startswith("_")]) <= 14


def test_words_of_one_meaning() -> None:
    assert WatchOptions(on_nonfinite="note") == WatchOptions(on_nonfinite="warn")
    assert WatchOptions(on_nonfinite="off") == WatchOptions(on_nonfinite=None)
    assert WatchOptions(alerts="warn").alert_plan() == WatchOptions(alerts="note").alert_plan()
    assert WatchOptions(alerts={"mode": "warn"}).alert_plan().mode == "note"


@pytest.mark.parametrize("what", [None, "model", nn.Linear, lambda x: x], ids=["None", "str", "class", "function"])
def test_what_is_no_model_is_refused(what: Any) -> None:
    with pytest.raises(UsageError, match=rf"^watch: got {type(what).__name__}, expected an nn\.Module\.$"):
        numscope.watch(what)


def test_what_a_scope_raises_survives_a_process_boundary(capfd: Any) -> None:
    model = small()
    with pytest.raises(NonFiniteError) as caught, numscope.watch(model):
        backward(model, float("nan"))
    for error in (AbortAfter(3), caught.value):
        copied = pickle.loads(pickle.dumps(error))
        assert type(copied) is type(error) and str(copied) == str(error)
    assert copied.finding == caught.value.finding


def test_ledgers_bytes_are_told() -> None:
    model = small()
    with numscope.watch(model) as scope:
        backward(model)
        assert scope._watch.nbytes == scope._watch._detection.evidence.journal.nbytes > 0
