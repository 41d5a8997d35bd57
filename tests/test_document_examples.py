"""Every YAML example of the debug module's document, run as it stands on a model with layers of those names: outputs are where it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.compat import debug_tool

EXAMPLES = sorted((Path(__file__).parent / "config" / "document").glob("*.yaml"))
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
            scope.inspector.begin_at(999)
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
