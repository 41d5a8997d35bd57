"""Our features in the real nvdlfw-inspect, driven by the calls that Transformer Engine's modules make."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor

pytest.importorskip("nvdlfw_inspect")

import nvdlfw_inspect.api as debug_api

import numscope
from numscope.config.plan import Schedule
from numscope.integrations.transformer_engine import collecting, feature_dirs, findings
from numscope.records.errors import NonFiniteError, UsageError
from tests.distributed.ranks import RankPool

STAND_IN = str(Path(__file__).parent / "te_namespace")
STATS = "[min, max, mean, std, l2_norm, cur_amax, fp16_underflows_pct]"


def config(features: str) -> str:
    return f"fc:\n  enabled: True\n  layers: {{layer_name_regex_pattern: '.*fc1'}}\n  transformer_engine:\n{features}"


def stats(tensors: str = "[activation, gradient, weight]", more: str = "") -> str:
    return config(f"    NumscopeStats: {{enabled: True, stats: {STATS}, tensors: {tensors}{more}}}\n")


def start(folder: Path, text: str, **options: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.yaml"
    path.write_text(text)
    debug_api.initialize(
        config_file=str(path),
        feature_dirs=[STAND_IN, *feature_dirs(log_dir=folder / "ours", **options)],
        log_dir=str(folder),
        default_logging_enabled=True,
    )


def finish() -> None:
    debug_api.end_debug()
    for name in ("nvdlfw_inspect", "Default Statistics"):  # it adds a handler for each run
        for handler in list(logging.getLogger(name).handlers):
            logging.getLogger(name).removeHandler(handler)
            handler.close()


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., None]]:
    yield lambda text, **options: start(tmp_path, text, **options)
    finish()


def step_number() -> int:
    number: int = debug_api.DEBUG_MANAGER._trainer_iteration_count
    return number


class Linear:
    """Makes the calls of a Transformer Engine module: routing calls before a tensor, the tensor where they want it."""

    def __init__(self, name: str, features: int = 8, tp_group: Any = None) -> None:
        self.name, self.tp_group = name, tp_group
        self.weight = torch.randn(features, features, generator=torch.Generator().manual_seed(0))
        self.shown: list[tuple[str, Tensor]] = []
        self.answers: list[Any] = []

    def show(self, name: str, tensor: Tensor) -> None:
        about = {"layer_name": self.name, "tensor_name": name, "iteration": step_number()}
        answer = debug_api.transformer_engine.inspect_tensor_enabled(**about)
        self.answers.append(answer)
        if answer[0] if isinstance(answer, tuple) else answer:
            self.shown.append((name, tensor))
            # newer versions hand over the quantized tensors too
            newer = {"rowwise_quantized_tensor": None, "columnwise_quantized_tensor": None, "quantizer": None}
            debug_api.transformer_engine.inspect_tensor(**about, tensor=tensor, tp_group=self.tp_group, **newer)

    def forward(self, x: Tensor) -> Tensor:
        self.show("activation", x)
        self.show("weight", self.weight)
        return x @ self.weight.T

    def backward(self, gradient: Tensor) -> Tensor:
        self.show("gradient", gradient)
        return gradient @ self.weight

    def micro_batch(self, seed: int, rows: int = 5) -> None:
        generator = torch.Generator().manual_seed(seed)
        y = self.forward(torch.randn(rows, 8, generator=generator))
        self.backward(torch.randn(y.shape, generator=generator) * 1e-7)


def logged(path: Path) -> dict[str, dict[int, float]]:
    """Values of a text log by name and step."""
    found: dict[str, dict[int, float]] = {}
    for name, step, value in re.findall(r"INFO - (\S+)\s+iteration=(\d+)\s+value=(\S+)", path.read_text()):
        found.setdefault(name, {})[int(step)] = float(value)
    return found


def ours(folder: Path, rank: int = 0) -> dict[str, dict[int, float]]:
    return logged(folder / "ours" / "debug_statistics_logs" / f"globalrank-{rank}.log")


def expected(parts: list[Tensor]) -> dict[str, float]:
    x = torch.cat([part.reshape(-1) for part in parts]).double().numpy()
    small = torch.cat([part.reshape(-1) for part in parts])
    underflows = ((small.half().float() == 0) & (small != 0)).double().mean().item() * 100
    return {
        "min": x.min(),
        "max": x.max(),
        "mean": x.mean(),
        "std": x.std(),
        "l2_norm": np.sqrt((x**2).sum()),
        "cur_amax": np.abs(x).max(),
        "fp16_underflows_pct": underflows,
    }


def test_statistics_are_of_all_micro_batches_and_go_to_both_tools_logs(begin: Any, tmp_path: Path) -> None:
    class Kept:
        def __init__(self) -> None:
            self.names: list[str] = []

        def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
            self.names.append(name)

    class Writer:
        def __init__(self) -> None:
            self.names: list[str] = []

        def add_scalar(self, tag: str, value: float, step: int) -> None:
            self.names.append(tag)

    kept, writer = Kept(), Writer()
    begin(stats(), loggers=[kept], tb_writer=writer)
    layer, other = Linear("decoder.fc1"), Linear("decoder.fc2")
    for step in range(2):
        for micro in range(3):
            layer.micro_batch(10 * step + micro, rows=4 + micro)
            other.micro_batch(7)
        debug_api.step()
    finish()
    found = ours(tmp_path)
    assert {name.rsplit("_activation", 1)[0] for name in found if "_activation" in name} == {"decoder.fc1"}
    for tensor in ("activation", "gradient", "weight"):
        parts = [t for name, t in layer.shown if name == tensor]
        for step in range(2):
            wanted = expected(parts[3 * step : 3 * step + 3] if tensor != "weight" else parts[:1])
            for stat, value in wanted.items():
                assert found[f"decoder.fc1_{tensor}_{stat}"][step] == pytest.approx(value, rel=1e-6), (tensor, stat)
    theirs = logged(tmp_path / "nvdlfw_inspect_statistics_logs" / "nvdlfw_inspect_globalrank-0.log")
    assert theirs.keys() == found.keys() == set(kept.names) == set(writer.names)
    assert theirs["decoder.fc1_activation_max"][1] == pytest.approx(found["decoder.fc1_activation_max"][1], abs=1e-4)
    kept_run = numscope.load(str(tmp_path / "ours"))
    assert set(kept_run["layer"]) == {"decoder.fc1"}


@pytest.mark.parametrize("tells_next", [True, False])
def test_layers_are_asked_for_tensors_on_schedule_alone(begin: Any, monkeypatch: pytest.MonkeyPatch, tells_next: bool) -> None:
    monkeypatch.setenv("TE_TELLS_NEXT", str(int(tells_next)))
    begin(stats("[activation]", ", freq: 2, start_step: 1, end_step: 5"))
    layer = Linear("fc1")
    for _ in range(7):
        layer.show("activation", torch.ones(3))
        debug_api.step()
    now = [False, False, True, False, True, False, False]
    assert layer.answers == (list(zip(now, [2, 2, 4, 4, None, None, None], strict=True)) if tells_next else now)
    assert len(layer.shown) == 2


@pytest.mark.parametrize(
    ("schedule", "after", "step"),
    [
        (Schedule(), 3, 4),
        (Schedule(5, ((7, None),)), 0, 10),
        (Schedule(5, ((0, 9),)), 5, None),
        (Schedule(2, ((0, 3), (7, None))), 2, 8),
    ],
)
def test_next_step_is_the_first_active_one(schedule: Schedule, after: int, step: int | None) -> None:
    assert schedule.next(after) == step
    assert step == next((s for s in range(after + 1, 100) if schedule.active(s)), None)


def test_tensors_may_have_settings_each(begin: Any, tmp_path: Path) -> None:
    text = "[{tensor: activation, stats: [max]}, {tensor: weight, stats: [min], freq: 2}]"
    begin(config(f"    NumscopeStats: {{enabled: True, tensors_struct: {text}}}\n"))
    layer = Linear("fc1")
    for step in range(2):
        layer.micro_batch(step)
        debug_api.step()
    assert {name: list(steps) for name, steps in ours(tmp_path).items()} == {"fc1_activation_max": [0, 1], "fc1_weight_min": [0]}


def test_the_last_step_is_written_at_the_end(begin: Any, tmp_path: Path) -> None:
    begin(stats("[activation]"))
    Linear("fc1").micro_batch(0)
    finish()
    assert list(ours(tmp_path)["fc1_activation_max"]) == [0]


def test_example_of_the_docs_runs(begin: Any, tmp_path: Path) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "transformer-engine.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", docs, re.DOTALL)
    begin(example)
    Linear("fc1").micro_batch(0)
    debug_api.step()
    assert {"fc1_weight_e4m3_underflows_pct", "fc1_gradient_dynamic_range"} <= ours(tmp_path).keys()


# ---- findings


ALARM = "    NumscopeNonFinite: {enabled: True, tensors: [activation, gradient], on_nonfinite: %s}\n"


def test_first_nonfinite_tensor_of_a_step_is_a_finding(begin: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    begin(config(ALARM % "warn"))
    one, two = Linear("a.fc1"), Linear("b.fc1")
    for step in range(3):
        one.forward(torch.ones(2, 8))
        x = torch.ones(2, 8)
        if step == 1:
            x[1, 3:5] = float("inf")
        two.backward(two.forward(x) * float(step != 1))
        debug_api.step()
    (finding,) = findings()
    assert (finding.step, finding.site.module, finding.site.slot, finding.kind.value) == (1, "b.fc1", "activation", "inf")
    assert finding.numbers is not None
    assert (finding.numbers.num_pos_inf, finding.numbers.shape) == (2, (2, 8))
    assert finding.note == "1 more tensors were non-finite after it in this step"
    finish()
    assert "inf in b.fc1 activation (forward) at step 1" in (tmp_path / "ours" / "debug_logs" / "globalrank-0.log").read_text()
    assert "b.fc1" in (tmp_path / "ours" / "findings-rank0.json").read_text()
    assert "b.fc1" in capfd.readouterr().err


def test_raise_stops_the_run_at_the_end_of_the_step(begin: Any) -> None:
    begin(config(ALARM % "raise" + f"    NumscopeStats: {{enabled: True, stats: {STATS}, tensors: [gradient]}}\n"))
    layer = Linear("fc1")
    layer.micro_batch(0)
    debug_api.step()
    layer.backward(torch.full((2, 8), float("nan")))
    with pytest.raises(NonFiniteError, match=r"^nan in fc1 gradient \(backward\) at step 1"):
        debug_api.step()


# ---- what goes wrong


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (stats().replace("l2_norm", "l2norm"), r'^NumscopeStats\.stats\[4\]: got "l2norm", expected one of .* Did you mean "l2_norm"\?$'),
        (stats(more=", frequency: 2"), r"NumscopeStats\.frequency"),
        (config(ALARM % "stop"), r"^NumscopeNonFinite\.on_nonfinite: got 'stop', expected 'warn' or 'raise'\.$"),
    ],
)
def test_wrong_setting_is_refused_when_a_layer_first_asks(begin: Any, text: str, message: str) -> None:
    begin(text)
    with pytest.raises(UsageError, match=message):
        Linear("fc1").micro_batch(0)


def test_an_error_of_ours_is_said_once_and_training_goes_on(begin: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begin(stats("[activation]"))

    def broken(*_: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(collecting.at_work()._sites, "observe", broken)
    layer = Linear("fc1")
    for step in range(2):
        layer.micro_batch(step)
        debug_api.step()
    finish()
    text = (tmp_path / "ours" / "debug_logs" / "globalrank-0.log").read_text()
    assert text.count("no more of Transformer Engine's tensors: RuntimeError: broken") == 1


def test_folder_of_an_installed_transformer_engine_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "transformer_engine" / "debug" / "features"
    folder.mkdir(parents=True)
    (tmp_path / "transformer_engine" / "__init__.py").write_text("raise RuntimeError('it is not to be imported')")
    (alone,) = feature_dirs()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert feature_dirs() == [str(folder), alone]
    assert os.path.isfile(os.path.join(alone, "numscope_features.py"))
    assert "transformer_engine" not in sys.modules


# ---- ranks


def on_ranks(rank: int, folder: str, shared: bool) -> list[Tensor]:
    path = Path(folder) / str(rank)
    start(path, stats(more=", freq: 2"))
    if shared:
        debug_api.set_tensor_reduction_group(dist.group.WORLD)
    layer = Linear("fc1", tp_group=dist.group.WORLD)
    layer.weight = layer.weight[4 * rank : 4 * rank + 4].repeat(2, 1) * (1 + rank)
    other = Linear("rank1.fc1")
    for step in range(3):
        layer.micro_batch(2 * step + rank, rows=3 + rank)
        if rank:
            other.forward(torch.ones(2, 8))  # only there
        debug_api.step()
    finish()
    return layer.shown


@pytest.mark.parametrize("shared", [True, False])
def test_ranks_merge_data_over_the_set_group_and_weights_over_tensor_parallelism(ranks: RankPool, tmp_path: Path, shared: bool) -> None:
    shown = [t.value for t in ranks.run(on_ranks, str(tmp_path), shared)]
    found = [ours(tmp_path / str(rank), rank) for rank in range(2)]
    assert not any("rank1.fc1" in name for name in found[0])
    assert sorted(found[1]["rank1.fc1_activation_max"]) == [0, 2]

    def parts(rank: int, tensor: str, number: int) -> Tensor:
        return [t for name, t in shown[rank] if name == tensor][number]

    for number, step in enumerate((0, 2)):
        for tensor in ("activation", "gradient", "weight"):
            whole = tensor == "weight" or shared
            for stat, value in expected([parts(r, tensor, number) for r in ((0, 1) if whole else (0,))]).items():
                assert found[0][f"fc1_{tensor}_{stat}"][step] == pytest.approx(value, rel=1e-6), (tensor, stat)
            assert (f"fc1_{tensor}_max" in found[1]) is not whole


def failing_on_rank_1(rank: int, folder: str, what: str) -> list[Tensor]:
    start(Path(folder) / str(rank), stats("[activation]"))
    debug_api.set_tensor_reduction_group(dist.group.WORLD)

    def broken(*_: Any) -> None:
        raise RuntimeError("broken")

    if rank:
        setattr(collecting.at_work()._sites, what, broken)
    layer = Linear("fc1")
    for step in range(3):
        layer.micro_batch(2 * step + rank)
        debug_api.step()
    finish()
    return layer.shown


@pytest.mark.parametrize("what", ["observe", "read"])
def test_a_rank_on_which_ours_failed_keeps_no_other_rank_waiting(ranks: RankPool, tmp_path: Path, what: str) -> None:
    shown = [t.value for t in ranks.run(failing_on_rank_1, str(tmp_path), what)]
    found = ours(tmp_path / "0")
    for step in range(3):
        for stat, value in expected([shown[0][step][1]]).items():
            assert found[f"fc1_activation_{stat}"][step] == pytest.approx(value, rel=1e-6), stat
    text = (tmp_path / "1" / "ours" / "debug_logs" / "globalrank-1.log").read_text()
    assert text.count("no more of Transformer Engine's tensors: RuntimeError: broken") == 1
