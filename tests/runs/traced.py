"""Run folders of real trainings, made by plain hooks: what a diff's tests plant and find does not rest on the inspector."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from numscope.records.observation import FIELDS, Observation
from numscope.sinks.parquet import ParquetSink
from numscope.summary.dispatch import summarize


class Block(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.up_proj = nn.Linear(width, 4 * width)
        self.down_proj = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.down_proj(torch.relu(self.up_proj(x))))


class Tiny(nn.Module):
    def __init__(self, width: int = 32, depth: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Linear(16, width)
        self.layers = nn.ModuleList(Block(width, dropout) for _ in range(depth))
        self.head = nn.Linear(width, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Tracer:
    """Collects all six tensors of every linear layer, in order of execution."""

    def __init__(self, model: nn.Module, folder: Path, rename: Callable[[str], str] = lambda name: name, rank: int = 0) -> None:
        self.sink = ParquetSink(folder, rank, {})
        self.names = {m: rename(name) for name, m in model.named_modules() if isinstance(m, nn.Linear)}
        self.rank = rank
        self.step = 0
        self.seen: list[tuple[nn.Module, str, Tensor]] = []
        for module in self.names:
            module.register_forward_hook(self._forward)

    def _forward(self, module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        self.see(module, "activation", args[0])
        self.see(module, "output", output)
        output.register_hook(lambda grad: self.see(module, "gradient", grad))

    def see(self, module: nn.Module, tensor: str, value: Tensor) -> None:
        self.seen.append((module, tensor, value.detach().clone()))

    def end_step(self) -> None:
        """Before the optimizer's step."""
        for module in self.names:
            self.see(module, "weight", module.weight)
            self.see(module, "wgrad", module.weight.grad)
        self.sink.write([observation(self.names[m], m, t, v, self.step, i, self.rank) for i, (m, t, v) in enumerate(self.seen)])
        self.seen.clear()
        self.step += 1


def observation(layer: str, module: nn.Module | str, tensor: str, value: Tensor, step: int, order: int, rank: int = 0) -> Observation:
    summary = summarize(value)
    fields = {name: getattr(summary, name) for name in FIELDS}
    assert not any(isinstance(x, float) and math.isnan(x) for x in fields.values())
    cls = module if isinstance(module, str) else type(module).__name__
    return Observation(step, layer, cls, tensor, str(value.dtype).removeprefix("torch."), order, rank, 1, 1, fields)


def batches(steps: int, seed: int = 7, size: int = 64) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        yield torch.randn(size, 16, generator=generator), torch.randint(0, 8, (size,), generator=generator)


def train(
    folder: Path,
    *,
    steps: int = 4,
    prepare: Callable[[nn.Module], object] = lambda model: None,
    before: Callable[[int, nn.Module], object] = lambda step, model: None,
    rename: Callable[[str], str] = lambda name: name,
    dropout: float = 0.0,
    seed: int = 0,
    lr: float = 1e-2,
    autocast: bool = False,
    loss_scale: float = 1.0,
) -> str:
    """Trains the tiny model and keeps its statistics.

    Args:
        prepare: called with the model before training.
        before: called with each step's number and the model, before its forward.
        seed: of what is random in training; the weights begin alike.
    """
    torch.manual_seed(0)
    model = Tiny(dropout=dropout)
    prepare(model)
    tracer = Tracer(model, folder, rename)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    torch.manual_seed(100 + seed)
    for step, (x, y) in enumerate(batches(steps)):
        before(step, model)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = nn.functional.cross_entropy(model(x).float(), y)
        (loss * loss_scale).backward()
        for parameter in model.parameters():
            parameter.grad /= loss_scale
        tracer.end_step()
        optimizer.step()
    tracer.sink.close()
    return str(folder)
