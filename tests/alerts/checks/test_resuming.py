"""A run that goes on from a checkpoint: each lost part of its state is named, and exact resumes are left alone."""

from __future__ import annotations

import copy
import gc
import itertools
import os
import random
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, TensorDataset

import numscope
from numscope.alerts.checks import loading, resuming
from numscope.parity.training_state import KEPT, Bits, name_of, read_states
from numscope.records.alert import Alert
from numscope.summary.checksum import checksum
from numscope.summary.sketch import Piece, checksums

Checkpoint = dict[str, Any]
SAVE = torch.save
_processes = itertools.count()


class Training:
    """A plain loop, with all that it has to go on from."""

    def __init__(self, seed: int = 0) -> None:
        for seeds in (torch.manual_seed, random.seed, np.random.seed):
            seeds(seed)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
        self.scaler = torch.amp.GradScaler("cpu", growth_interval=3)
        self.average = AveragedModel(self.model)
        draw = torch.Generator().manual_seed(7)
        self.data = TensorDataset(torch.randn(96, 6, generator=draw), torch.randint(3, (96,), generator=draw))
        self.done = 0

    def parts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("model", "optimizer", "scheduler", "scaler", "average")}

    def save(self, path: Path) -> None:
        generators = {"torch": torch.get_rng_state(), "random": random.getstate(), "numpy": np.random.get_state()[1:3]}
        torch.save({**{name: part.state_dict() for name, part in self.parts().items()}, "generators": generators, "done": self.done}, path)

    def load(self, path: Path, change: Callable[[Checkpoint], object] = lambda checkpoint: None) -> None:
        checkpoint = torch.load(path, weights_only=False)
        change(checkpoint)
        for name, part in self.parts().items():
            if name in checkpoint:
                part.load_state_dict(checkpoint[name])
        generators = checkpoint.get("generators", {})
        if "torch" in generators:
            torch.set_rng_state(generators["torch"])
        if "random" in generators:
            random.setstate(generators["random"])
        if "numpy" in generators:
            np.random.set_state(("MT19937", *generators["numpy"]))
        self.done = checkpoint["done"]

    def batches(self, skips: int) -> Any:
        order = torch.randperm(96, generator=torch.Generator().manual_seed(3)).tolist()
        return DataLoader(self.data, batch_size=4, sampler=order[4 * skips :])

    def run(self, steps: int, saves: Mapping[int, Path] | None = None, skips: int | None = None) -> None:
        for x, y in self.batches(self.done if skips is None else skips):
            if self.done == steps:
                break
            smoothing = 0.01 * random.random() * np.random.rand()
            self.optimizer.zero_grad()
            self.scaler.scale(F.cross_entropy(self.model(x), y, label_smoothing=smoothing)).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.scheduler.step()
            self.average.update_parameters(self.model)
            self.done += 1
            if saves and self.done in saves:
                self.save(saves[self.done])


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Runs of one test are those of several processes."""

    def change() -> None:
        gc.collect()  # models of the run before
        monkeypatch.setitem(resuming._processes, os.getpid(), str(next(_processes)))

    change()
    return change


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder, with a checkpoint of step 6 of 9."""
    folder = tmp_path_factory.mktemp("recorded")
    training = Training()
    resuming._processes[os.getpid()] = "first"
    with numscope.watch(training.model, log_dir=folder / "run") as scope:
        training.run(9, {6: folder / "checkpoint"})
    assert not scope.fault and not scope.alerts
    return folder


def resumed(folder: Path, change: Callable[[Checkpoint], object] = lambda checkpoint: None, **how: Any) -> list[Alert]:
    training = Training(seed=1)
    alerts = {"state not loaded": {"run": str(folder / "run")}}
    with numscope.watch(training.model, on_nonfinite="warn", alerts=alerts) as scope:
        training.load(folder / "checkpoint", change)
        training.run(training.done + 2, **how)
    assert not scope.fault
    return scope.alerts


def test_exact_resume_is_left_alone(recorded: Path) -> None:
    assert resumed(recorded) == []
    assert torch.save is SAVE


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
@pytest.mark.parametrize("num_classes", [3, 5])
def test_a_new_head_or_optimizer_is_one_question(tmp_path: Path, kind: Any, num_classes: int, new_process: Callable[[], None]) -> None:
    """No random number is drawn by which a training of its own would be told."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
    for head, rule in ((nn.Linear(8, 3), torch.optim.Adam), (nn.Linear(8, num_classes), kind)):
        new_process()
        model = nn.Sequential(body, head)
        optimizer = rule(model.parameters(), lr=0.01)
        with numscope.watch(model, on_nonfinite="warn", log_dir=tmp_path) as scope:
            for step in range(3):
                model(torch.full((4, 6), float(step) + num_classes)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
    text = "Adam begins without state (exp_avg, exp_avg_sq, step)"
    if kind is torch.optim.SGD:
        text = "the optimizer is SGD, and was Adam with exp_avg, exp_avg_sq, step"
    of_head = "2 weights of 4 are not what was saved, the first is 1.weight" if num_classes == 3 else "1.weight, 1.bias are of another size"
    (alert,) = (one for one in scope.alerts if one.rule == "state not loaded")
    assert alert.text == f"Resumed at step 3: it goes on with weights alone: {text}; {of_head}." and alert.asks


def test_a_further_parameter_group_is_said_once(tmp_path: Path, new_process: Callable[[], None]) -> None:
    torch.manual_seed(0)
    body, head = nn.Linear(6, 8).requires_grad_(False), nn.Linear(8, 3)
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.01)
    for begin in (0, 2):
        new_process()
        model = nn.Sequential(body, head)
        if begin:
            optimizer.add_param_group({"params": body.requires_grad_().parameters(), "lr": 0.001})
        with numscope.watch(model, on_nonfinite="warn", log_dir=tmp_path) as scope:
            for step in range(begin, begin + 2):
                model(torch.full((4, 6), float(step))).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
    texts = [one.text for one in scope.alerts if one.rule == "state not loaded"]
    assert texts == ["Resumed at step 2: there are 2 parameter groups, and there was 1."]


@pytest.mark.parametrize(("shuffles", "restores"), [(True, False), (True, True), (False, False)])
def test_order_of_the_first_epoch_again_is_asked_about(
    tmp_path: Path, shuffles: bool, restores: bool, new_process: Callable[[], None]
) -> None:
    """Runs end with an epoch, of which the first has shuffled anew."""
    model, state = nn.Linear(6, 1), None
    data = torch.randn(20, 6, generator=torch.Generator().manual_seed(1))
    for _ in range(2):
        new_process()
        torch.manual_seed(0)
        if restores and state is not None:
            torch.set_rng_state(state)
        loader = DataLoader(data, batch_size=4, shuffle=shuffles)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with numscope.watch(model, on_nonfinite="warn", log_dir=tmp_path) as scope:
            for _ in range(2):
                for x in loader:
                    model(x).square().mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
        state = torch.get_rng_state()
    texts = [one.text for one in scope.alerts if one.rule == "state not loaded"]
    assert texts == ["Resumed at step 10: the batch of step 0 comes again."] * (shuffles and not restores)


@pytest.mark.parametrize("forgets", [False, True])
def test_average_of_a_part_that_begins_again_is_named(tmp_path: Path, forgets: bool, new_process: Callable[[], None]) -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(6, 8), nn.Mish()), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    average = AveragedModel(model[0])
    for begin in (0, 2):
        new_process()
        if begin and forgets:
            average = AveragedModel(model[0])
        with numscope.watch(model, on_nonfinite="warn", log_dir=tmp_path) as scope:
            for step in range(begin, begin + 2):
                model(torch.full((4, 6), float(step))).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                average.update_parameters(model[0])
    texts = [one.text for one in scope.alerts if one.rule == "state not loaded"]
    assert texts == ["Resumed at step 2: AveragedModel's n_averaged is 0, and was 2."] * forgets


def clear(part: str, *keys: str) -> Callable[[Checkpoint], None]:
    """A checkpoint without a part, or a part of a part."""

    def change(checkpoint: Checkpoint) -> None:
        inner = checkpoint
        for key in (part, *keys)[:-1]:
            inner = inner[key]
        del inner[(part, *keys)[-1]]

    return change


def state_of_optimizer(key: str, value: float) -> Callable[[Checkpoint], None]:
    def change(checkpoint: Checkpoint) -> None:
        for state in checkpoint["optimizer"]["state"].values():
            state[key].fill_(value)

    return change


def head(checkpoint: Checkpoint) -> None:
    checkpoint["model"] = {**checkpoint["model"], "3.weight": torch.ones(3, 8)}


def rate(checkpoint: Checkpoint) -> None:
    checkpoint["optimizer"]["param_groups"][0]["lr"] = 0.5


LOST = {
    "a weight": (head, "1 weight of 9 is not what was saved, the first is 3.weight"),
    "first moments": (state_of_optimizer("exp_avg", 0), "AdamW's exp_avg is zero in 6 parameters"),
    "step counts": (state_of_optimizer("step", 0), "AdamW's step is 0 in 6 parameters, and was 6"),
    "the optimizer": (clear("optimizer"), "AdamW begins without state (exp_avg, exp_avg_sq, step); lr is 0.01, and was 0.00125"),
    "all but weights": (
        lambda c: (c.pop("optimizer"), c.pop("scheduler"), c["generators"].clear(), head(c)),
        "it goes on with weights alone: AdamW begins without state (exp_avg, exp_avg_sq, step); "
        "lr is 0.01, and was 0.00125; StepLR is at 0, and was at 6; "
        "the random state of python, numpy, torch is not what was saved; 1 weight of 9 is not what was saved, the first is 3.weight",
    ),
    "the rate": (rate, "lr is 0.5, and was 0.00125"),
    "the schedule": (clear("scheduler"), "StepLR is at 0, and was at 6"),
    "the scaler": (clear("scaler"), "GradScaler's scale is 65536, and was 262144"),
    "the average": (clear("average"), "the averaged copy of Sequential is another one; AveragedModel's n_averaged is 0, and was 6"),
    "the average's count": (lambda c: c["average"]["n_averaged"].zero_(), "AveragedModel's n_averaged is 0, and was 6"),
    "torch's generator": (clear("generators", "torch"), "the random state of torch is not what was saved"),
    "other generators": (
        lambda c: (c["generators"].pop("random"), c["generators"].pop("numpy")),
        "the random state of python, numpy is not what was saved",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", LOST)
def test_what_is_lost_is_named(recorded: Path, what: str) -> None:
    change, text = LOST[what]
    (alert,) = resumed(recorded, change)
    assert alert.text == f"Resumed at step 6: {text}."
    assert alert.rule == "state not loaded" and alert.evidence["resumed at"] == 6


@pytest.mark.parametrize(
    ("skips", "text"),
    [(4, "the batch of step 4 comes again"), (8, "2 batches are skipped"), (20, "the first batch is not the one that came next")],
)
def test_other_batches_are_named(recorded: Path, skips: int, text: str) -> None:
    (alert,) = resumed(recorded, skips=skips)
    assert alert.text == f"Resumed at step 6: {text}." and alert.asks


@pytest.mark.parametrize("skips", [6, 2])
def test_run_that_ended_at_its_save_goes_on_in_its_own_folder(tmp_path: Path, skips: int, new_process: Callable[[], None]) -> None:
    for steps in (6, 8):
        new_process()
        training = Training(seed=steps)
        with numscope.watch(training.model, on_nonfinite="warn", log_dir=tmp_path / "run") as scope:
            if steps == 8:
                training.load(tmp_path / "checkpoint")
            training.run(steps, {6: tmp_path / "checkpoint"}, skips=skips if steps == 8 else 0)
        assert not scope.fault
    texts = [] if skips == 6 else ["Resumed at step 6: the batch of step 2 comes again."]
    assert [alert.text for alert in scope.alerts] == texts


def test_other_run_in_the_same_folder_is_left_alone(recorded: Path) -> None:
    training = Training(seed=0)
    with numscope.watch(training.model, on_nonfinite="warn", log_dir=recorded / "run") as scope:
        training.run(2)
    assert not scope.fault and not scope.alerts


def test_run_that_does_not_begin_with_a_state_of_the_named_run_is_told_so(recorded: Path) -> None:
    training = Training(seed=1)
    with numscope.watch(training.model, on_nonfinite="warn", alerts={"state not loaded": {"run": str(recorded / "run")}}) as scope:
        training.run(2)
    (alert,) = scope.alerts
    assert "states of" in alert.text and "has the weights that this run begins with" in alert.text and not alert.asks


def test_run_without_states_is_told_so(tmp_path: Path) -> None:
    training = Training()
    with numscope.watch(training.model, on_nonfinite="warn", alerts={"state not loaded": {"run": str(tmp_path)}}) as scope:
        training.run(2)
    assert [alert.text for alert in scope.alerts] == [f"{tmp_path} holds no training state, expected those of a run that saved."]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 1, "state": {"step": []}}', "nothing", '{"version": 1, "state": ' + "[" * 99_999]
)
def test_files_that_are_no_states_are_left_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "resume").mkdir()
    (tmp_path / "resume" / name_of(1, 0, 3)).write_text(text)
    assert read_states(str(tmp_path)) == []


@given(st.lists(st.integers(1, 8), min_size=1, max_size=4), st.integers(1, 5), st.data())
def test_checksums_of_parts_are_those_of_the_whole_in_any_layout(rows: list[int], columns: int, data: st.DataObject) -> None:
    whole = torch.arange(sum(rows) * columns, dtype=torch.float32).view(-1, columns) + 1

    def bits(cuts: list[int]) -> Bits:
        starts = list(itertools.accumulate(cuts, initial=0))
        pieces = [Piece.at(part, whole.shape, (at, 0)) for part, at in zip(whole.split(cuts), starts, strict=False)]
        values = zip(pieces, checksums(pieces), strict=True)
        return Bits("float32", whole.numel(), {one.place: (one.tensor.numel(), value) for one, value in values})

    cut, one = bits(rows), bits([sum(rows)])
    assert one.parts[""][1] == checksum(whole) and one.equals(cut)
    merged = data.draw(st.integers(1, len(rows)))
    assert bits([sum(rows[:merged]), *rows[merged:]]).equals(cut)
    assert cut.equals(one) is (True if len(rows) == 1 else None)  # a part of what was one piece is not known
    other = Bits("float32", whole.numel(), {place: (num, value ^ 1) for place, (num, value) in cut.parts.items()})
    assert one.equals(other) is False


def test_small_saves_keep_no_state_and_few_files_stay(tmp_path: Path) -> None:
    training = Training()
    with numscope.watch(training.model, on_nonfinite="warn", log_dir=tmp_path):
        for step in range(1, KEPT + 4):
            training.run(step, {step: tmp_path / "checkpoint"}, skips=0)
            torch.save({"loss": torch.ones(2), "step": step}, tmp_path / "small")
    states = read_states(str(tmp_path))
    assert [state.step for state in states] == [*range(4, KEPT + 4)]
    assert all(len(state.batches) == state.step and state.weights for state in states)


@pytest.mark.parametrize("forgets", [False, True])
def test_what_another_thread_saves_is_a_state_to_go_on_from(tmp_path: Path, forgets: bool, new_process: Callable[[], None]) -> None:
    class Saving(Training):
        def save(self, path: Path) -> None:
            held = copy.deepcopy({name: part.state_dict() for name, part in self.parts().items()})
            thread = threading.Thread(target=torch.save, args=({**held, "done": self.done}, path))
            thread.start()
            thread.join()

    training = Saving()
    with numscope.watch(training.model, log_dir=tmp_path / "run"):
        training.run(9, {6: tmp_path / "checkpoint"})
    new_process()
    training = Saving(seed=1)
    with numscope.watch(training.model, log_dir=tmp_path / "run") as scope:
        training.load(tmp_path / "checkpoint", state_of_optimizer("exp_avg", 0.0) if forgets else lambda checkpoint: None)
        training.run(8)
    found = [alert.text for alert in scope.alerts]
    assert found == (["Resumed at step 6: AdamW's exp_avg is zero in 6 parameters."] if forgets else [])


@pytest.mark.parametrize("forgets", [False, True])
def test_a_second_model_that_is_not_loaded_is_asked_about(tmp_path: Path, forgets: bool, new_process: Callable[[], None]) -> None:
    def run(begin: int, steps: int) -> list[Alert]:
        torch.manual_seed(begin)
        net, centers = nn.Linear(8, 16), nn.Sequential(nn.Linear(16, 4))
        optimizer = torch.optim.Adam([*net.parameters(), *centers.parameters()], lr=0.02)
        parts = {"net": net, "optimizer": optimizer, **({} if forgets and begin else {"centers": centers})}
        how: Any = {"log_dir": tmp_path / "run", "alerts": {"state not loaded": True}}
        with numscope.watch(net, **how) as first, numscope.watch(centers, **how) as second:
            if begin:
                checkpoint = torch.load(tmp_path / "checkpoint")
                for name, part in parts.items():
                    part.load_state_dict(checkpoint[name])
            for step in range(begin, begin + steps):
                draw = torch.Generator().manual_seed(step)
                y = torch.randint(0, 4, (16,), generator=draw)
                F.cross_entropy(centers(net(torch.randn(16, 8, generator=draw))), y).backward()
                optimizer.step()
                optimizer.zero_grad()
                if step == 4:
                    torch.save({name: part.state_dict() for name, part in parts.items()}, tmp_path / "checkpoint")
        return [*first.alerts, *second.alerts]

    assert run(0, 7) == []
    new_process()
    found = [(alert.text, alert.asks) for alert in run(5, 3)]
    told = "Linear goes on from step 5, and no weight of Sequential (0.weight, 0.bias) is what was saved then."
    assert found == ([(told, True)] if forgets else [])


@pytest.mark.parametrize("forgets", [False, True])
def test_models_that_take_turns_are_judged_each_by_its_own_batches(tmp_path: Path, forgets: bool, new_process: Callable[[], None]) -> None:
    """The critic is called in the maker's turn too, so that a save is in the middle of its step."""
    for begin, end in ((0, 5), (3, 5)):
        new_process()
        torch.manual_seed(begin)
        models = nn.Linear(5, 1), nn.Linear(2, 5)
        rules = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
        scopes = [numscope.watch(model, on_nonfinite="warn", log_dir=tmp_path / str(num)) for num, model in enumerate(models)]
        if begin:
            for model, state in zip(models, torch.load(tmp_path / "checkpoint"), strict=True):
                model.load_state_dict(state)
        (critic, maker), first = models, begin + 4 * (forgets and begin > 0)
        for step in range(first, first + end - begin):
            fake = maker(torch.full((6, 2), float(step)))
            (critic(torch.ones(6, 5) * step) - critic(fake.detach())).mean().backward()
            rules[0].step()
            critic(fake).mean().backward()
            rules[1].step()
            if step == 2:
                torch.save([model.state_dict() for model in models], tmp_path / "checkpoint")
        for scope in scopes:
            scope.close()
            assert not scope.fault
    texts = [alert.text for scope in scopes for alert in scope.alerts]
    assert texts == ["Resumed at step 3: the first batch is not the one that came next."] * 2 * forgets


def of_the_copy(checkpoint: Checkpoint) -> None:
    checkpoint["model"] = {name.removeprefix("module."): value for name, value in checkpoint["average"].items() if "module." in name}


def cast(checkpoint: Checkpoint) -> None:
    checkpoint["model"] = {name: value.half() for name, value in checkpoint["model"].items()}


@pytest.mark.parametrize(
    ("change", "text"),
    [(of_the_copy, "The run begins with the averaged copy's weights of step 6."), (cast, "has the weights that this run begins with.")],
)
def test_weights_that_were_loaded_and_are_none_that_were_trained_are_asked_about(
    recorded: Path, change: Callable[[Checkpoint], None], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_walks", itertools.count())  # those of this process are used up
    training = Training(seed=1)
    with numscope.watch(training.model, on_nonfinite="warn", log_dir=recorded / "run") as scope:
        training.load(recorded / "checkpoint", change)
        training.run(training.done + 1)
    (alert,) = scope.alerts
    assert alert.text.endswith(text) and alert.asks and "were loaded" in alert.advice


def test_advice_is_about_the_cause(recorded: Path) -> None:
    (alert,) = resumed(recorded, clear("generators", "torch"), skips=4)
    assert "the batch of step 4 comes again" in alert.text and "loader" not in alert.advice


def test_checkpoint_whose_average_was_loaded_too_is_asked_for_its_optimizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_walks", itertools.count())
    training = Training()
    training.run(3, {3: tmp_path / "checkpoint"})
    training = Training(seed=1)
    with numscope.watch(training.model, on_nonfinite="warn", log_dir=tmp_path / "run") as scope:
        training.load(tmp_path / "checkpoint", clear("optimizer"))
        optimizer = torch.load(tmp_path / "checkpoint", weights_only=False)["optimizer"]
        kept = {"optimizer": optimizer, "average": training.average.module.state_dict(), "model": training.model.state_dict()}
        for name in ("model", "average"):
            {"model": training.model, "average": training.average.module}[name].load_state_dict(kept[name])
        training.run(5)
    assert [
        "optimizer of this run begins anew" in alert.text and alert.asks for alert in scope.alerts if alert.rule == "state not loaded"
    ] == [True]


@pytest.mark.parametrize("loads", [False, True])
def test_scaler_of_a_checkpoint_that_is_not_loaded_is_asked_about(loads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_walks", itertools.count())
    model, scaler = nn.Linear(4, 1), torch.amp.GradScaler("cpu", init_scale=1024.0)
    key: Any = "scaler" if loads else 7  # a checkpoint's keys are whatever its script likes
    kept = {"model": nn.Linear(4, 1).state_dict(), key: {**scaler.state_dict(), "scale": 256.0}}
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with numscope.watch(model, on_nonfinite="warn") as scope:
        model.load_state_dict(kept["model"])
        if loads:
            scaler.load_state_dict(kept[key])
        for _ in range(3):
            scaler.scale(model(torch.randn(4, 4)).mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert [alert.text.rpartition(" has ")[2] for alert in scope.alerts if alert.rule == "state not loaded"] == (
        [] if loads else ["'7', and the scaler of this run begins anew."]
    )
