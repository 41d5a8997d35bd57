"""Every YAML example of the debug module's document, run as it stands on a model with layers of those names: outputs are where it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.compat import debug_tool
from numscope.precision.gemm.conversion import convert

EXAMPLES = sorted((Path(__file__).parent / "document").glob("*.yaml"))
LINE = re.compile(r"INFO - (\S+)_(activation|weight|gradient)_(\w+)\s+iteration=(\d{6})\s+value=(\S+)")


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 8)
        self.mlp = Mlp()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mlp(self.qkv(x))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(13))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def train(model: nn.Module, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(2, 8)).square().mean().backward()
        optimizer.step()


def converted(recipe: str = "delayed") -> Decoder:
    torch.manual_seed(0)
    model = Decoder()
    convert(model, recipe)
    return model


def weights_after(model: Decoder, steps: int = 3) -> list[Tensor]:
    torch.manual_seed(1)
    train(model, steps)
    return [parameter.detach().clone() for parameter in model.parameters()]


def lines(log_dir: Path) -> list[tuple[str, str, str, int, float]]:
    path = log_dir / "debug_statistics_logs" / "globalrank-0.log"
    text = path.read_text() if path.exists() else ""
    found = [LINE.fullmatch(line) for line in text.splitlines()]
    return [(m[1], m[2], m[3], int(m[4]), float(m[5])) for m in found if m is not None]


# What an example logs: layer's last name, tensor, statistic, at which steps.
WANTED = {
    "stat_collection": (
        {(fc, "activation", s) for fc in ("fc1", "fc2") for s in ("l1_norm", "l2_norm")}
        | {(fc, t, s) for fc in ("fc1", "fc2") for t in ("activation", "gradient") for s in ("cur_amax", "dynamic_range")},
        {0, 100},
    ),
    "statistics": (
        {(fc, t, s) for fc in ("fc1", "fc2", "qkv") for t in ("activation", "gradient", "weight")
         for s in ("min", "max", "mean", "std", "l1_norm", "l2_norm", "cur_amax", "dynamic_range")},
        {1000},
    ),
}  # fmt: skip


def kind_of(path: Path) -> str:
    text = path.read_text()
    return "stat_collection" if "stat_collection" in text else "statistics" if "collect_tensor_stats" in text else "nothing"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_as_it_stands(path: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Decoder()
    wanted, steps = WANTED.get(kind_of(path), (set(), set()))
    with numscope.watch(model, config=path, on_nonfinite=None, log_dir=str(tmp_path)) as scope:
        if steps == {1000}:  # the run says that it goes on from a checkpoint
            scope.begin_at(999)
            train(model, 3)
        else:
            train(model, 102)
    found = lines(tmp_path)
    assert {(layer.rsplit(".", 1)[-1], tensor, stat) for layer, tensor, stat, _, _ in found} == wanted
    assert {step for *_, step, _ in found} == steps
    log = (tmp_path / "debug_logs" / "globalrank-0.log").read_text()
    assert "layers.3.mlp.fc1 (Linear)" in log or not wanted


def test_documents_last_example_by_its_own_interface(tmp_path: Path) -> None:
    (path,) = [p for p in EXAMPLES if kind_of(p) == "stat_collection"]
    debug_tool.initialize_debug(config=str(path), extensions=["transformer_engine"], log_dir=str(tmp_path))
    try:
        torch.manual_seed(0)
        model = Decoder()
        for module_name, module in model.named_modules():
            if module_name.endswith(("fc1", "fc2")):
                module.name = f"model.decoder.{module_name}"  # as Linear(name=…) has it
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(101):
            optimizer.zero_grad()
            model(torch.randn(2, 8)).square().mean().backward()
            optimizer.step()
            debug_tool.step()
    finally:
        debug_tool.end_debug()
    found = lines(tmp_path)
    assert {layer for layer, *_ in found} == {f"model.decoder.layers.{i}.mlp.{fc}" for i in range(13) for fc in ("fc1", "fc2")}
    assert {step for *_, step, _ in found} == {0, 100}


# ---- the fp8 parts, on a model whose linear layers are fp8


def example(stem: str) -> Path:
    (path,) = [path for path in EXAMPLES if path.stem == stem]
    return path


@pytest.mark.parametrize(
    ("stem", "recipe"),
    [("disabling_fp8_gemms", "high_precision"), ("disabling_fp8_layers", "high_precision"), ("per_tensor_scaling", "current")],
)
def test_precision_example_makes_the_model_bitwise_what_it_says(stem: str, recipe: str, tmp_path: Path) -> None:
    fp8, expected = weights_after(converted()), weights_after(converted(recipe))
    assert not all(torch.equal(a, b) for a, b in zip(fp8, expected, strict=True))
    model = converted()
    with numscope.watch(model, config=example(stem), on_nonfinite=None, log_dir=str(tmp_path)):
        found = weights_after(model)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert lines(tmp_path) == []
    words = {"current": "fprop e4m3fn current × e4m3fn current", "high_precision": "fprop high precision"}
    assert f"layers.12.mlp.fc2 (Linear): {words[recipe]}" in (tmp_path / "debug_logs" / "globalrank-0.log").read_text()


@pytest.mark.parametrize("stem", ["performance", "statistics_collection"])
def test_fp8_statistics_of_an_example_are_logged_of_fp8_layers(stem: str, tmp_path: Path) -> None:
    model = converted()
    with numscope.watch(model, config=example(stem), on_nonfinite=None, log_dir=str(tmp_path)) as scope:
        if stem == "statistics_collection":
            scope.begin_at(999)
        train(model, 3)
    generic, _ = WANTED["stat_collection" if stem == "performance" else "statistics"]
    layers, tensors = {layer for layer, *_ in generic}, {tensor for _, tensor, stat in generic if stat == "cur_amax"}
    fp8 = {(layer, tensor, stat) for layer in layers for tensor in tensors for stat in ("underflows", "overflows")}
    found = lines(tmp_path)
    assert {(layer.rsplit(".", 1)[-1], tensor, stat) for layer, tensor, stat, _, _ in found} == generic | fp8
    assert len(found) == len(generic | fp8) * 13  # once a layer, at step 0 or 1000
    assert all(0 <= value <= 100 for *_, stat, _, value in found if stat in ("underflows", "overflows"))


@pytest.mark.parametrize("built_first", [True, False])
def test_documents_own_interface_switches_fp8_modules_whenever_they_are_built(built_first: bool, tmp_path: Path) -> None:
    expected = weights_after(converted("high_precision"))
    model = converted() if built_first else None
    debug_tool.initialize_debug(config=str(example("disabling_fp8_layers")), extensions=["transformer_engine"], log_dir=str(tmp_path))
    try:
        model = model or converted()
        found = weights_after(model)
    finally:
        debug_tool.end_debug()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_default_run_is_delayed_scaling_with_nothing_logged(tmp_path: Path) -> None:
    expected = weights_after(converted())
    debug_tool.initialize_debug(log_dir=str(tmp_path), extensions=["transformer_engine"])
    try:
        found = weights_after(converted())
    finally:
        debug_tool.end_debug()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert list(tmp_path.iterdir()) == []


def test_unselected_layers_keep_the_recipes_delayed_scaling(tmp_path: Path) -> None:
    model = converted()
    given = {
        "first": {
            "enabled": True,
            "layers": {"layer_numbers": [1]},
            "transformer_engine": {"disable_fp8_gemm": {"enabled": True, "gemms": ["wgrad"]}},
        }
    }
    with numscope.watch(model, config=given, on_nonfinite=None, log_dir=str(tmp_path)):
        train(model, 1)
        text = (tmp_path / "debug_logs" / "globalrank-0.log").read_text()
    assert "layers.1.qkv (Linear): fprop e4m3fn delayed × e4m3fn delayed, dgrad e5m2 delayed × e4m3fn delayed, wgrad high precision" in text
    assert text.count("wgrad e5m2 delayed × e4m3fn delayed") == 12 * 3
