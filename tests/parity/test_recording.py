"""The recorder: what it leaves of a run, what it keeps, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import numscope
from numscope.parity.judging import judge
from numscope.parity.layout import RecordedLayout
from numscope.parity.recording import RecordedRank, StepRecorder
from numscope.probe import optimizer as optimizer_probe


class Named(nn.Module):
    """Called by keywords, with dropout, and with a layer that some steps leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.spare = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)

    def forward(self, *, x: torch.Tensor, extra: dict[str, torch.Tensor]) -> torch.Tensor:
        made: torch.Tensor = self.drop(self.inner(x)).sum() * extra["scale"].sum()
        return made


def steps(num: int, recorder: StepRecorder | None = None) -> Iterator[Any]:
    torch.manual_seed(1)
    net = Named()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    if recorder is not None:
        recorder.open()
        recorder.add(net)
    for step in range(num):
        optimizer.zero_grad()
        net(x=torch.ones(2, 4) * step, extra={"scale": torch.ones(3, 1)}).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
        yield [p.detach().clone() for p in net.parameters()], torch.get_rng_state()
    yield [module.__dict__["_forward_pre_hooks"] for module in net.modules()], [p._backward_hooks for p in net.parameters()]


def test_a_recorded_run_has_the_bits_of_a_bare_one_and_keeps_no_hook(tmp_path: Path) -> None:
    bare, recorded = list(steps(3)), list(steps(3, StepRecorder(str(tmp_path))))
    for (weights, state), (theirs, their_state) in zip(bare[:-1], recorded[:-1], strict=True):
        assert all(map(torch.equal, weights, theirs)) and torch.equal(state, their_state)
    calls, gradients = recorded[-1]
    assert not any(calls) and not any(gradients)
    assert not optimizer_probe._listeners


def test_arguments_by_keyword_are_the_batch_and_what_has_no_gradient_is_left_out(tmp_path: Path) -> None:
    list(steps(3, StepRecorder(str(tmp_path))))
    found = RecordedRank.read(tmp_path / "rank00000.json")
    assert len(found.steps) == 2 and not found.error
    first = found.steps[0]
    assert {name: (shape, len(rows)) for name, (shape, rows) in first.batch[0].items()} == {"1.x": ([4], 2), "1.extra.scale": ([1], 3)}
    assert set(first.weights.tensors) == {"inner.weight", "inner.bias", "spare.weight", "spare.bias"}
    assert set(first.gradients.tensors) == set(first.clipped.tensors) == set(first.own[0].tensors) == {"inner.weight", "inner.bias"}
    assert first.max_norm == 0.1 and found.dropout == ["drop"] and found.seed == 1


def test_the_steps_end_the_run_where_it_is_asked(tmp_path: Path) -> None:
    def over() -> None:
        raise SystemExit(0)

    with pytest.raises(SystemExit):
        list(steps(9, StepRecorder(str(tmp_path), 3, over=over)))
    assert RecordedLayout.read(tmp_path).num_steps == 3


def test_of_an_optimizer_that_steps_copies_no_step_is_recorded(tmp_path: Path) -> None:
    """Rather than steps without gradients, which would be a fault of the run."""
    net = nn.Linear(4, 4)
    copies = [nn.Parameter(one.detach().clone()) for one in net.parameters()]
    optimizer = torch.optim.SGD(copies, lr=0.1)
    recorder = StepRecorder(str(tmp_path))
    recorder.open()
    recorder.add(net)
    for _ in range(3):
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    recorder.close()
    with pytest.raises(numscope.UsageError, match="holds no recording"):
        RecordedLayout.read(tmp_path)


def test_of_megatrons_distributed_optimizer_gradients_are_not_compared(tmp_path: Path) -> None:
    """Its attributes: each rank steps a part of a copy, and the rest of ``main_grad`` is its own alone."""
    for name in "ab":
        torch.manual_seed(0)
        net = nn.Linear(4, 4)
        for parameter in net.parameters():
            parameter.main_grad = torch.zeros_like(parameter)  # type: ignore[attr-defined]
            parameter.main_param = nn.Parameter(parameter.detach().flatten()[:2].clone())  # type: ignore[attr-defined]
            parameter.main_param_sharded = name == "b"  # type: ignore[attr-defined]
        optimizer = torch.optim.SGD([p.main_param for p in net.parameters()], lr=0.1)  # type: ignore[attr-defined]
        recorder = StepRecorder(str(tmp_path / name))
        recorder.open()
        recorder.add(net)
        for _ in range(2):
            net(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        recorder.close()
    found = judge(*(RecordedLayout.read(tmp_path / name) for name in "ab"))
    assert (found.kind, found.text) == ("not comparable", "no gradient is there in both runs as a whole.")
    assert "2 gradients not compared, of which ranks hold summands (Partial) or unknown parts: the first is that of bias" in found.notes


def test_an_own_error_is_kept_and_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: StepRecorder) -> Any:
        raise RuntimeError("planted")

    monkeypatch.setattr(StepRecorder, "_gradients", broken)
    assert len(list(steps(2, StepRecorder(str(tmp_path))))) == 3
    with pytest.raises(numscope.UsageError, match="rank 0 has recorded no step: RuntimeError: planted"):
        RecordedLayout.read(tmp_path)


def test_weights_that_are_moved_by_one_unit_give_gradients_that_are_near(tmp_path: Path) -> None:
    for name, disturb in (("a", False), ("b", True)):
        list(steps(2, StepRecorder(str(tmp_path / name), disturb=disturb)))
    a, b = (RecordedLayout.read(tmp_path / name) for name in ("a", "b"))
    left, right = (one.whole(0, "weights", "inner.weight") for one in (a, b))
    assert left is not None and right is not None and left.checksum != right.checksum
    assert judge(a, a, b).kind is None


@pytest.mark.parametrize("text", ["", "{}", '{"parity": 2}', '{"parity": 1, "steps": [3]}', '{"parity": 1, "steps": [], "strange": 1}'])
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "rank00000.json").write_text(text)
    with pytest.raises(numscope.UsageError, match="expected a recording of numscope parity"):
        RecordedLayout.read(tmp_path)


def test_a_folder_without_a_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(numscope.UsageError, match=r"holds no recording, expected one of numscope parity, with a file for each rank\."):
        RecordedLayout.read(tmp_path)


def test_a_recording_is_json_without_code(tmp_path: Path) -> None:
    list(steps(2, StepRecorder(str(tmp_path))))
    told = json.loads((tmp_path / "rank00000.json").read_text())
    assert told["parity"] == 1 and len(told["steps"]) == 2


@pytest.mark.parametrize("first", ["torch", "titan", "hand"])
@pytest.mark.parametrize("second", ["torch", "titan", "hand"])
def test_clipping_by_whatever_means_is_the_same(tmp_path: Path, first: str, second: str) -> None:
    found = judge(*(clipped_by(tmp_path / str(i), way, 0.1) for i, way in enumerate((first, second))))
    assert found.kind is None and "4 gradients over 2 steps" in found.text
    by_itself = {"hand"} & {first, second} and first != second
    run = "first" if first == "hand" else "second"
    assert found.notes == ((f"the {run} run clips gradients by itself, so they are compared as they were clipped",) if by_itself else ())


@pytest.mark.parametrize("second", ["titan", "hand"])
def test_clipping_by_another_norm_is_named(tmp_path: Path, second: str) -> None:
    found = judge(clipped_by(tmp_path / "0", "torch", 0.1), clipped_by(tmp_path / "1", second, 0.05))
    assert found.kind == ("clip norm" if second == "titan" else "factor"), found


def clipped_by(folder: Path, way: str, most: float) -> RecordedLayout:
    """Two steps of a model, clipped by torch's function, by its two halves, or by arithmetic."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    recorder = StepRecorder(str(folder))
    recorder.open()
    recorder.add(net)
    for step in range(2):
        optimizer.zero_grad()
        (net(torch.randn(16, 8, generator=torch.Generator().manual_seed(step))) - 3).square().mean().backward()
        gradients = [p.grad for p in net.parameters() if p.grad is not None]
        if way == "torch":
            nn.utils.clip_grad_norm_(net.parameters(), most)
        elif way == "titan":
            nn.utils.clip_grads_with_norm_(net.parameters(), most, nn.utils.get_total_norm(gradients))
        else:
            norm = torch.stack([g.norm() for g in gradients]).norm()
            for g in gradients:
                g.mul_(torch.clamp(most / (norm + 1e-6), max=1.0))
        optimizer.step()
    recorder.close()
    return RecordedLayout.read(folder)


class Part(nn.Module):
    """Some layers of a model, under the names that they have in the whole."""

    def __init__(self, layers: dict[str, nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers.values():
            x = torch.tanh(layer(x))
        return x


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_parts_that_are_called_in_turn_are_compared_with_the_whole(tmp_path: Path, micro_batches: int) -> None:
    """As the stages of a pipeline that a script drives by itself. A part is known from its first call on."""

    def run(folder: Path, cuts: list[str], num: int) -> RecordedLayout:
        torch.manual_seed(0)
        layers: dict[str, nn.Module] = {str(i): nn.Linear(4, 4) for i in range(4)}
        parts = [Part({name: layers[name] for name in cut}) for cut in cuts]
        optimizer = torch.optim.SGD([p for part in parts for p in part.parameters()], lr=0.1)
        recorder = StepRecorder(str(folder))
        recorder.open()
        for step in range(2):
            optimizer.zero_grad()
            made = [*torch.randn(16, 4, generator=torch.Generator().manual_seed(step)).chunk(num)]
            for part in parts:
                if step == 0:
                    recorder.add(part)
                made = [part(one) for one in made]
            sum(((one - 1).square().mean() / num for one in made), torch.zeros(())).backward()
            optimizer.step()
        recorder.close()
        return RecordedLayout.read(folder)

    found = judge(run(tmp_path / "0", ["0123"], 1), run(tmp_path / "1", ["01", "23"], micro_batches))
    assert found.kind is None and "8 gradients over 2 steps" in found.text, found
