"""When a step ends, when a weight is quantized, and what of passes that do not count."""

from __future__ import annotations

import copy
from collections import Counter
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import numscope
from numscope import precision
from numscope.precision import convert, states
from numscope.precision.casting.cast import empty_cells
from numscope.precision.gemm import passes
from numscope.precision.gemm.layer_state import LayerState, end_step
from numscope.precision.gemm.plan import OPERANDS
from numscope.records.errors import UsageError


def model(recipe: object = "delayed") -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    convert(net, recipe)  # type: ignore[arg-type]
    return net


def of(net: nn.Module, name: str = "0") -> LayerState:
    return next(state for state in states(net).values() if state.name == name)


def batch(seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))


def count_casts(net: nn.Module, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Casts made, by operand."""
    seen: Counter[str] = Counter()
    cast_operand = passes.cast_operand

    def counted(state: LayerState, gemms: tuple[str, ...], operand: str, *args: Any, **kwargs: Any) -> object:
        seen[operand] += 1
        return cast_operand(state, gemms, operand, *args, **kwargs)

    monkeypatch.setattr(passes, "cast_operand", counted)
    return seen


@pytest.mark.parametrize(("recipe", "expected"), [("delayed", 1), ("current", 1), ("block", 1), ("rowwise", 2), ("mxfp8", 2)])
def test_weight_is_quantized_once_over_gradient_accumulation(recipe: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each direction where the directions differ: blocks along rows are not blocks along columns."""
    net = model(recipe)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    seen = count_casts(net, monkeypatch)
    for _ in range(3):
        for micro in range(4):
            net(batch(micro).requires_grad_()).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        assert seen["weight"] == 2 * expected
        seen.clear()


@pytest.mark.parametrize("how", ["in place", "data", "load"])
def test_changed_weight_is_quantized_anew(how: str) -> None:
    net = model("current")
    x = batch()
    net(x)
    other = nn.init.normal_(torch.empty(16, 8))
    if how == "in place":
        with torch.no_grad():
            net[0].weight.copy_(other)
    elif how == "data":
        net[0].weight.data = other
    else:
        net[0].load_state_dict({"weight": other, "bias": net[0].bias.detach().clone()})
    fresh = model("current")
    with torch.no_grad():
        fresh[0].weight.copy_(other)
    assert torch.equal(net(x), fresh(x))


@pytest.mark.parametrize("recipe", ["delayed", "current", "rowwise", "block", "mxfp8", "nvfp4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kept_codes_give_bitwise_the_values_of_the_cast(recipe: str, dtype: torch.dtype) -> None:
    net = model(recipe).to(dtype)
    x = batch().to(dtype)
    first = net(x)
    assert torch.equal(net(x), first)  # the second from kept codes


def test_scales_change_with_the_optimizers_step_and_at_no_other_time() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    state = of(net)
    for micro in range(3):
        net(batch(micro, 10.0**micro)).square().sum().backward()
        assert {float(h.scale) for h in state.histories.values()} == {1.0}
    weight_amax = net[0].weight.detach().abs().max()
    optimizer.step()
    amax = max(batch(micro, 10.0**micro).abs().max() for micro in range(3))
    assert state.histories["activation", "e4m3fn"].scale == torch.tensor(448.0) / amax
    assert state.histories["weight", "e4m3fn"].scale == torch.tensor(448.0) / weight_amax
    assert state.histories["gradient", "e5m2"].scale > 1


def test_optimizer_of_another_model_ends_no_step() -> None:
    net, other = model(), model()
    for m in (net, other):
        m(batch()).sum().backward()
    torch.optim.SGD(other.parameters(), 0.1).step()
    assert of(net).histories["activation", "e4m3fn"].num_steps == 0
    assert of(other).histories["activation", "e4m3fn"].num_steps == 1


def test_average_of_the_weights_that_is_taken_through_data_is_quantized_anew_after_a_step() -> None:
    net = model("current")
    average = copy.deepcopy(net).eval()
    before = average(batch())
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    net(batch()).square().sum().backward()
    optimizer.step()
    for mean, p in zip(average.parameters(), net.parameters(), strict=True):
        mean.data.lerp_(p.data, 0.5)  # as many do: no version tells of it
    fresh = model("current")
    fresh.load_state_dict(average.state_dict())
    assert torch.equal(average(batch()), fresh(batch())) and not torch.equal(average(batch()), before)


def test_two_optimizers_of_one_model_end_one_step_together() -> None:
    net = model()
    optimizers = [torch.optim.SGD(part.parameters(), 0.1) for part in (net[0], net[2])]
    for n in range(1, 3):
        net(batch()).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
        assert of(net).histories["activation", "e4m3fn"].num_steps == n


def test_frozen_layers_steps_end_with_any_optimizer() -> None:
    net = model()
    head = nn.Linear(8, 2)
    net.requires_grad_(False)
    head(net(batch())).sum().backward()
    torch.optim.SGD(head.parameters(), 0.1).step()
    assert of(net).histories["activation", "e4m3fn"].num_steps == 1


def test_step_ends_a_step_without_an_optimizer() -> None:
    net = model()
    net(batch()).sum().backward()
    precision.step(net)
    assert of(net).histories["activation", "e4m3fn"].scale == torch.tensor(448.0) / batch().abs().max()


@pytest.mark.parametrize("ended_by", ["an optimizer", "step", "end_step", "nothing"])
def test_end_step_ends_a_step_that_has_not_ended(ended_by: str) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for n in range(1, 3):
        net(batch(n)).sum().backward()
        if ended_by != "nothing":
            {"an optimizer": optimizer.step, "step": lambda: precision.step(net), "end_step": lambda: end_step(net)}[ended_by]()
        end_step(net)
        assert of(net).histories["activation", "e4m3fn"].num_steps == n
        end_step(net.eval())
        net(batch()), end_step(net)  # an evaluation is no step
        assert of(net.train()).histories["activation", "e4m3fn"].num_steps == n


def test_a_watchs_step_ends_the_steps_of_scales_too() -> None:
    net = model()
    with numscope.watch(net) as scope:
        for n in range(1, 4):
            net(batch(n)).sum().backward()
            scope.step()
            assert of(net).histories["activation", "e4m3fn"].num_steps == n == scope.step_number


def test_end_step_of_a_model_that_was_never_converted_does_nothing() -> None:
    end_step(nn.Linear(2, 2))


@pytest.mark.parametrize("grad", [True, False])
def test_no_amax_is_recorded_in_evaluation(grad: bool) -> None:
    net = model().eval()
    with torch.set_grad_enabled(grad):
        y = net(batch())
    if grad:
        y.sum().backward()
    precision.step(net)
    assert all(float(h.amax) == 0 and h.num_steps == 0 for h in of(net).histories.values())


def test_weight_first_used_in_evaluation_is_recorded_in_training_all_the_same() -> None:
    net = model().eval()
    net(batch())
    net.train()
    net(batch()).sum().backward()
    assert of(net).histories["weight", "e4m3fn"].amax == net[0].weight.detach().abs().max()


_SAVED = partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default, torch.ops.aten.addmm.default])


@pytest.mark.parametrize("kind", [{"use_reentrant": True}, {"use_reentrant": False}, {"use_reentrant": False, "context_fn": _SAVED}])
@pytest.mark.parametrize("recipe", ["delayed", "mxfp8"])
def test_checkpointing_changes_no_bit_and_counts_once(recipe: str, kind: dict[str, Any]) -> None:
    results = []
    for checkpointed in (False, True):
        net = model(recipe)
        state = of(net)
        state.cells = {(*key, "fp8"): empty_cells() for key in OPERANDS}
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for seed in range(3):
            optimizer.zero_grad()
            x = batch(seed).requires_grad_()
            y = checkpoint(net, x, **kind) if checkpointed else net(x)
            y.square().sum().backward()
            optimizer.step()
        scales = [h.scale for _, h in sorted(state.histories.items())]
        results.append([y.detach(), x.grad, *(p.grad for p in net.parameters()), *scales, *state.cells.values()])
    for plain, again in zip(*results, strict=True):
        torch.testing.assert_close(again, plain, rtol=0, atol=0)


def test_cells_hold_each_operand_as_its_gemm_took_it() -> None:
    net = model("current")
    state = of(net)
    net(batch().requires_grad_())  # the weight's codes are kept now
    state.cells = {(*key, "fp8"): empty_cells() for key in OPERANDS}
    for seed in range(2):
        net(batch(seed).requires_grad_()).square().sum().backward()
    numel = {(gemm, operand): int(cells[0]) for (gemm, operand, _), cells in state.cells.items()}
    assert numel == {
        ("fprop", "activation"): 64,
        ("fprop", "weight"): 128,
        ("dgrad", "gradient"): 128,
        ("dgrad", "weight"): 128,
        ("wgrad", "gradient"): 128,
        ("wgrad", "activation"): 64,
    }


def test_replay_of_a_step_leaves_scales_and_counts_alone() -> None:
    """numscope runs a bad step again to find its culprit; that pass is none of the training's."""
    results = []
    for watched in (False, True):
        net = model()
        seen: Counter[tuple[str, str]] = Counter()
        of(net).observer = lambda gemm, operand, x, made, seen=seen: seen.update([(gemm, operand)])
        scope = numscope.watch(net, on_nonfinite="warn") if watched else None
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        x = batch()
        x[0, 0] = torch.nan
        net(x).sum().backward()
        optimizer.step()
        if scope is not None:
            assert scope.findings
            scope.close()
        results.append(([h.scale.item() for _, h in sorted(of(net).histories.items())], seen))
    assert results[0] == results[1]


@pytest.mark.parametrize("recipe", ["delayed", "mxfp8"])
def test_bad_weight_whose_codes_were_kept_is_named_as_the_cause(recipe: str) -> None:
    net = model(recipe)
    scope = numscope.watch(net)
    try:
        net(batch()).sum().backward()
        with torch.no_grad():
            net[0].weight[0, 0] = torch.nan
        with pytest.raises(numscope.NonFiniteError, match=r"bad parameter: 0\.weight holds 1 nan of 128 elements, which no update"):
            net(batch()).sum().backward()
            torch.optim.SGD(net.parameters(), 0.1).step()
    finally:
        scope.close()


def test_scales_are_saved_and_taken_up_again() -> None:
    def train(net: nn.Module, optimizer: torch.optim.Optimizer, seeds: range) -> None:
        for seed in seeds:
            optimizer.zero_grad()
            net(batch(seed)).square().sum().backward()
            optimizer.step()

    net = model()
    train(net, torch.optim.SGD(net.parameters(), 0.01), range(3))
    weights, scales = {k: v.clone() for k, v in net.state_dict().items()}, precision.state_dict(net)
    assert list(scales) == ["0", "2"] and sorted(scales["0"]) == ["activation.e4m3fn", "gradient.e5m2", "weight.e4m3fn"]
    train(net, torch.optim.SGD(net.parameters(), 0.01), range(3, 6))
    other = model()
    other.load_state_dict(weights)
    precision.load_state_dict(other, scales)
    train(other, torch.optim.SGD(other.parameters(), 0.01), range(3, 6))
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), other.parameters(), strict=True))


def test_scales_of_an_unknown_layer_are_refused() -> None:
    net = model()
    with pytest.raises(
        UsageError, match=r"^load_state_dict: '00' is not a converted layer of this model\. Did you mean '0'\? Convert it first\.$"
    ):
        precision.load_state_dict(net, {"00": {}})


def test_training_keeps_no_more_for_backward_than_bare_training() -> None:
    def kept(net: nn.Module) -> int:
        tensors: dict[int, int] = {}

        def pack(t: Tensor) -> Tensor:
            tensors[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            y = net(x)
        assert y.requires_grad
        return sum(tensors.values())

    x = torch.randn(64, 8, requires_grad=True)
    for recipe in ("delayed", "current", "rowwise", "block", "mxfp8", "nvfp4"):
        net = model(recipe)
        bare = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
        assert kept(net) <= kept(bare)
        codes = sum(kept.cast.codes.nbytes for state in states(net).values() for kept in state.kept_weights.values())
        assert codes == sum(m.weight.numel() for m in (net[0], net[2]))
