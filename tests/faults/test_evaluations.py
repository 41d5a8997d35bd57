"""Calls without gradients: what is bad in their results is a note with its line, until it reaches training."""

from __future__ import annotations

import asyncio
import copy
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import numscope
from numscope.detect.evaluations import NEAR_STEPS
from numscope.records.errors import NonFiniteError
from numscope.records.finding import Finding, Reason
from numscope.scope.open_scopes import live
from tests.faults.planting import quiet
from tests.tape import line_of

INF = float("inf")


def fault_line(name: str) -> tuple[str, int]:
    return __file__, line_of(name, __file__)


def at(finding: Finding) -> tuple[str, int]:
    assert finding.culprit is not None, finding.headline()
    return finding.culprit.file, finding.culprit.line


class Net(nn.Module):
    """Finite for positive inputs, nan for negative ones."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)
        h = h * 0 + torch.log(x.mean())  # net
        y: Tensor = self.head(h)
        return y


GOOD, BAD = torch.ones(2, 4), -torch.ones(2, 4)


def step_of(model: nn.Module) -> Callable[[Tensor], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(x: Tensor, target: Tensor | float = 0.0) -> None:
        optimizer.zero_grad()
        (model(x) - target).square().mean().backward()
        optimizer.step()

    return step


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("level", ["modules", "sentinel"])
def test_bad_evaluation_between_steps_is_noted_once_with_its_line(mode: Callable[[], Any], level: Any, caplog: Any) -> None:
    model = Net()
    step = step_of(model)
    with caplog.at_level("WARNING", "numscope"), quiet(), numscope.watch(model, level=level) as scope:
        for _ in range(5):
            step(GOOD)
            with mode():
                model(BAD)
    assert scope.findings == []
    (note,) = scope.contained
    assert note.contained and at(note) == fault_line("net")
    assert note.culprit is not None and note.culprit.reason is Reason.DOMAIN
    (said,) = [one.getMessage() for one in caplog.records]
    assert f"{__file__}:{fault_line('net')[1]}" in said and "aten.log" in said


def test_note_is_no_exception_that_a_script_could_catch() -> None:
    model = Net()
    step = step_of(model)
    raised = []
    with quiet(), numscope.watch(model):
        step(GOOD)
        try:
            with torch.no_grad():
                model(BAD)
        except Exception as error:
            raised.append(error)
        step(GOOD)
    assert raised == []


def test_flops_counted_on_uninitialized_memory_stop_nothing() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model = Net()
    step = step_of(model)
    with quiet(), numscope.watch(model) as scope:
        with torch.no_grad(), FlopCounterMode(display=False):
            model(torch.empty(2, 4).fill_(float("nan")))
        step(GOOD)
    assert scope.findings == []


def test_metric_of_an_evaluation_stops_nothing() -> None:
    model = nn.Linear(4, 4)
    step = step_of(model)
    with quiet(), numscope.watch(model) as scope:
        for _ in range(3):
            step(GOOD)
            with torch.no_grad():
                accuracy = (model(GOOD).argmax(-1) < 0).float()
                assert (accuracy.sum() / accuracy[:0].sum()).isnan()
                (model(GOOD) * 0).log().mean()
    assert scope.findings == [] and scope.contained == []


def test_bound_that_a_call_returns_on_purpose_is_no_warning(caplog: Any) -> None:
    class Controller(nn.Linear):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return super().forward(x), torch.full((), INF)

    model = Controller(4, 4)
    with caplog.at_level("WARNING", "numscope"), quiet(), numscope.watch(model) as scope, torch.no_grad():
        model(GOOD)
    assert scope.findings == [] and not caplog.records


def test_inference_alone_is_noted_and_goes_on() -> None:
    model = Net().eval()
    with quiet(), numscope.watch(model) as scope, torch.no_grad():
        for _ in range(3):
            model(BAD)
    assert scope.findings == [] and scope.batch == 3
    assert [at(note) for note in scope.contained] == [fault_line("net")]


def test_script_that_dies_of_a_bad_inference_is_told_its_line() -> None:
    model = Net().eval()
    scope = numscope.watch(model)
    with quiet(), pytest.raises(RuntimeError, match="probability"), scope, torch.no_grad():
        torch.multinomial(model(BAD).softmax(-1), 1)
    (finding,) = scope.findings
    assert not finding.contained and at(finding) == fault_line("net")


# ---- what reaches training


def caught(play: Callable[[], object], *models: nn.Module) -> Finding:
    import contextlib

    with quiet(), contextlib.ExitStack() as stack:
        for model in models:
            stack.enter_context(numscope.watch(model))
        try:
            play()
        except NonFiniteError as error:
            return error.finding
    raise AssertionError("no finding")


WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "as it is": lambda y: y,
    "normalized": lambda y: F.normalize(y, dim=-1),
    "in a batch": lambda y: torch.cat([torch.zeros(2, 4), y])[2:],
    "copied into a buffer": lambda y: torch.zeros(4, 4).index_copy_(0, torch.tensor([1, 3]), y)[[1, 3]],
    "through NumPy": lambda y: torch.from_numpy(y.numpy().copy()),
    "through lists": lambda y: torch.tensor(y.tolist()),
    "cloned": lambda y: y.clone().float(),
}


@pytest.mark.parametrize("way", WAYS)
def test_teacher_whose_output_becomes_a_target_is_the_origin(way: str) -> None:
    class Teacher(Net):
        pass

    teacher, student = Teacher(), nn.Linear(4, 4)
    step: Any = step_of(student)

    def play() -> None:
        for i in range(4):
            with torch.no_grad():
                target = teacher(BAD if i == 2 else GOOD)
            step(GOOD, WAYS[way](target))

    finding = caught(play, teacher, student)
    assert (at(finding), finding.model, finding.step) == (fault_line("net"), "Teacher", 2)
    assert not finding.contained and "without gradients" in finding.note


def test_frozen_encoder_whose_output_the_model_gets_is_the_origin() -> None:
    encoder, model = Net(), nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    step = step_of(model)

    def play() -> None:
        for i in range(4):
            with torch.no_grad():
                hidden = encoder(BAD if i == 2 else GOOD) * 0.18
            step(hidden)

    finding = caught(play, encoder, model)
    assert (at(finding), finding.model) == (fault_line("net"), "Net")


def test_target_network_is_the_origin() -> None:
    q = Net()
    target = copy.deepcopy(q)
    step: Any = step_of(q)

    def play() -> None:
        for i in range(4):
            with torch.no_grad():
                y = 1 + 0.9 * target(BAD if i == 2 else GOOD).amax(-1, keepdim=True)
            step(GOOD, y)

    assert at(caught(play, q, target)) == fault_line("net")


@pytest.mark.parametrize("later", [0, 3, 20])
def test_value_of_a_rollout_that_is_learned_from_steps_later_is_the_origin(later: int) -> None:
    critic = Net()
    step: Any = step_of(critic)

    def play() -> None:
        values = np.zeros((32, 1), np.float32)
        with torch.no_grad():
            for t in range(32):
                values[t] = critic(BAD[:1] if t == later else GOOD[:1]).mean().item()
        for t in range(32):
            step(GOOD, torch.as_tensor(values[t]))

    finding = caught(play, critic)
    assert at(finding) == fault_line("net")
    assert (finding.batch, finding.step) == (later, later)
    assert f"reached training in batch {32 + later}" in finding.note


def test_bad_data_long_after_a_bad_evaluation_are_not_charged_to_it() -> None:
    model = Net()
    step: Any = step_of(model)

    def play() -> None:
        with torch.no_grad():
            model(BAD)
        for i in range(NEAR_STEPS + 10):
            step(GOOD, float("nan") if i == NEAR_STEPS + 5 else 0.0)  # a target

    finding = caught(play, model)
    assert finding.culprit is not None and finding.culprit.reason is Reason.BAD_INPUT
    assert finding.step == NEAR_STEPS + 5


def test_fault_of_training_itself_is_not_charged_to_an_evaluation() -> None:
    class Model(Net):
        armed = False

        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            return y / (y - y).abs() if self.armed else y  # own fault

    model = Model()
    step = step_of(model)

    def play() -> None:
        with torch.no_grad():
            model(BAD)
        model.armed = True
        step(GOOD)

    assert at(caught(play, model)) == fault_line("own fault")


def test_statistics_that_a_normalization_keeps_are_training_s() -> None:
    model = nn.Sequential(Net(), nn.BatchNorm1d(4))

    def play() -> None:
        with torch.no_grad():
            model(BAD)

    assert at(caught(play, model)) == fault_line("net")
    model = nn.Sequential(Net(), nn.BatchNorm1d(4)).eval()
    with quiet(), numscope.watch(model) as scope, torch.no_grad():
        model(BAD)
    assert scope.findings == []


def test_weight_that_was_written_bad_is_a_finding_of_the_call_that_uses_it() -> None:
    model = nn.Linear(4, 4)

    def play() -> None:
        with torch.no_grad():
            model.weight[0, 0] = float("nan")
            model(GOOD)

    finding = caught(play, model)
    assert finding.culprit is not None and finding.culprit.reason is Reason.BAD_PARAMETER


def test_call_that_no_process_can_do_again_is_done_again_once_it_reaches_training() -> None:
    """Beside a thread at work nothing can fork. A note is not worth what a second call may change; a finding is."""
    calls = []

    class Teacher(Net):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(len(x))
            return super().forward(x)

    teacher, student = Teacher(), nn.Linear(4, 4)
    step: Any = step_of(student)
    over = threading.Event()
    thread = threading.Thread(target=lambda: [time.sleep(0.01) for _ in iter(over.is_set, True)])
    thread.start()
    try:

        def play() -> None:
            with torch.no_grad():
                target = teacher(BAD)
            assert len(calls) == 1
            (note,) = live()[0].contained
            assert f"called at {__file__}:" in note.note and "target = teacher(BAD)" in note.note
            step(GOOD, target)

        finding = caught(play, teacher, student)
    finally:
        over.set()
        thread.join()
    assert at(finding) == fault_line("net") and len(calls) == 2


def _waits_for_a_lock() -> Callable[[], object]:
    over = threading.Event()
    threading.Thread(target=over.wait).start()
    return over.set


def _waits_for_work() -> Callable[[], object]:
    pool = ThreadPoolExecutor(2)
    pool.submit(int).result()
    return pool.shutdown


def _waits_in_a_queue() -> Callable[[], object]:
    inbox: queue.Queue[int] = queue.Queue()
    threading.Thread(target=inbox.get).start()
    return lambda: inbox.put(0)


def _waits_for_bytes() -> Callable[[], object]:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever).start()
    return lambda: loop.call_soon_threadsafe(loop.stop)


@pytest.mark.parametrize("begin", [_waits_for_a_lock, _waits_for_work, _waits_in_a_queue, _waits_for_bytes])
def test_threads_that_wait_keep_no_note_from_its_line(begin: Callable[[], Callable[[], object]]) -> None:
    """As those of notebooks, loaders, loggers and storages do."""
    end, model = begin(), Net()
    time.sleep(0.05)
    try:
        with quiet(), numscope.watch(model) as scope, torch.no_grad():
            model(BAD)
        assert [at(note) for note in scope.contained] == [fault_line("net")]
    finally:
        end()


def test_progress_bar_keeps_no_note_from_its_line() -> None:
    from tqdm import tqdm

    model = Net()
    with quiet(), numscope.watch(model) as scope, torch.no_grad():
        for x in tqdm([GOOD, BAD]):
            assert any(type(thread).__name__ == "TMonitor" for thread in threading.enumerate())
            model(x)
    assert [at(note) for note in scope.contained] == [fault_line("net")]


@pytest.mark.parametrize("bad", [False, True])
def test_notes_change_no_number(bad: bool) -> None:
    def run(watched: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(Net(), nn.Dropout(0.5))
        step = step_of(model)
        with quiet():
            scope = numscope.watch(model) if watched else None
            for _ in range(5):
                step(GOOD)
                with torch.no_grad():
                    model(BAD if bad else GOOD)
            if scope is not None:
                scope.close()
        return [*(p.detach().clone() for p in model.parameters()), torch.rand(4)]

    assert all(torch.equal(a, b) for a, b in zip(run(True), run(False), strict=True))
