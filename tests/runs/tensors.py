"""Runs made of real tensors, which the tests still have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor

from numscope.precision.gemm.counting import cast_on_paper
from numscope.records.observation import Observation
from numscope.sinks.parquet import ParquetSink
from numscope.summary.dispatch import observe_extras, summarize
from numscope.summary.extras import Extra, Layout
from tests.sinks.seen import fields_of


@dataclass(frozen=True)
class Place:
    step: int
    layer: str
    cls: str
    tensor: str
    rank: int = 0


def observe(place: Place, order: int, value: Tensor, extras: Sequence[Extra] = ()) -> Observation:
    layout = Layout(extras)
    cells = torch.zeros(layout.width, dtype=torch.float64)
    observe_extras(value, cells, layout)
    cast_on_paper(value, place.tensor, cells, layout)
    fields = fields_of(summarize(value))
    dtype = str(value.dtype).removeprefix("torch.")
    return Observation(
        place.step, place.layer, place.cls, place.tensor, dtype, order, place.rank, 1, 1, fields, layout.named(cells.tolist())
    )


def write(
    folder: Path,
    seen: Mapping[Place, Tensor],
    extras: Sequence[Extra] = (),
    part_rows: int = 7,
    settings: Mapping[int, Mapping[str, list[float]]] = MappingProxyType({}),
) -> None:
    """A run of these tensors, in several parts a rank, as one that was killed leaves them: a sink that is closed merges them.

    Args:
        settings: of the optimizers, by step, which rows of the loss have.
    """
    for rank in sorted({place.rank for place in seen}):
        sink = ParquetSink(folder, rank, {})
        mine = [observe(place, order, value, extras) for order, (place, value) in enumerate(seen.items()) if place.rank == rank]
        mine = [one._replace(extras=settings[one.step]) if one.tensor == "loss" and one.step in settings else one for one in mine]
        for start in range(0, len(mine), part_rows):
            sink.write(mine[start : start + part_rows])
            sink.write_part()
        del sink


def joined(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().double().flatten() for tensor in tensors])


def two_layers(num_steps: int = 4, seed: int = 0) -> dict[Place, Tensor]:
    """Activations, weights and gradients of four layers with nans, infinities, zeros and means far from zero."""
    made = torch.Generator().manual_seed(seed)
    seen: dict[Place, Tensor] = {}
    for step in range(num_steps):
        for block in range(2):
            for index, (name, cls) in enumerate((("self_attention.linear_qkv", "Linear"), ("mlp.fc1", "Linear"), ("mlp.fc2", "Special"))):
                for tensor in ("activation", "weight", "gradient"):
                    size = int(torch.randint(1, 300, (1,), generator=made))
                    scale, shift = 10.0 ** float(torch.randint(-3, 4, (1,), generator=made)), float(index * 3 * block)
                    value = torch.randn(size, generator=made) * scale + shift
                    value[torch.rand(size, generator=made) < 0.1] = 0.0
                    if tensor == "gradient" and step == 2:
                        value[torch.rand(size, generator=made) < 0.1] = float("nan")
                        value[torch.rand(size, generator=made) < 0.1] = float("-inf")
                    seen[Place(step, f"decoder.layers.{block}.{name}", cls, tensor)] = value
    return seen
