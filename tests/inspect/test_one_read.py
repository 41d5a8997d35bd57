"""Statistics beside detection: a tensor that both want is read once, and the numbers are those without detection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.detect.journal import Journal
from numscope.probe.entry import Entry, Leaves
from numscope.records.observation import Observation
from numscope.summary import dispatch
from numscope.summary.state import Groups
from tests.harm.training import assert_nothing_left

TENSORS = ["activation", "output", "gradient", "dgrad", "weight", "wgrad"]


def config(freq: int = 1, tensors: list[str] = TENSORS) -> dict[str, Any]:
    wanted = {"enabled": True, "stats": ["max", "mean", "kurtosis", "num_nan"], "tensors": tensors, "freq": freq}
    return {"all": {"enabled": True, "layers": {"layer_types": "all"}, "statistics": wanted}}


def build() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch, in_python: None) -> list[tuple[Tensor, int]]:
    """Each tensor that is read, with the fields that are computed."""
    found: list[tuple[Tensor, int]] = []
    one, many = dispatch.observe, dispatch.observe_many

    def observe(tensor: Tensor, block: Tensor, address: int, row: int, groups: int) -> bool:
        found.append((tensor.detach(), groups))
        return one(tensor, block, address, row, groups)

    def observe_many(tensors: Any, block: Tensor, address: int, rows: Any, groups: int) -> list[bool]:
        found.extend((t.detach(), groups) for t in tensors)
        return many(tensors, block, address, rows, groups)

    monkeypatch.setattr(dispatch, "observe", observe)
    monkeypatch.setattr(dispatch, "observe_many", observe_many)
    return found


def steps(model: nn.Module, count: int, after: Callable[[int], None], seed: int = 1) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(seed)
    for step in range(count):
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        after(step)


def test_with_statistics_nothing_is_read_that_detection_alone_would_not_read(reads: list[tuple[Tensor, int]]) -> None:
    def counted(**options: Any) -> list[list[tuple[Tensor, int]]]:
        found: list[list[tuple[Tensor, int]]] = []

        def after(step: int) -> None:
            found.append(list(reads))
            reads.clear()

        model = build()
        with numscope.watch(model, **options):
            steps(model, 4, after)
        reads.clear()
        return found

    alone, both = counted(), counted(config=config(freq=2))
    assert [len(found) for found in both[1:]] == [len(found) for found in alone[1:]]
    for step, found in enumerate(both[1:], 1):
        shapes = [tuple(t.shape) for t, groups in found if groups == Groups.ALL]
        if step % 2:
            weights = [(8, 4), (8,), (2, 8), (2,)]
            assert shapes == weights, "read after the step, for the next one"
        else:
            assert shapes.count((3, 8)) == 4, "two outputs, two gradients"
            assert shapes.count((8, 4)) == shapes.count((2, 8)) == 1, "gradients of the weights; these were read before"


def observations(model: nn.Module, run: Callable[[Any], None], **options: Any) -> list[list[Observation]]:
    """What each step showed."""
    found: list[list[Observation]] = []
    with numscope.watch(model, config=config(), **options) as scope:
        assert scope._watch.inspector is not None
        run(lambda: found.append(scope._watch.inspector.last))
    return found


def assert_same(got: list[list[Observation]], expected: list[list[Observation]]) -> None:
    assert len(got) == len(expected) > 1
    for ours, theirs in zip(got, expected, strict=True):
        assert [(o.layer, o.tensor, o.calls, o.order) for o in ours] == [(o.layer, o.tensor, o.calls, o.order) for o in theirs]
        for a, b in zip(ours, theirs, strict=True):
            assert a.fields == b.fields and a.values == b.values, (a.layer, a.tensor)


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_statistics_are_those_without_detection(micro_batches: int) -> None:
    def course(model: nn.Module) -> Callable[[Any], None]:
        def run(step_over: Callable[[], None]) -> None:
            optimizer = torch.optim.Adam(model.parameters())
            torch.manual_seed(1)
            for _ in range(3):
                for _ in range(micro_batches):
                    model(torch.randn(3, 4)).square().mean().backward()
                    with torch.no_grad():
                        model(torch.randn(5, 4))  # judged and forgotten as it returns
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                optimizer.zero_grad()
                with torch.no_grad():
                    model[2].weight.clamp_(-0.3, 0.3)
                step_over()

        return run

    model = build()
    expected = observations(model, course(model), on_nonfinite=None)
    model = build()
    assert_same(observations(model, course(model)), expected)


def test_gradients_that_grad_scaler_unscales_one_optimizer_after_the_other_are_seen_unscaled() -> None:
    def course(model: nn.Module) -> Callable[[Any], None]:
        def run(step_over: Callable[[], None]) -> None:
            optimizers = [torch.optim.SGD(model[i].parameters(), lr=0.1) for i in (0, 2)]
            scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
            torch.manual_seed(1)
            for _ in range(3):
                scaler.scale(model(torch.randn(3, 4)).square().mean()).backward()
                for optimizer in optimizers:
                    scaler.step(optimizer)
                scaler.update()
                model.zero_grad()
                step_over()

        return run

    model = build()
    expected = observations(model, course(model), on_nonfinite=None)
    model = build()
    got = observations(model, course(model))
    assert_same(got, expected)
    assert all(abs(o.fields["max"] or 0) < 10 for o in got[-1] if o.tensor == "wgrad")


def test_statistics_go_on_after_detection_has_failed(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def course(model: nn.Module, fails: bool) -> Callable[[Any], None]:
        original, are_over = Journal.tap, list[int]()

        def tap(journal: Journal, entry: Entry, leaves: Leaves) -> None:
            assert not (fails and 1 in are_over), "planted"
            original(journal, entry, leaves)

        monkeypatch.setattr(Journal, "tap", tap)  # before the watch, whose hooks keep what they call

        def run(step_over: Callable[[], None]) -> None:
            def after(step: int) -> None:
                step_over()
                are_over.append(step)

            steps(model, 5, after)
            monkeypatch.setattr(Journal, "tap", original)

        return run

    model = build()
    expected = observations(model, course(model, False), on_nonfinite=None)
    model = build()
    assert_same(observations(model, course(model, True)), expected)
    assert [record.levelname for record in caplog.records if "numscope is off" in record.getMessage()] == ["ERROR"]
    assert_nothing_left()


def test_detection_goes_on_after_statistics_have_failed(reads: list[tuple[Tensor, int]]) -> None:
    model = build()
    with numscope.watch(model, config=config()) as scope:
        assert scope._watch.inspector is not None

        def after(step: int) -> None:
            if step == 1:
                scope._watch.inspector.failed(ValueError("planted"))
                reads.clear()

        steps(model, 3, after)
        assert {groups for _, groups in reads} == {Groups.HEALTH}
        with torch.no_grad():
            model[0].weight[0, 0] = torch.nan
        with pytest.raises(numscope.NonFiniteError):
            steps(model, 1, lambda _: None)
