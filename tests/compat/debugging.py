"""A model with layers of a transformer's names, its training step, and a reader of statistics logs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

LINE = re.compile(r"(?:.* - )?INFO - (?P<name>\S+) \t\t\t\t iteration=(?P<step>\d{6}) \t\t\t\t value=(?P<value>\S+)")


class Logged(NamedTuple):
    """A statistics log's line."""

    name: str
    step: int
    value: float


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 2 * width)
        self.fc2 = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.fc2(torch.relu(self.fc1(x)))


class Model(nn.Module):
    """``layers.0.fc1`` … ``layers.1.fc2``, ``head``."""

    def __init__(self, width: int = 8, depth: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        out: Tensor = self.head(x)
        return out


def model(seed: int = 0) -> Model:
    torch.manual_seed(seed)
    return Model()


def batch(step: int) -> Tensor:
    return torch.randn(5, 8, generator=torch.Generator().manual_seed(100 + step))


def train_step(net: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> float:
    optimizer.zero_grad()
    loss = net(batch(step)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def read_log(path: Path) -> list[Logged]:
    """Every line of a statistics log; one that is no statistic fails."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        match = LINE.fullmatch(line)
        assert match is not None, line
        found.append(Logged(match["name"], int(match["step"]), float(match["value"])))
    return found


def section(*, layers: dict[str, Any], **features: Any) -> dict[str, Any]:
    """A configuration of one section."""
    return {"watched": {"enabled": True, "layers": layers, **features}}


def collect(stats: list[str], tensors: list[str], **more: Any) -> dict[str, Any]:
    return {"enabled": True, "type": stats, "tensors": tensors, **more}


FC1 = section(layers={"layer_name_regex_pattern": "fc1"}, collect_tensor_stats=collect(["max", "std"], ["activation"]))


def statistics(folder: Path) -> Path:
    return folder / "debug_statistics_logs" / "globalrank-0.log"


def debug_log(folder: Path) -> str:
    return (folder / "debug_logs" / "globalrank-0.log").read_text(encoding="utf-8")


def steps_of(folder: Path, name: str = "layers.0.fc1_activation_max") -> list[int]:
    return [line.step for line in read_log(statistics(folder)) if line.name == name]
