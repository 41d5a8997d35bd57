"""A character model of the modules learns real text, in high precision and under each recipe."""

from __future__ import annotations

import functools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numscope.precision import modules
from numscope.precision.gemm.autocasting import autocast
from tests.precision.block import Block

WIDTH, HEADS, SEQUENCE, BATCH = 32, 4, 32, 16


@functools.cache
def text() -> Tensor:
    """The documentation of Python's own language, as numbers of its 64 most frequent characters; others are left out."""
    from pydoc_data.topics import topics

    written = "\n".join(topics[name] for name in sorted(topics))[:200_000]
    frequent = sorted(set(written), key=lambda c: (-written.count(c), c))[:64]
    number = {character: i for i, character in enumerate(frequent)}
    return torch.tensor([number[c] for c in written if c in number])


class Writer(nn.Module):
    def __init__(self, **config: object) -> None:
        super().__init__()
        self.characters = nn.Embedding(64, WIDTH)
        self.positions = nn.Embedding(SEQUENCE, WIDTH)
        self.layers = nn.ModuleList(Block(WIDTH, 4 * WIDTH, HEADS, name=f"layers.{i}", **config) for i in range(2))
        self.head = modules.LayerNormLinear(WIDTH, 64, name="head")

    def forward(self, characters: Tensor) -> Tensor:
        x = self.characters(characters) + self.positions.weight
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@functools.cache
def losses(recipe: str | None, steps: int, **config: object) -> tuple[float, float, float]:
    """Of the first steps, of the last ones, and of text that it has not seen."""
    torch.manual_seed(0)
    model = Writer(**config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1)
    learned, unseen = text()[:-20_000], text()[-20_000:]

    def loss_on(source: Tensor) -> Tensor:
        starts = torch.randint(len(source) - SEQUENCE - 1, (BATCH,), generator=generator)
        window = source[starts.unsqueeze(1) + torch.arange(SEQUENCE + 1)]
        with autocast(enabled=recipe is not None, recipe=recipe):
            return F.cross_entropy(model(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())

    seen = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_on(learned)
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    with torch.no_grad():
        model.eval()
        new = sum(loss_on(unseen).item() for _ in range(10)) / 10
    return sum(seen[:3]) / 3, sum(seen[-10:]) / 10, new


def entropy_of_characters() -> float:
    """The best loss, in nats, of a model that knows nothing but how frequent each character is."""
    shares = text().bincount() / len(text())
    return -(shares * shares.log()).sum().item()


LLAMA = {"normalization": "RMSNorm", "activation": "swiglu", "bias": False, "groups": 2}
CONFIGS = pytest.mark.parametrize("config", [{}, LLAMA], ids=["gpt", "llama"])


@CONFIGS
def test_character_model_learns_real_text(config: dict[str, object]) -> None:
    first, last, new = losses(None, 100, **config)
    assert first == pytest.approx(math.log(64), abs=0.1)  # it knew nothing
    assert last < first - 1.2
    assert new < entropy_of_characters() - 0.35  # it has learned what follows what, on text it has not seen too


# The whole run's rounding, as a share of the loss: four bits of NVFP4 cost more than the eight of the others.
BANDS = {"delayed": 0.02, "current": 0.02, "mxfp8": 0.02, "rowwise": 0.02, "block": 0.02, "nvfp4": 0.15}
RUNS = [*((recipe, ({}, LLAMA)[i % 2]) for i, recipe in enumerate(BANDS)), ("mxfp8", LLAMA), ("nvfp4", {})]


@pytest.mark.parametrize(("recipe", "config"), RUNS, ids=lambda v: v if isinstance(v, str) else "llama" if v else "gpt")
def test_character_model_learns_as_well_under_a_recipe(recipe: str, config: dict[str, object]) -> None:
    band = BANDS[recipe]
    _, last, new = losses(recipe, 25, **config)
    _, high_last, high_new = losses(None, 25, **config)
    assert last != high_last
    assert last == pytest.approx(high_last, rel=band)
    assert new == pytest.approx(high_new, rel=band)
