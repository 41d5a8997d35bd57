"""The modules' GEMMs as layers: what statistics see of them by name, what recipes and plans do to each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn

import numscope
from numscope.precision import modules
from numscope.precision.gemm.autocasting import autocast
from numscope.precision.gemm.conversion import convert, revert
from numscope.precision.gemm.layer_state import state_of, states
from numscope.precision.gemm.recipes import CurrentScaling, DelayedScaling
from numscope.records.observation import Observation
from tests.precision.block import Block

H, FFN, HEADS = 16, 24, 4
GEMMS = ["layernorm_qkv", "proj", "layernorm_mlp.fc1", "layernorm_mlp.fc2"]


@pytest.fixture(autouse=True)
def logs_go_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def layer() -> Iterator[Block]:
    torch.manual_seed(0)
    yield Block(H, FFN, HEADS, name="decoder.layers.2", fused=True)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(5, 2, H, generator=torch.Generator().manual_seed(1))


def by_site(observations: list[Observation]) -> dict[tuple[str, str], Observation]:
    return {(o.layer, o.tensor): o for o in observations}


def watched(model: nn.Module, tensors: list[str], **selection: Any) -> Any:
    feature = {"enabled": True, "stats": ["max", "min", "mean"], "tensors": tensors}
    config = {"all": {"enabled": True, "layers": selection, "statistics": feature}}
    return numscope.watch(model, config=config, on_nonfinite=None)


# ---- statistics


def test_statistics_of_fc1_are_those_of_its_gemm(x: Tensor) -> None:
    torch.manual_seed(0)
    mlp = modules.LayerNormMLP(H, FFN, name="mlp")
    optimizer = torch.optim.SGD(mlp.parameters(), lr=0.1)
    normed = F.layer_norm(x, (H,))
    normed.requires_grad_()
    product = normed @ mlp.fc1_weight.T + mlp.fc1_bias
    product.retain_grad()
    (F.gelu(product, approximate="tanh") @ mlp.fc2_weight.T + mlp.fc2_bias).square().sum().backward()
    seen: dict[str, Tensor] = {"activation": normed.detach(), "output": product.detach(), "gradient": product.grad, "dgrad": normed.grad}  # type: ignore[dict-item]
    seen |= {"weight": mlp.fc1_weight.detach().clone(), "wgrad": mlp.fc1_weight.grad.clone()}  # type: ignore[union-attr]
    optimizer.zero_grad()
    with watched(mlp, list(seen), layer_name_regex_pattern=r"\.fc1$") as scope:
        mlp(x).square().sum().backward()
        optimizer.step()
        found = by_site(scope._watch.inspector.last)
    assert found.keys() == {("mlp.fc1", tensor) for tensor in seen}
    for tensor, values in seen.items():
        observed = found["mlp.fc1", tensor].values
        assert observed["max"] == pytest.approx(values.max().item(), rel=1e-4), tensor
        assert observed["min"] == pytest.approx(values.min().item(), rel=1e-4), tensor


def test_all_layers_of_a_selection_are_the_gemms_by_their_names(layer: Block, x: Tensor) -> None:
    with watched(layer, ["activation", "weight"], layer_types=["qkv", "proj", "fc1", "fc2"], layer_numbers=[2]) as scope:
        layer(x).sum().backward()
        torch.optim.SGD(layer.parameters(), lr=0.1).step()
        found = by_site(scope._watch.inspector.last)
    expected = {(f"decoder.layers.2.{name}", tensor) for name in GEMMS for tensor in ("activation", "weight")}
    assert found.keys() == expected | {("decoder.layers.2.layernorm_qkv.layer_norm", t) for t in ("activation", "weight")}


def test_weights_of_a_projection_in_three_parts_are_seen_as_three(x: Tensor) -> None:
    projection = modules.Linear(H, 3 * H, parameters_split=("query", "key", "value"), name="attention.qkv")
    with watched(projection, ["weight", "wgrad"], layer_name_regex_pattern="qkv") as scope:
        projection(x).square().sum().backward()
        torch.optim.SGD(projection.parameters(), lr=0.1).step()
        found = by_site(scope._watch.inspector.last)
    parts = [f"{tensor}[{part}_weight]" for tensor in ("weight", "wgrad") for part in ("query", "key", "value")]
    assert found.keys() == {("attention.qkv", part) for part in parts}


def test_watching_changes_nothing(x: Tensor) -> None:
    def gradients(watch: bool) -> list[Tensor]:
        torch.manual_seed(0)
        layer = Block(H, FFN, HEADS, dropout=0.1)
        optimizer = torch.optim.AdamW(layer.parameters())
        scope = (
            watched(layer, ["activation", "output", "gradient", "dgrad", "weight", "wgrad"], layer_name_regex_pattern=".*")
            if watch
            else None
        )
        for _ in range(2):
            optimizer.zero_grad()
            layer(x).square().sum().backward()
            optimizer.step()
        if scope is not None:
            assert len(scope._watch.inspector.last) > 20
            scope.close()
        return [p.detach() for p in layer.parameters()]

    assert all(map(torch.equal, gradients(True), gradients(False)))


def test_bad_weight_of_a_part_is_found_with_detection_on(layer: Block, x: Tensor) -> None:
    with torch.no_grad():
        layer.layernorm_mlp.fc2_weight[0, 0] = float("inf")
    with numscope.watch(layer), pytest.raises(numscope.NonFiniteError) as caught:
        layer(x).sum().backward()
        torch.optim.SGD(layer.parameters(), lr=0.1).step()
    assert "fc2_weight" in str(caught.value)


# ---- recipes


def twin(layer: modules.LayerNormMLP) -> nn.Module:
    """The same network of ``nn.Linear``, which ``convert`` takes."""
    made = nn.Sequential(nn.LayerNorm(H), nn.Linear(H, FFN), nn.GELU("tanh"), nn.Linear(FFN, H))
    names = ("0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias")
    made.load_state_dict(dict(zip(names, (p.detach().clone() for p in layer.parameters()), strict=True)))
    return made


def trained(model: nn.Module, x: Tensor, run: Callable[[Callable[[], Tensor]], Tensor], steps: int = 4) -> list[Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    outs = []
    for step in range(steps):
        optimizer.zero_grad()
        out = run(lambda s=step: model(x * 1.5**s))
        out.square().mean().backward()
        optimizer.step()
        outs.append(out.detach())
    return [*outs, *(p.detach().clone() for p in model.parameters()), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def within(recipe: Any) -> Callable[[Callable[[], Tensor]], Tensor]:
    def run(call: Callable[[], Tensor]) -> Tensor:
        with autocast(recipe=recipe):
            return call()

    return run


RECIPES = ["delayed", "current", "rowwise", "block", "mxfp8", "nvfp4"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_under_a_recipe_the_mlp_is_bitwise_its_converted_twin(recipe: str, x: Tensor) -> None:
    torch.manual_seed(0)
    mlp = modules.LayerNormMLP(H, FFN)
    other = convert(twin(mlp), recipe)
    bare = trained(twin(mlp), x, lambda call: call())
    mine, theirs = trained(mlp, x, within(recipe)), trained(other, x, lambda call: call())
    assert all(map(torch.equal, mine, theirs))
    assert not torch.equal(mine[0], bare[0])


def test_outside_autocast_the_modules_are_bitwise_plain(x: Tensor) -> None:
    torch.manual_seed(0)
    mlp = modules.LayerNormMLP(H, FFN)
    other = twin(mlp)
    trained(mlp, x, within("delayed"))
    other.load_state_dict(dict(zip(other.state_dict(), mlp.state_dict().values(), strict=True)))
    assert torch.equal(mlp(x), other(x))
    with autocast(enabled=False):
        assert torch.equal(mlp(x), other(x))


def test_every_gemm_layer_has_a_state_and_nothing_else(layer: Block) -> None:
    parts = [layer.layernorm_qkv.gemm, layer.proj, layer.layernorm_mlp.fc1, layer.layernorm_mlp.fc2]
    assert list(states(layer)) == parts
    assert [state.name for state in states(layer).values()] == [f"decoder.layers.2.{name}" for name in GEMMS]


def test_converted_layer_runs_its_recipe_and_reverted_it_is_plain(layer: Block, x: Tensor) -> None:
    before = layer(x)
    state_dict = list(layer.state_dict())
    kinds = [type(module) for module in layer.modules()]
    convert(layer, CurrentScaling())
    assert [type(module) for module in layer.modules()] == kinds
    with autocast(recipe=CurrentScaling()):
        wanted = layer(x)
    assert torch.equal(layer(x), wanted) and not torch.equal(wanted, before)
    assert list(layer.state_dict()) == state_dict
    assert torch.equal(revert(layer)(x), before)


def test_gemm_kept_high_leaves_the_others_bitwise_as_they_were(x: Tensor) -> None:
    torch.manual_seed(0)
    mlp = convert(modules.LayerNormMLP(H, FFN), "current")
    given: dict[str, Tensor] = {}
    mlp.fc2.register_forward_pre_hook(lambda module, args: given.update(x=args[0]))
    both = mlp(x)
    fp8_input = given["x"]
    state = state_of(mlp.fc1)
    assert state is not None
    state.plan = state.default.with_high(["fprop"])
    mlp(x)
    high_input = given["x"]
    assert not torch.equal(fp8_input, high_input)
    assert torch.equal(mlp.fc1(mlp.layer_norm(x)), F.linear(mlp.layer_norm(x), mlp.fc1_weight, mlp.fc1_bias))
    state.plan = None
    assert torch.equal(mlp(x), both)


def test_weight_in_parts_is_quantized_with_one_scale_as_one(x: Tensor) -> None:
    torch.manual_seed(0)
    whole = modules.Linear(H, 2 * H)
    parts = modules.Linear(H, 2 * H, parameters_split=("key", "value"))
    with torch.no_grad():
        parts.key_weight.copy_(whole.weight[:H])
        parts.value_weight.copy_(whole.weight[H:])
    for recipe in RECIPES:
        with autocast(recipe=recipe):
            assert torch.equal(parts(x), whole(x))


def test_delayed_scales_of_the_parts_follow_their_optimizer(x: Tensor) -> None:
    torch.manual_seed(0)
    mlp = modules.LayerNormMLP(H, FFN)
    trained(mlp, x, within(DelayedScaling(amax_history_len=1)), steps=2)
    state = state_of(mlp.fc1)
    assert state is not None
    held = {operand: history.scale.item() for (operand, _), history in state.histories.items()}
    amax = F.layer_norm(x * 1.5, (H,)).abs().max().item()  # of the second step, but for what the first changed in the norm
    assert held["activation"] == pytest.approx(448 / amax, rel=0.2)
    other = torch.optim.SGD([nn.Parameter(torch.ones(1, requires_grad=True))], lr=0.1)
    other.param_groups[0]["params"][0].grad = torch.ones(1)
    with autocast():
        mlp(x * 100).sum().backward()
    other.step()  # not theirs
    assert {operand: history.scale.item() for (operand, _), history in state.histories.items()} == held


def test_recomputed_fp8_layer_has_bitwise_the_same_gradients(layer: Block, x: Tensor) -> None:
    def gradients(run: Callable[[], Tensor]) -> list[Tensor]:
        layer.zero_grad()
        with autocast(recipe="mxfp8"):
            run().square().sum().backward()
        return [p.grad.clone() for p in layer.parameters() if p.grad is not None]

    checkpointed = gradients(lambda: torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False))
    assert all(map(torch.equal, checkpointed, gradients(lambda: layer(x))))


@pytest.mark.parametrize("recipe", [None, "delayed", "mxfp8"])
def test_compiled_layer_is_one_graph_with_the_eager_results(recipe: str | None, x: Tensor) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    layer = Block(H, FFN, HEADS)
    if recipe is not None:
        convert(layer, recipe)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    layer(x).square().sum().backward()
    expected = [p.grad.clone() for p in layer.parameters() if p.grad is not None]
    layer.zero_grad()
    torch.testing.assert_close(compiled(x), layer(x), rtol=1e-5, atol=1e-6)
    compiled(x).square().sum().backward()
    for p, gradient in zip(layer.parameters(), expected, strict=True):
        # An operand that differs in its last bit may fall on the other side of a rounding boundary.
        torch.testing.assert_close(p.grad, gradient, rtol=1e-2, atol=1e-2 * gradient.abs().max().item())


def test_own_gradients_of_gemms_are_seen_in_a_compiled_layer(x: Tensor) -> None:
    def observed(compile: bool) -> dict[tuple[str, str], Observation]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        mlp = modules.LayerNormMLP(H, FFN, name="mlp")
        with watched(mlp, ["activation", "gradient", "dgrad", "wgrad"], layer_name_regex_pattern="fc") as scope:
            run = torch.compile(mlp, fullgraph=True, backend="aot_eager") if compile else mlp
            run(x).square().sum().backward()
            torch.optim.SGD(mlp.parameters(), lr=0.1).step()
            return by_site(scope._watch.inspector.last)

    eager, compiled = observed(False), observed(True)
    assert (
        eager.keys() == compiled.keys() == {(f"mlp.{fc}", t) for fc in ("fc1", "fc2") for t in ("activation", "gradient", "dgrad", "wgrad")}
    )
    for site, observation in eager.items():
        for name, value in observation.values.items():
            assert compiled[site].values[name] == pytest.approx(value, rel=1e-4), (site, name)


def test_switch_of_a_configuration_acts_on_the_gemm_that_its_name_selects(layer: Block, x: Tensor) -> None:
    switch = {"disable_fp8_gemm": {"enabled": True, "gemms": ["fprop"]}}
    config = {"one": {"enabled": True, "layers": {"layer_name_regex_pattern": r".*\.fc1"}, "transformer_engine": switch}}
    with numscope.watch(layer, config=config, on_nonfinite=None), autocast(recipe="delayed"):
        layer(x).sum().backward()
        plans = {state.name.rpartition(".")[2]: state.plan for state in states(layer).values()}
    assert {name for name, plan in plans.items() if plan.is_high("fprop")} == {"fc1"}
    assert not any(plan.is_high("wgrad") for plan in plans.values())
