"""A folder's history: of a run that nobody prepared, the steps that led to a finding, and fewer of those before."""

import gc
import subprocess
import sys
import tracemalloc
import types
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import numscope
from numscope.detect import history
from numscope.detect.history import FAR, LIVE_S, NEAR, NUM_FIRST, RunHistory
from numscope.detect.journal import Journal
from numscope.probe.entry import Entry
from numscope.probe.optimizers import MOST_GROUPS, settings_of
from numscope.records.site import Phase, tensor_of

BY_SITE = """
    SELECT step, layer, tensor, dtype, calls, numel, abs_max, num_nan + num_pos_inf + num_neg_inf AS num_bad, std
    FROM stats ORDER BY step, ord
"""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu())


def train(model: nn.Module, steps: int, grows: float = 1.0, micro_batches: int = 1) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for step in range(steps):
        for _ in range(micro_batches):
            model(torch.ones(3, 4) * grows**step).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_a_finding_leaves_the_steps_that_led_to_it(tmp_path: Path) -> None:
    model = Net()
    with pytest.raises(numscope.NonFiniteError) as caught, numscope.watch(model, log_dir=str(tmp_path)):
        train(model, 60, grows=10.0)
    step = caught.value.finding.step
    frame = numscope.load(tmp_path, BY_SITE)
    assert set(frame.step) == set(range(step + 1)) and step > NEAR
    grown = frame[(frame.layer == "first") & (frame.tensor == "activation")]
    assert list(grown.abs_max) == pytest.approx([10.0**s for s in range(step + 1)])
    assert frame[frame.step < step].num_bad.sum() == 0 < frame[frame.step == step].num_bad.sum()
    one = frame[frame.step == 3]
    assert list(zip(one.layer, one.tensor, strict=True)) == [
        *(("first", t) for t in ("weight", "weight[bias]", "activation", "output")),
        *(("second", t) for t in ("weight", "weight[bias]", "activation", "output")),
        *(("Net", t) for t in ("activation", "output")),
        ("loss", "loss"),
        *((layer, "gradient") for layer in ("second", "Net", "first")),
        *((layer, t) for layer in ("first", "second") for t in ("wgrad", "wgrad[bias]")),
    ]
    assert set(frame.dtype) == {"float32"} and frame[frame.abs_max > 0]["std"].isna().all()  # detection computes no sums


def test_calls_of_one_layer_are_merged(tmp_path: Path) -> None:
    model = nn.Sequential(shared := nn.Linear(4, 4), nn.ReLU(), shared)
    with numscope.watch(model, log_dir=str(tmp_path)):
        train(model, 2)
    frame = numscope.load(tmp_path, BY_SITE)
    seen = frame[(frame.layer == "0") & (frame.tensor == "activation")]
    assert list(seen.calls) == [2, 2] and list(seen.numel) == [24, 24] and min(seen.abs_max) >= 1


def test_of_micro_batches_it_has_the_last(tmp_path: Path) -> None:
    model = Net()
    with numscope.watch(model, log_dir=str(tmp_path)):
        train(model, 2, micro_batches=3)
    frame = numscope.load(tmp_path, BY_SITE)
    seen = frame[(frame.layer == "first") & (frame.tensor == "activation")]
    assert list(seen.step) == [0, 1] and list(seen.calls) == [1, 1]


def test_the_loss_has_the_settings_that_each_group_had_at_the_step(tmp_path: Path) -> None:
    model = Net()
    groups = [{"params": model.first.parameters(), "lr": torch.tensor(0.5)}, {"params": model.second.parameters(), "weight_decay": 0.3}]
    adam = torch.optim.AdamW(groups, lr=0.01, betas=(0.8, 0.9), amsgrad=True)
    schedule = torch.optim.lr_scheduler.ExponentialLR(adam, 0.5)
    with numscope.watch(model, log_dir=str(tmp_path)):
        for _ in range(3):
            model(torch.ones(3, 4)).square().mean().backward()
            adam.step()
            schedule.step()
            adam.zero_grad()
    frame = numscope.load(tmp_path, "SELECT * FROM raw WHERE layer = 'loss' ORDER BY step")
    assert [list(rates) for rates in frame.optimizer_lr] == [pytest.approx([0.5 * 0.5**step, 0.01 * 0.5**step]) for step in range(3)]
    assert list(frame.optimizer_betas_1[0]) == [0.9, 0.9] and list(frame.optimizer_weight_decay[2]) == pytest.approx([0.01, 0.3])
    assert "optimizer_amsgrad" not in frame.columns
    assert numscope.load(tmp_path, "SELECT * FROM raw WHERE layer <> 'loss'").optimizer_lr.isna().all()


LOSSES = "SELECT step, layer, calls, \"max\" AS loss FROM raw WHERE tensor = 'loss' ORDER BY step, layer"


def test_a_loss_is_divided_by_the_scale_of_its_scaler(tmp_path: Path) -> None:
    model, losses = Net(), []
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.01), torch.amp.GradScaler("cpu", growth_interval=2)
    with numscope.watch(model, log_dir=str(tmp_path), on_nonfinite="note"):
        for step in range(6):
            loss = model(torch.ones(3, 4)).square().mean() * (float("inf") if step == 3 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses.append(loss.item())
    assert list(numscope.load(tmp_path, LOSSES).loss.fillna(float("inf"))) == pytest.approx(losses)


@pytest.mark.parametrize("separate", [True, False])
def test_two_models_that_train_against_each_other_have_a_loss_each(tmp_path: Path, separate: bool) -> None:
    maker, judge = Net(), nn.Linear(2, 1)
    made, judged = (torch.optim.SGD(model.parameters(), lr=0.01) for model in (maker, judge))
    losses = []
    with numscope.watch(maker, log_dir=str(tmp_path)), numscope.watch(judge, log_dir=str(tmp_path)):
        for _ in range(4):
            fake = maker(torch.ones(3, 4))
            judged.zero_grad()
            real, false = judge(torch.ones(3, 2)).square().mean(), (judge(fake.detach()) - 1).square().mean()
            if separate:
                real.backward()
                false.backward()
            else:
                ((real + false) / 2).backward()
            judged.step()
            made.zero_grad()
            loss = judge(fake).square().mean()
            loss.backward()
            made.step()
            losses += [(real.item() + false.item()) / 2, loss.item()]
    frame = numscope.load(tmp_path, LOSSES)
    assert list(frame.loss) == pytest.approx(losses) and list(frame.layer) == ["Linear.loss", "loss"] * 4
    assert list(frame.step) == [0, 0, 1, 1, 2, 2, 3, 3]  # the last loss, whose gradients no optimizer of the judge takes, makes no step


def test_settings_are_told_of_numbers_and_of_few_groups() -> None:
    weights = [nn.Parameter(torch.ones(1)) for _ in range(MOST_GROUPS + 1)]
    many = torch.optim.SGD([{"params": [p], "lr": i, "name": "x", "a b": 1.0, "own": (1, "x")} for i, p in enumerate(weights)])
    few = torch.optim.SGD(weights[:1], lr=0.5, momentum=0.9, nesterov=True)
    few.param_groups[0]["extra"] = 2
    told = settings_of([few, many])
    assert told["optimizer_lr"] == [0.5, *range(MOST_GROUPS - 1)] and len(told["optimizer_extra"]) == MOST_GROUPS
    assert (
        told["optimizer_extra"][0] == 2.0
        and np.isnan(told["optimizer_extra"][1:]).all()
        and np.isnan(told["optimizer_own_0"][0])
        and told["optimizer_own_0"][1] == 1.0
    )
    assert not told.keys() & {"optimizer_params", "optimizer_name", "optimizer_a b", "optimizer_own_1", "optimizer_nesterov"}


class Unseen(RunHistory):
    """Nobody looks on."""

    def _show(self) -> None:
        pass


def test_without_a_finding_the_folder_has_a_thinned_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numscope.scope.model_watch.RunHistory", Unseen)
    model = Net()
    with numscope.watch(model, log_dir=str(tmp_path)):
        train(model, 400)
    steps = sorted(set(numscope.load(tmp_path, BY_SITE).step))
    assert steps[-NEAR:] == list(range(400 - NEAR, 400))
    gaps = {b - a for a, b in pairwise(steps)}
    assert len(steps) <= NEAR + FAR and max(gaps) <= 8 and steps[0] < 16


@settings(max_examples=30)
@given(st.integers(1, 3000))
def test_it_keeps_a_bounded_number_of_steps_spread_over_the_run(count: int) -> None:
    journal, kept = Journal(), Unseen("unused", 0, "Net")
    for step in range(count):
        kept.note(step, journal)
    steps = [one.number for one in (*kept._far, *kept._near)]
    assert steps == sorted(set(steps)) and len(steps) <= NEAR + FAR
    assert steps[-NEAR:] == list(range(max(0, count - NEAR), count))
    assert max(b - a for a, b in pairwise([0, *steps])) <= max(1, 4 * count / FAR)


def test_it_keeps_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "NBYTES", 1 << 20)
    journal, kept = Journal(), Unseen("unused", 0, "Net")
    seen = [(Entry(f"{i}", "A"), torch.ones(1)) for i in range(100)]  # a model's entries are its own, whatever is kept

    def keep(step: int) -> None:
        for entry, x in seen:
            journal.add(entry, Phase.FORWARD, {}, [("input[0]", x)])
        journal.read()
        kept.note(step, journal)
        journal.reset()

    keep(0)  # what is imported at first is not the history's
    tracemalloc.start()
    for step in range(1, 100):
        keep(step)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    steps = (*kept._far, *kept._near)
    assert len(steps) > NEAR and size <= 1.2 * (1 << 20) and steps[-1].number == 99


def test_a_step_that_is_noted_again_replaces_itself() -> None:
    journal, kept = Journal(), Unseen("unused", 0, "Net")
    for step in (0, 1, 1, 1):
        kept.note(step, journal)
    assert [one.number for one in kept._near] == [0, 1]


def test_where_statistics_are_configured_they_are_the_history(tmp_path: Path) -> None:
    wanted = {"enabled": True, "stats": ["max"], "tensors": ["output"]}
    config = {"all": {"enabled": True, "layers": {"layer_types": "all"}, "statistics": wanted}}
    model = Net()
    with numscope.watch(model, log_dir=str(tmp_path), config=config):
        train(model, 3)
    assert set(numscope.load(tmp_path, BY_SITE).tensor) == {"output"}


def test_two_models_have_their_own_names(tmp_path: Path) -> None:
    first, second = Net(), Net()
    with numscope.watch(first, log_dir=str(tmp_path)), numscope.watch(second, log_dir=str(tmp_path)):
        train(first, 2)
        train(second, 2)
    layers = set(numscope.load(tmp_path, BY_SITE).layer)
    assert layers == {prefix + name for prefix in ("", "Net_2.") for name in ("first", "second", "Net", "loss")}


def test_a_folder_that_can_not_be_written_to_is_said_and_training_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = Net()
    with numscope.watch(model, log_dir=str(tmp_path / "log"), on_nonfinite="warn") as scope:
        train(model, 2)
        (tmp_path / "log" / "statistics").write_text("in the way")
        train(model, 22, grows=10.0)
    assert scope.findings and caplog.text.count("no history beside the findings") == 1


def test_a_run_of_the_command_has_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nfrom torch import nn\nmodel = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for step in range(9):\n    x = torch.ones(2, 4) * (float('inf') if step == 7 else 1.0)\n"
        "    model(x).mean().backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
    )
    command = [sys.executable, "-m", "numscope"]
    run = [*command, "run", "--log-dir", "logs", "train.py"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3, done.stderr
    asked = [*command, "stats", "logs", "SELECT DISTINCT step FROM stats ORDER BY step"]
    shown = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert shown.stdout.split() == ["step", *map(str, range(8))], shown.stdout + shown.stderr


@pytest.mark.parametrize(
    ("phase", "slot", "tensor"),
    [
        (Phase.FORWARD, "input[0]", "activation"),
        (Phase.FORWARD, "input[mask]", "activation[mask]"),
        (Phase.FORWARD, "output", "output"),
        (Phase.FORWARD, "output[logits]", "output[logits]"),
        (Phase.FORWARD, "weight", "weight"),
        (Phase.FORWARD, "bias", "weight[bias]"),
        (Phase.BACKWARD, "grad output", "gradient"),
        (Phase.BACKWARD, "grad output[1]", "gradient[1]"),
        (Phase.BACKWARD, "grad weight", "wgrad"),
        (Phase.BACKWARD, "grad bias", "wgrad[bias]"),
        (Phase.LOSS, "loss", "loss"),
        (Phase.LOSS, "loss[1]", "loss[1]"),
        (Phase.OPTIMIZER, "first.weight", "weight[first.weight]"),
    ],
)
def test_names(phase: Phase, slot: str, tensor: str) -> None:
    assert tensor_of(phase, slot) == tensor


def test_a_step_that_goes_on_after_its_finding_is_written_once(tmp_path: Path) -> None:
    model = Net()
    with numscope.watch(model, log_dir=str(tmp_path), on_nonfinite="warn") as scope:
        train(model, 22, grows=10.0)
    assert scope.findings[0].step < 21
    frame = numscope.load(tmp_path, BY_SITE)
    assert len(frame) == len(frame.drop_duplicates(["step", "layer", "tensor"])) and frame.step.max() == 21


def test_models_that_are_gone_stay_in_the_history(tmp_path: Path) -> None:
    for _ in range(3):
        with numscope.watch(model := Net(), log_dir=str(tmp_path)):
            train(model, 2)
        del model
        gc.collect()
    frame = numscope.load(tmp_path, BY_SITE)
    assert {name.partition(".")[0] for name in frame.layer if name.endswith("first")} == {"first", "Net_2", "Net_3"}


def test_an_error_of_the_history_ends_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numscope.sinks.parquet.ParquetSink.write_part", lambda sink: [][0])
    with numscope.watch(Net(), log_dir=str(tmp_path)) as scope:
        train(scope._watch.model, 2)
    assert scope.closed and "no history beside the findings" in caplog.text and "IndexError" in caplog.text


def test_who_looks_on_sees_it_from_the_tenth_step(tmp_path: Path) -> None:
    model = Net()
    with numscope.watch(model, log_dir=str(tmp_path)):
        train(model, NUM_FIRST)
        assert not (tmp_path / "statistics").exists()
        train(model, 1)
        frame = numscope.load(tmp_path, BY_SITE)
        assert sorted(set(frame.step)) == list(range(NUM_FIRST)) and "loss" in set(frame.layer)
        train(model, 3)
    steps = numscope.load(tmp_path, "SELECT step, count(*) AS n FROM stats GROUP BY step ORDER BY step")
    assert list(steps.step) == list(range(NUM_FIRST + 4)) and len(set(steps.n)) == 1  # each once


class Shown(RunHistory):
    """Keeps what would be written."""

    def __init__(self, num_ranks: int = 1) -> None:
        super().__init__("unused", 0, "Net", num_ranks)
        self.stored: list[list[int]] = []

    def _store(self, steps: Any, *, remembers: bool) -> None:
        self.stored.append([one.number for one in steps])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.001, 600.0), min_size=1, max_size=400), st.integers(1, 1000), st.lists(st.integers(0, 399), max_size=3))
def test_what_is_shown_is_shown_once_in_time_and_ever_more_rarely(seconds: list[float], num_ranks: int, findings: list[int]) -> None:
    clock, times = [0.0], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history.time, "monotonic", lambda: clock[0])
        kept, journal = Shown(num_ranks), Journal()
        for step, second in enumerate(seconds):
            before = len(kept.stored)
            kept.note(step, journal)
            if len(kept.stored) > before:
                times.append(clock[0])
                assert kept.stored[-1][-1] == step - 1  # the newest that is complete
            elif num_ranks <= 32 and step > NUM_FIRST and clock[0] < 3000:
                assert clock[0] - times[-1] < LIVE_S
            if step in findings:
                kept.found()
            clock[0] += second
        kept.write()
        written = [step for steps in kept.stored for step in steps]
        assert len(written) == len(set(written)) and len(seconds) - 1 in written
        gaps = [b - a for a, b in pairwise(times)]
        assert all(
            gap >= kept._rarer * min(LIVE_S, max(2.0, a / 2), max(a, 1) / 100 + LIVE_S) * 0.999 for a, gap in zip(times, gaps, strict=False)
        )


def test_a_stub_in_the_place_of_pyarrow_stops_no_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", types.ModuleType("pyarrow"))
    with numscope.watch(Net(), log_dir=str(tmp_path)):
        pass


def test_without_pyarrow_it_is_said_before_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history.importlib.util, "find_spec", lambda name: None)
    with numscope.watch(Net(), log_dir=str(tmp_path)):
        assert caplog.text.count("pyarrow is not installed. Install it: pip install 'numscope[runs]'.") == 1
