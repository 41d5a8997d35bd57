"""A small transformer learns real text in every recipe as in float32; it is broken, the statistics name the layer, a switch cures it."""

from __future__ import annotations

import pydoc_data.topics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import numscope
from numscope import precision

STEPS = 40
BAND = 0.1  # nats: how far the loss of the last ten steps may be from float32's, which falls by more than one
SPIKE = 2.0**16
DIM, LENGTH, BATCH = 32, 32, 4

TEXT = torch.tensor(
    list("".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics)[:30]).encode("ascii", "ignore"))
)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.fc1, self.fc2 = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Transformer(nn.Module):
    """``mix`` may see its input ``spike`` times as large on every other step; dividing by the same power of two, it computes the same."""

    def __init__(self, spike: float = 1.0) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(128, DIM), nn.Embedding(LENGTH, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.mix, self.norm, self.head = nn.Linear(DIM, DIM, bias=False), nn.LayerNorm(DIM), nn.Linear(DIM, 128)
        self.spike, self.calls = spike, 0

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) + self.place.weight
        for block in self.blocks:
            x = block(x)
        factor = self.spike if self.calls % 2 else 1.0
        self.calls += 1
        logits: Tensor = self.head(self.mix(self.norm(x) * factor) / factor)
        return logits


def built(spike: float = 1.0) -> Transformer:
    torch.manual_seed(0)
    return Transformer(spike)


def train(model: nn.Module, steps: int = STEPS, after_step: Callable[[], object] = lambda: None) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(steps):
        starts = torch.randint(len(TEXT) - LENGTH - 1, (BATCH,), generator=generator)
        batch = torch.stack([TEXT[s : s + LENGTH + 1] for s in starts.tolist()])
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        after_step()
    return losses


def end(losses: list[float]) -> float:
    return sum(losses[-10:]) / 10


@pytest.fixture(scope="module")
def bare() -> list[float]:
    losses = train(built())
    assert losses[0] - end(losses) > 1, "float32 itself does not learn"
    return losses


RECIPES: dict[str, Callable[[], precision.Recipe]] = {
    "delayed": precision.DelayedScaling,
    "current": precision.CurrentScaling,
    "rowwise": precision.RowwiseScaling,
    "block": precision.BlockScaling,
    "mxfp8": precision.MXFP8,
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_emulated_fp8_learns_as_float32_does(recipe: str, bare: list[float]) -> None:
    model = precision.convert(built(), RECIPES[recipe](), backend="emulate")
    losses = train(model)
    assert losses != bare
    assert end(losses) == pytest.approx(end(bare), abs=BAND)


def test_real_fp8_gemms_learn_as_emulated_ones_do(bare: list[float]) -> None:
    steps = 20  # torch's fp8 product on the CPU is a slow reference
    real = train(precision.convert(built(), precision.CurrentScaling(), backend="scaled_mm"), steps)
    emulated = train(precision.convert(built(), precision.CurrentScaling(), backend="emulate"), steps)
    assert real == pytest.approx(emulated, abs=0.02)
    assert real == pytest.approx(bare[:steps], abs=2 * BAND)


# ---- broken: one layer's activations swing by 2^16 between steps, and the scale is that of the step before

BODY = r"^(blocks\..*|mix)$"  # the head stays in high precision, as is the custom
BROKEN = precision.DelayedScaling(amax_history_len=1, amax_compute_algo="most_recent")


def config(feature: dict[str, Any], pattern: str = ".*") -> dict[str, Any]:
    return {"section": {"enabled": True, "layers": {"layer_name_regex_pattern": pattern}, "transformer_engine": feature}}


def test_a_function_preserving_spike_changes_nothing_in_float32(bare: list[float]) -> None:
    assert train(built(SPIKE)) == bare


def test_statistics_name_the_layer_that_overflows_and_its_switch_cures_the_loss(bare: list[float], tmp_path: Path) -> None:
    stats = {"collect_fp8_tensor_stats": {"enabled": True, "type": ["overflows", "underflows"], "tensors": ["activation"], "freq": 1}}
    model = precision.convert(built(SPIKE), BROKEN, layers=BODY, backend="emulate")
    worst: dict[str, float] = {}

    def note() -> None:
        for seen in inspector.last:
            overflows = seen.values["overflows"]
            if seen.step >= 2 and isinstance(overflows, float):  # the first step has no scale yet
                worst[seen.layer] = max(worst.get(seen.layer, 0.0), overflows)

    with numscope.watch(model, config=config(stats, BODY), on_nonfinite=None, log_dir=tmp_path) as scope:
        assert scope._watch.inspector is not None
        inspector = scope._watch.inspector
        losses = train(model, after_step=note)
    assert end(losses) > end(bare) + 5 * BAND, "the fault does no harm"
    assert worst.pop("mix") > 50
    assert max(worst.values()) < 10

    cured = precision.convert(built(SPIKE), BROKEN, layers=BODY, backend="emulate")
    with numscope.watch(cured, config=config({"disable_fp8_layer": {"enabled": True}}, "^mix$"), on_nonfinite=None, log_dir=tmp_path):
        assert end(train(cured)) == pytest.approx(end(bare), abs=BAND)
