"""``nvdlfw_inspect``'s interface, beside the tool itself: the same calls, the same lines, and where the two differ."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

import numscope.compat.nvdlfw_inspect as whole
import numscope.compat.nvdlfw_inspect.api as debug_api
from numscope.compat.nvdlfw_inspect.logging import BaseLogger, wrap_tensorboard_writer
from numscope.records.errors import UsageError
from tests.compat.debugging import Logged, batch, model, read_log, section, sgd, train_step

SIX = ["min", "max", "mean", "std", "l1_norm", "l2_norm"]
CONFIG: dict[str, Any] = {
    "stats": {
        "enabled": True,
        "layers": {"layer_name_regex_pattern": ".*(fc1|qkv)"},
        "LogTensorStats": {
            "enabled": True,
            "tensors_struct": [
                {"tensor": "activation", "stats": SIX, "freq": 2, "start_step": 2, "end_step": 6},
                {"tensor": "weight", "stats": ["max"], "freq": 1, "start_end_list": [[0, 1], [4, 6]]},
            ],
        },
    },
    "off": {
        "enabled": False,
        "layers": {"layer_types": ["fc2"]},
        "LogTensorStats": {"enabled": True, "stats": ["max"], "tensors": ["weight"]},
    },
}
LOGS = ("nvdlfw_inspect_logs", "nvdlfw_inspect_statistics_logs")
FILE = "nvdlfw_inspect_globalrank-0.log"


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    debug_api.end_debug()


def script(api: ModuleType, config: Any, folder: Path, tensors: Sequence[Tensor]) -> list[dict[str, Any]]:
    """A script that hands its tensors in, by either tool; what the calls return."""
    folder.mkdir(exist_ok=True)
    if isinstance(config, dict):
        path = folder / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        config = str(path)
    api.initialize(config_file=config, log_dir=str(folder))
    found = []
    for tensor in tensors:
        for layer in ("decoder.1.fc1", "decoder.1.proj", "decoder.2.qkv"):
            for name in ("activation", "weight"):
                found.append(api.log_tensor_stats(layer, tensor=tensor, tensor_name=name))
        api.step()
    api.end_debug()
    return found


def tensors(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(33, 17, generator=generator).to(dtype) for _ in range(8)]


@pytest.fixture(scope="module")
def theirs() -> ModuleType:
    pytest.importorskip("nvdlfw_inspect")
    return importlib.import_module("nvdlfw_inspect.api")


@pytest.fixture(scope="module")
def both(theirs: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One script by both tools. Theirs can be initialized well only once a process: its handlers add up."""
    folder = tmp_path_factory.mktemp("both")
    return {
        "theirs": script(theirs, CONFIG, folder / "theirs", tensors()),
        "ours": script(debug_api, CONFIG, folder / "ours", tensors()),
        "folder": folder,
    }


def logged(both: dict[str, Any], whose: str) -> list[Logged]:
    return read_log(both["folder"] / whose / LOGS[1] / FILE)


# ---- side by side


def test_logs_lie_where_theirs_do(both: dict[str, Any]) -> None:
    for whose in ("theirs", "ours"):
        assert [(both["folder"] / whose / folder / FILE).is_file() for folder in LOGS] == [True, True]


def test_lines_have_the_same_names_and_iterations_but_for_the_end_of_a_list(both: dict[str, Any]) -> None:
    """The end of a pair in start_end_list is the last step here, as end_step is in both; there it is the first step without."""
    ours, theirs = ({(line.name, line.step) for line in logged(both, whose)} for whose in ("ours", "theirs"))
    assert theirs < ours
    assert ours - theirs == {(f"decoder.{layer}_weight_max", step) for layer in ("1.fc1", "2.qkv") for step in (1, 6)}
    assert {step for name, step in theirs if "activation" in name} == {2, 4, 6}


def test_values_agree_to_the_digits_that_theirs_have(both: dict[str, Any]) -> None:
    ours = {(line.name, line.step): line.value for line in logged(both, "ours")}
    for line in logged(both, "theirs"):
        difference = abs(ours[line.name, line.step] - line.value)
        assert difference <= 0.5001e-4 + 1e-6 * abs(line.value)  # %.4f of a sum in float32


def test_values_have_all_their_digits_here(both: dict[str, Any]) -> None:
    exact = tensors()[2].double()
    ours = {line.name: line.value for line in logged(both, "ours") if line.step == 2}
    for stat, value in {"mean": exact.mean(), "std": exact.std(), "l1_norm": exact.norm(1), "l2_norm": exact.norm(2)}.items():
        assert ours[f"decoder.1.fc1_activation_{stat}"] == pytest.approx(value.item(), rel=1e-8)


def test_calls_return_the_same_statistics(both: dict[str, Any]) -> None:
    compared = 0
    for ours, theirs in zip(both["ours"], both["theirs"], strict=True):
        if theirs:
            assert list(ours) == list(theirs)
            compared += 1
        for stat, value in theirs.items():
            assert torch.allclose(ours[stat], value, rtol=1e-6, atol=1e-7)
            assert ours[stat].item() == pytest.approx(value.item(), rel=1e-5, abs=1e-7)
    assert compared == 2 * (3 + 3)


def test_section_that_is_off_logs_nothing_in_either(both: dict[str, Any]) -> None:
    for whose in ("ours", "theirs"):
        assert not [line for line in logged(both, whose) if "fc2" in line.name]


# ---- where they differ


def differing(theirs: ModuleType, tmp_path: Path, values: Tensor, stats: list[str]) -> tuple[dict[str, Any], dict[str, Any], list[Logged]]:
    """What either tool returns of one tensor, and ours logs."""
    config = {
        "s": {
            "enabled": True,
            "layers": {"layer_types": ["fc1"]},
            "LogTensorStats": {"enabled": True, "stats": stats, "tensors": ["weight"], "freq": 1},
        }
    }
    found = [script(api, config, tmp_path / name, [values])[1] for name, api in (("theirs", theirs), ("ours", debug_api))]
    return found[0], found[1], read_log(tmp_path / "ours" / LOGS[1] / FILE)


def test_small_value_is_written_as_it_is_where_theirs_writes_zero(theirs: ModuleType, both: dict[str, Any], tmp_path: Path) -> None:
    _, _, lines = differing(theirs, tmp_path, torch.full((3,), 3e-7), ["max"])
    assert lines[0].value == pytest.approx(3e-7, rel=1e-6)
    assert f"{3e-7:.4f}" == "0.0000"  # their format


def test_statistics_are_over_the_finite_elements_where_one_nan_takes_all_of_theirs(
    theirs: ModuleType, both: dict[str, Any], tmp_path: Path
) -> None:
    there, here, _ = differing(theirs, tmp_path, torch.tensor([1.0, math.nan, 3.0]), ["max", "mean"])
    assert math.isnan(there["max"]) and math.isnan(there["mean"])
    assert here == {"max": 3.0, "mean": 2.0}


def test_bfloat16_sums_are_exact_where_theirs_are_rounded_to_bfloat16(theirs: ModuleType, both: dict[str, Any], tmp_path: Path) -> None:
    values = torch.linspace(0.5, 1.5, 1001).bfloat16()
    there, here, _ = differing(theirs, tmp_path, values, ["mean", "l1_norm"])
    exact = values.double().mean().item()
    assert here["mean"] == pytest.approx(exact, rel=1e-12)
    assert abs(there["l1_norm"].item() / values.double().sum().item() - 1) > 1e-4


def test_missing_config_is_an_error_where_theirs_runs_without(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        debug_api.initialize(config_file=str(tmp_path / "none.yaml"), log_dir=str(tmp_path))


# ---- the interface over a model


WATCHED = section(
    layers={"layer_types": ["fc1"]}, LogTensorStats={"enabled": True, "stats": ["max", "std"], "tensors": ["activation", "weight"]}
)


def test_layers_are_collected_without_a_call_a_tensor(tmp_path: Path) -> None:
    debug_api.initialize(WATCHED, log_dir=str(tmp_path), init_training_step=7)
    net = model()
    optimizer = sgd(net)
    for step in range(2):
        train_step(net, optimizer, step)
        debug_api.step()
    debug_api.end_debug()
    lines = read_log(tmp_path / LOGS[1] / FILE)
    assert {(line.name, line.step) for line in lines} == {
        (f"layers.{i}.fc1_{tensor}_{stat}", step)
        for i in range(2)
        for tensor in ("activation", "weight")
        for stat in ("max", "std")
        for step in (7, 8)
    }
    assert next(line.value for line in lines) == pytest.approx(batch(0).max().item(), rel=1e-8)
    assert "layers.0.fc1 (Linear)" in (tmp_path / LOGS[0] / FILE).read_text()


class Mine(BaseLogger):
    def __init__(self) -> None:
        self.got: list[tuple[str, float, int]] = []

    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        self.got.append((name, value, iteration))


@pytest.mark.parametrize("also", [False, True])
def test_logger_takes_the_place_of_the_text_log_unless_both_are_wanted(tmp_path: Path, also: bool) -> None:
    logger = Mine()
    debug_api.initialize(WATCHED, statistics_logger=logger, log_dir=str(tmp_path), default_logging_enabled=also)
    net = model()
    train_step(net, sgd(net), 0)
    debug_api.end_debug()
    assert ("layers.0.fc1_activation_max", batch(0).max().item(), 0) in logger.got
    assert (tmp_path / LOGS[1] / FILE).exists() is also


def test_wrapped_writer_is_a_logger(tmp_path: Path) -> None:
    class Writer:
        def add_scalar(self, name: str, value: float, step: int) -> None:
            got.append((name, step))

    got: list[tuple[str, int]] = []
    debug_api.initialize(WATCHED, statistics_logger=wrap_tensorboard_writer(Writer()), log_dir=str(tmp_path))
    net = model()
    train_step(net, sgd(net), 0)
    debug_api.end_debug()
    assert ("layers.1.fc1_weight_std", 0) in got


@pytest.mark.parametrize("logger", [Mine, object()])
def test_what_is_no_logger_is_refused(logger: object) -> None:
    with pytest.raises(UsageError, match=r"^statistics_logger: got .*, expected an object with log_scalar\(name, value, iteration\)\.$"):
        debug_api.initialize(WATCHED, statistics_logger=logger)


def test_feature_dirs_are_searched_for_decorated_functions(tmp_path: Path) -> None:
    folder = tmp_path / "features" / "inner"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text("import numscope\n@numscope.statistic('spread_of_dirs')\ndef f(s): return s.max - s.min\n")
    config = section(
        layers={"layer_types": ["fc1"]}, LogTensorStats={"enabled": True, "stats": ["spread_of_dirs"], "tensors": ["activation"]}
    )
    debug_api.initialize(config, feature_dirs=[str(tmp_path / "features")], log_dir=str(tmp_path))
    net = model()
    train_step(net, sgd(net), 0)
    debug_api.end_debug()
    assert {line.name for line in read_log(tmp_path / LOGS[1] / FILE)} == {f"layers.{i}.fc1_activation_spread_of_dirs" for i in range(2)}


def test_default_initialization_is_the_bare_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    debug_api.initialize()
    net = model()
    train_step(net, sgd(net), 0)
    debug_api.end_debug()
    assert list(tmp_path.iterdir()) == []


def test_both_interfaces_are_one_session(tmp_path: Path) -> None:
    import numscope.compat.debug_tool as debug_tool

    debug_tool.initialize_debug(None)
    with pytest.raises(UsageError, match=r"^initialize: called a second time"):
        whole.initialize()
    assert whole.step is debug_tool.step


def test_each_public_function_of_theirs_is_there(theirs: ModuleType) -> None:
    public = {
        name for name, value in vars(theirs).items() if callable(value) and not re.match(r"_|[A-Z]|initialize_logger|get_logger", name)
    }
    assert public <= set(debug_api.__all__) | {"log_tensor_stats"}
    assert debug_api.__all__ == whole.__all__
