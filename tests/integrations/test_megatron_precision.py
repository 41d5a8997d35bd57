"""Low precision in Megatron's tensor-parallel layers: its own arithmetic at rest, the same quantization however a tensor is split."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from numscope.precision import CurrentScaling, DelayedScaling, HighPrecision, states
from numscope.records.errors import UsageError
from tests.distributed.ranks import RankPool
from tests.integrations.gpt import batch, config, gpt, loss_of, megatron
from tests.late import late

late("megatron.core")
of_megatron = late("numscope.integrations.megatron")

RECIPES: dict[str, Any] = {
    "bare": None,
    "high": HighPrecision(),
    "delayed": DelayedScaling(amax_history_len=4),
    "current": CurrentScaling(),
}


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'alone'}", rank=0, world_size=1)
    try:
        with megatron():
            yield
    finally:
        dist.destroy_process_group()


def train(model: nn.Module, steps: int = 4) -> tuple[list[float], list[Tensor]]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, batch())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().clone() for p in model.parameters()]


def by_recipe(tensor: int) -> dict[str, tuple[list[float], list[Tensor]]]:
    found = {}
    with megatron(tensor):
        for name, recipe in RECIPES.items():
            model = gpt(config(tensor))
            if recipe is not None:
                of_megatron.convert([model], recipe)
            found[name] = train(model)
            of_megatron.revert(model)
    return found


def on_ranks(rank: int) -> dict[str, list[float]]:
    found = by_recipe(2)
    assert all(torch.equal(a, b) for a, b in zip(found["bare"][1], found["high"][1], strict=True))
    return {name: losses for name, (losses, _) in found.items()}


def test_recipes_train_alike_on_one_rank_and_on_two_tensor_parallel_ones(ranks: RankPool, tmp_path: Path) -> None:
    first, second = (t.value for t in ranks.run(on_ranks))
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'alone'}", rank=0, world_size=1)
    try:
        whole = by_recipe(1)
    finally:
        dist.destroy_process_group()
    assert first == second
    assert whole["high"][0] == whole["bare"][0]
    assert all(torch.equal(a, b) for a, b in zip(whole["bare"][1], whole["high"][1], strict=True))
    for name in ("bare", "delayed"):  # delayed scaling shares its amaxes
        assert first[name] == pytest.approx(whole[name][0], rel=1e-6), name
    for losses in (first["current"], whole["current"][0], whole["delayed"][0]):
        assert losses != whole["bare"][0]
        assert losses == pytest.approx(whole["bare"][0], rel=5e-3)
        assert losses[-1] < losses[0] - 3


def test_layers_are_taken_by_name_and_are_again_what_they_were(alone: None) -> None:
    model = gpt(config())
    kinds = [type(module) for module in model.modules()]
    keys = list(model.state_dict())
    of_megatron.convert(model, CurrentScaling(), layers=r"decoder\.layers\.1\.mlp\.linear_fc\d")
    assert [state.name for state in states(model).values()] == ["decoder.layers.1.mlp.linear_fc1", "decoder.layers.1.mlp.linear_fc2"]
    assert list(model.state_dict()) == keys
    of_megatron.revert(model)
    assert [type(module) for module in model.modules()] == kinds
    assert not states(model)


def test_switches_of_a_configuration_act_on_megatrons_layers(alone: None, tmp_path: Path) -> None:
    section = {
        "enabled": True,
        "layers": {"layer_name_regex_pattern": "linear_fc1"},
        "transformer_engine": {"FakeQuant": {"enabled": True, "quant_format": "FP8E4M3", "gemms": ["fprop"], "tensors": ["activation"]}},
    }
    bare, faked = gpt(config()), gpt(config())
    kinds = [type(module) for module in faked.modules()]
    expected = train(bare)[0]
    with of_megatron.attach(faked, config={"s": section}, log_dir=tmp_path):
        losses = train(faked)[0]
    assert losses != expected
    assert losses == pytest.approx(expected, rel=5e-3)
    assert [type(module) for module in faked.modules()] == kinds
    (log,) = (tmp_path / "debug_logs").iterdir()
    assert "decoder.layers.1.mlp.linear_fc1" in log.read_text()


def test_layers_converted_under_a_watch_with_switches_stay_converted_after_it(alone: None, tmp_path: Path) -> None:
    section = {
        "enabled": True,
        "layers": {"layer_name_regex_pattern": "linear_fc1"},
        "transformer_engine": {"FakeQuant": {"enabled": True, "quant_format": "FP8E4M3", "gemms": ["fprop"], "tensors": ["activation"]}},
    }
    watched, plain = gpt(config()), gpt(config())
    kinds = [type(module) for module in plain.modules()]
    of_megatron.convert(plain, CurrentScaling(), layers="linear_fc2")
    expected = train(plain)[0]
    with of_megatron.attach(watched, config={"s": section}, log_dir=tmp_path):
        of_megatron.convert(watched, CurrentScaling(), layers="linear_fc2")
    assert [state.name for state in states(watched).values() if not state.recipe.is_high] == [
        f"decoder.layers.{n}.mlp.linear_fc2" for n in range(len(watched.decoder.layers))
    ]
    assert train(watched)[0] == expected
    of_megatron.revert(watched)
    assert [type(module) for module in watched.modules()] == kinds


def test_weights_whose_gradient_megatron_computes_in_its_own_kernel_are_refused(alone: None) -> None:
    model = gpt(config())
    of_megatron.convert(model, CurrentScaling())
    for module in states(model):
        module.gradient_accumulation_fusion = True
    with pytest.raises(UsageError, match=r"linear_qkv: got gradient_accumulation_fusion, expected a layer whose weight's gradient is"):
        loss_of(model, batch())
