"""Where fp8 is on."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from numscope.precision import CurrentScaling, autocast, convert, recipe_of, states
from numscope.precision.gemm.autocasting import numbered, region
from numscope.records.errors import UsageError

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


def layer(recipe: str | None = None) -> nn.Module:
    torch.manual_seed(0)
    module = nn.Linear(8, 12)
    return module if recipe is None else convert(module, recipe)


def expected(recipe: str) -> Tensor:
    return layer(recipe)(X).detach()


def test_region_switches_converted_layers_on_and_off() -> None:
    module = layer("mxfp8")
    with autocast(enabled=False):
        assert torch.equal(module(X), layer()(X))
        with autocast(recipe="current"):
            assert torch.equal(module(X), expected("current"))
            with autocast():
                assert torch.equal(module(X), expected("mxfp8"))
            assert torch.equal(module(X), expected("current"))
        assert torch.equal(module(X), layer()(X))
    assert torch.equal(module(X), expected("mxfp8"))


def test_layers_at_rest_in_high_precision_run_by_the_region_alone() -> None:
    module = layer("high_precision")
    assert torch.equal(module(X), layer()(X))
    with autocast():
        assert torch.equal(module(X), expected("delayed"))
    with autocast(recipe="mxfp8"):
        assert torch.equal(module(X), expected("mxfp8"))
    assert torch.equal(module(X), layer()(X))


@pytest.mark.parametrize("inside", [True, False])
def test_backward_follows_its_forward(inside: bool) -> None:
    def gradient(module: nn.Module, recipe: str) -> Tensor:
        with autocast(enabled=inside, recipe=recipe):
            y = module(X)
        y.square().sum().backward()
        assert module.weight.grad is not None
        return module.weight.grad

    reference = layer("mxfp8" if inside else None)
    reference(X).square().sum().backward()
    assert torch.equal(gradient(layer("current"), "mxfp8"), reference.weight.grad)


def test_region_ends_on_an_error_too() -> None:
    module = layer("current")
    with pytest.raises(ZeroDivisionError), autocast(enabled=False):
        raise ZeroDivisionError
    assert torch.equal(module(X), expected("current"))


def test_region_can_be_entered_again_and_decorate() -> None:
    module = layer("current")
    region = autocast(recipe="mxfp8")
    with region, region:
        assert torch.equal(module(X), expected("mxfp8"))

    @region
    def run(x: Tensor) -> Tensor:
        y: Tensor = module(x)
        return y

    assert torch.equal(run(X), expected("mxfp8"))
    assert torch.equal(module(X), expected("current"))


def test_layers_that_were_not_converted_are_left_alone() -> None:
    with autocast():
        assert torch.equal(layer()(X), layer()(X))
        assert not states(layer())


def test_recipes_that_come_and_go_keep_their_histories() -> None:
    module = layer("delayed")
    (state,) = states(module).values()
    module(X)
    history = state.histories["activation", "e4m3fn"]
    with autocast(recipe="current"):
        module(X)
    module(X)
    assert state.histories["activation", "e4m3fn"] is history
    assert state.in_force == recipe_of("delayed")


def test_unknown_recipe_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"^autocast: recipe: got 'mxpf8', .* Did you mean 'mxfp8'\?$"):
        autocast(recipe="mxpf8")


def test_recipes_of_two_process_groups_have_numbers_of_their_own_in_compiled_graphs() -> None:
    groups = [dist.ProcessGroup(0, 1) for _ in range(2)]
    numbers = []
    for group in (*groups, *groups):
        with autocast(recipe=CurrentScaling(reduce_amax=True, amax_group=group)):
            numbers.append(region.number)
            assert numbered(region.number).amax_group is group  # type: ignore[attr-defined]
    assert numbers[:2] == numbers[2:] and numbers[0] != numbers[1]
