"""Hadamard rotations against float64 and NumPy: orthogonal, with the same product, and off where nothing is rotated."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from numscope.precision import MXFP4, NVFP4, How, Scaling, convert, format_of
from numscope.precision.casting.cast import cast, values_of
from numscope.precision.casting.hadamard import ROTATIONS, Rotation, rotated
from numscope.precision.casting.scaling import MX
from numscope.precision.gemm.recipes import Recipe
from numscope.records.errors import UsageError


def numbers(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("size", [1, 2, 16, 32])
def test_the_rotation_is_sylvesters_matrix_over_the_root_of_its_size(size: int) -> None:
    x = numbers(5, 3 * size)
    signs = np.array([[(-1) ** (i & j).bit_count() for j in range(size)] for i in range(size)])
    expected = (x.numpy().reshape(5, 3, size) @ signs / np.sqrt(size)).reshape(5, 3 * size)
    np.testing.assert_allclose(rotated(x, "hadamard", size, columnwise=False).numpy(), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(rotated(x.t().contiguous(), "hadamard", size, columnwise=True).t().numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("columnwise", [False, True])
@pytest.mark.parametrize("rotation", ROTATIONS)
def test_rotations_are_orthogonal_and_give_the_same_product(rotation: Rotation, columnwise: bool) -> None:
    a, b = numbers(7, 75), numbers(9, 75).flip(0)  # two blocks of 32, and eleven numbers that stay
    turned = [rotated(x.t() if columnwise else x, rotation, 32, columnwise=columnwise) for x in (a, b)]
    back = rotated(turned[0], rotation, 32, columnwise=columnwise, back=True)
    torch.testing.assert_close(back, a.t() if columnwise else a, rtol=0, atol=1e-12)
    p, q = (x.t() if columnwise else x for x in turned)
    torch.testing.assert_close(p @ q.t(), a @ b.t(), rtol=0, atol=1e-11)
    torch.testing.assert_close(p[:, 64:], a[:, 64:], rtol=0, atol=0)
    assert not torch.allclose(p[:, :64], a[:, :64])


def test_random_signs_are_the_same_each_time_and_take_nothing_from_the_global_generator() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    one = rotated(torch.eye(16), "random_hadamard", 16, columnwise=False)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.abs(), torch.full((16, 16), 0.25)) and not torch.equal(
        one, rotated(torch.eye(16), "hadamard", 16, columnwise=False)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("columnwise", [False, True])
@pytest.mark.parametrize("rotation", ROTATIONS)
def test_a_cast_rounds_the_rotated_operand_and_rotates_it_back(rotation: Rotation, columnwise: bool, dtype: torch.dtype) -> None:
    x, plain = numbers(64, 96, dtype=dtype), How(format_of("e2m1fn"), MX)
    wide = x.double() if dtype is torch.float64 else x.float()
    rounded = cast(rotated(wide, rotation, 32, columnwise=columnwise), plain, columnwise=columnwise, codes=True)
    assert rounded.values is not None
    expected = rotated(rounded.values, rotation, 32, columnwise=columnwise, back=True).to(dtype)
    made = cast(x, plain.replace(rotation=rotation), columnwise=columnwise, codes=True)
    assert made.values is not None and made.codes is not None and rounded.codes is not None
    assert torch.equal(made.values, expected) and torch.equal(made.codes, rounded.codes)
    assert torch.equal(values_of(made, dtype, dtype), expected)


@pytest.mark.parametrize("rotation", ROTATIONS)
def test_an_outlier_costs_less_when_its_block_is_rotated(rotation: Rotation) -> None:
    x = numbers(64, 256, dtype=torch.float32)
    x[:, ::32] = 300.0
    plain = How(format_of("e2m1fn"), MX)
    rest = torch.ones_like(x, dtype=torch.bool)
    rest[:, ::32] = False
    lost = [float((cast(x, how).values == 0)[rest].double().mean()) for how in (plain, plain.replace(rotation=rotation))]
    assert lost[0] == 1.0 and lost[1] < 0.1


@pytest.mark.parametrize("recipe", [MXFP4(rotation="hadamard"), NVFP4(rotation="random_hadamard")])
def test_wgrad_of_a_rotated_recipe_is_the_product_of_the_rotated_casts(recipe: Recipe) -> None:
    layer, x, dy = nn.Linear(32, 48, bias=False).double(), numbers(64, 32), numbers(64, 48).flip(0)
    convert(layer, recipe, backend="emulate")
    layer(x).backward(dy)
    plan = recipe.plan()
    turned = []
    for operand, value in (("gradient", dy), ("activation", x)):
        how = plan["wgrad", operand]
        assert how is not None
        size, rotation = how.scaling.block[1], how.rotation
        assert rotation is not None and plan["fprop", "activation"].rotation is None  # type: ignore[union-attr]
        turned.append(cast(rotated(value, rotation, size, columnwise=True), how.replace(rotation=None), columnwise=True).values)
    torch.testing.assert_close(layer.weight.grad, turned[0].t() @ turned[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: MXFP4(rotation="hadamrd"),
            r"rotation: got 'hadamrd', expected one of hadamard, random_hadamard\. Did you mean 'hadamard'\?",
        ),  # type: ignore[arg-type]
        (lambda: How(format_of("e4m3"), rotation="hadamard"), r"rotation: got 'hadamard' for scaling by tensor, expected blocks"),
        (lambda: How(format_of("e4m3"), Scaling("block", (1, 24)), rotation="hadamard"), r"rotation: .* by \(1, 24\), expected blocks"),
    ],
)
def test_what_can_not_be_rotated_is_refused(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=message):
        make()
