"""Each module against the same network written in plain torch from its definition: outputs and all gradients, in float64 and float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from numscope.precision import modules
from tests.precision.block import Block

H, F, HEADS, SEQUENCE, BATCH = 16, 24, 4, 5, 3
EPS = 1e-5
Weights = dict[str, Tensor]

# Of results of order 1 that are sums of some tens of products.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}


# ---- the networks, from their definitions


def plain_norm(x: Tensor, w: Weights, prefix: str, zero_centered: bool = False) -> Tensor:
    """LayerNorm where there is a bias, else RMSNorm."""
    gamma = w[f"{prefix}weight"] + (1 if zero_centered else 0)
    beta = w.get(f"{prefix}bias")
    if beta is None:
        return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * gamma
    centered = x - x.mean(-1, keepdim=True)
    return centered / (centered.square().mean(-1, keepdim=True) + EPS).sqrt() * gamma + beta


def plain_linear(x: Tensor, w: Weights, prefix: str) -> Tensor:
    out = torch.einsum("...k,nk->...n", x, w[f"{prefix}weight"])
    return out + w[f"{prefix}bias"] if f"{prefix}bias" in w else out


def normal_cdf(x: Tensor) -> Tensor:
    """As the tanh form of GELU approximates it."""
    return 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": lambda x: x * normal_cdf(x),
    "qgelu": lambda x: x / (1 + torch.exp(-1.702 * x)),
    "relu": lambda x: x.clamp(min=0),
    "srelu": lambda x: x.clamp(min=0) ** 2,
    "silu": lambda x: x / (1 + torch.exp(-x)),
}
GATED = {"geglu": "gelu", "qgeglu": "qgelu", "reglu": "relu", "sreglu": "srelu", "swiglu": "silu"}


def plain_mlp(x: Tensor, w: Weights, prefix: str = "", activation: str = "gelu", zero_centered: bool = False) -> Tensor:
    inner = plain_linear(plain_norm(x, w, f"{prefix}layer_norm_", zero_centered), w, f"{prefix}fc1_")
    if activation in GATED:
        inner = PLAIN[GATED[activation]](inner[..., :F]) * inner[..., F:]
    else:
        inner = PLAIN[activation](inner)
    return plain_linear(inner, w, f"{prefix}fc2_")


# ---- comparing


def drawn(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """With parameters that tell any two apart."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.4)
    return module.to(dtype)


def inputs(dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def assert_alike(module: nn.Module, plain: Callable[..., Tensor], given: list[Tensor]) -> None:
    """Output, the gradients of inputs and of every parameter."""
    out = module(*given)
    weights = {name: parameter.detach().clone().requires_grad_() for name, parameter in module.named_parameters()}
    copies = [t.detach().clone().requires_grad_() for t in given]
    expected = plain(*copies[:1], weights, *copies[1:])
    tolerance = TOLERANCE[out.dtype]
    torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance)
    direction = torch.randn(out.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(out.dtype)
    out.backward(direction)
    expected.backward(direction)
    for mine, theirs in zip(given, copies, strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=10 * tolerance, atol=10 * tolerance)
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        torch.testing.assert_close(
            parameter.grad, weights[name].grad, rtol=10 * tolerance, atol=10 * tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])


@DTYPES
@pytest.mark.parametrize("bias", [True, False])
def test_linear_is_the_plain_one(dtype: torch.dtype, bias: bool) -> None:
    module = drawn(modules.Linear(H, F, bias=bias), dtype)
    assert_alike(module, lambda x, w: plain_linear(x, w, ""), inputs(dtype, (SEQUENCE, BATCH, H)))


@DTYPES
@pytest.mark.parametrize("normalization", ["LayerNorm", "RMSNorm"])
@pytest.mark.parametrize("zero_centered", [False, True])
def test_layernorm_linear_is_the_plain_one(dtype: torch.dtype, normalization: str, zero_centered: bool) -> None:
    module = drawn(modules.LayerNormLinear(H, F, normalization=normalization, zero_centered_gamma=zero_centered), dtype)
    plain = lambda x, w: plain_linear(plain_norm(x, w, "layer_norm_", zero_centered), w, "")  # noqa: E731
    assert_alike(module, plain, inputs(dtype, (SEQUENCE, BATCH, H)))


@DTYPES
@pytest.mark.parametrize("activation", [*PLAIN, *GATED])
def test_layernorm_mlp_is_the_plain_one(dtype: torch.dtype, activation: str) -> None:
    module = drawn(modules.LayerNormMLP(H, F, activation=activation), dtype)
    assert_alike(module, lambda x, w: plain_mlp(x, w, activation=activation), inputs(dtype, (SEQUENCE, BATCH, H)))


@DTYPES
@pytest.mark.parametrize(
    "config",
    [{"normalization": "RMSNorm", "activation": "swiglu", "bias": False}, {"zero_centered_gamma": True}],
    ids=["llama", "zero-centered"],
)
def test_layernorm_mlp_with_other_norms_is_the_plain_one(dtype: torch.dtype, config: dict[str, Any]) -> None:
    module = drawn(modules.LayerNormMLP(H, F, **config), dtype)
    activation, zero_centered = config.get("activation", "gelu"), config.get("zero_centered_gamma", False)
    plain = lambda x, w: plain_mlp(x, w, activation=activation, zero_centered=zero_centered)  # noqa: E731
    assert_alike(module, plain, inputs(dtype, (SEQUENCE, BATCH, H)))


@DTYPES
@pytest.mark.parametrize("bias", [True, False])
def test_projection_in_parts_is_the_plain_ones_side_by_side(dtype: torch.dtype, bias: bool) -> None:
    rows = {"query": H, "key": 8, "value": 8}
    module = drawn(modules.LayerNormLinear(H, sum(rows.values()), bias=bias, parameters_split=rows), dtype)

    def plain(x: Tensor, w: Weights) -> Tensor:
        normed = plain_norm(x, w, "layer_norm_")
        return torch.cat([plain_linear(normed, w, f"{part}_") for part in rows], -1)

    assert_alike(module, plain, inputs(dtype, (SEQUENCE, BATCH, H)))


@DTYPES
@pytest.mark.parametrize("kind", [modules.LayerNorm, modules.RMSNorm])
@pytest.mark.parametrize("zero_centered", [False, True])
def test_norm_is_the_plain_one(dtype: torch.dtype, kind: type[nn.Module], zero_centered: bool) -> None:
    module = drawn(kind(H, EPS, zero_centered_gamma=zero_centered), dtype)
    assert_alike(module, lambda x, w: plain_norm(x, w, "", zero_centered), inputs(dtype, (SEQUENCE, BATCH, H)))


# ---- what else they give


def test_bias_and_norm_output_are_handed_back_in_transformer_engines_order() -> None:
    x = torch.randn(2, H)
    linear = modules.Linear(H, F, return_bias=True)
    out, bias = linear(x)
    assert bias is linear.bias and torch.equal(out, x @ linear.weight.T)
    mlp = drawn(modules.LayerNormMLP(H, F, return_bias=True, return_layernorm_output=True), torch.float32)
    out, bias, normed = mlp(x)
    assert bias is mlp.fc2_bias and torch.equal(normed, mlp.layer_norm(x))
    whole = modules.LayerNormMLP(H, F)
    whole.load_state_dict(mlp.state_dict())
    torch.testing.assert_close(out + bias, whole(x))
    out, normed = modules.LayerNormLinear(H, F, return_layernorm_output=True)(x)
    assert (out.shape, normed.shape) == ((2, F), (2, H))
    out, nothing = modules.LayerNormLinear(H, F, bias=False, return_bias=True)(x)
    assert nothing is None
    projection = modules.LayerNormLinear(H, F, return_bias=True, return_layernorm_output=True)
    out, bias, normed = projection(torch.randn(3, 2, H))
    assert bias is projection.bias and (out.shape, normed.shape) == ((3, 2, F), (3, 2, H))


def test_zero_centered_weight_below_bfloat16s_step_at_one_is_not_lost() -> None:
    module = modules.LayerNormLinear(H, H, zero_centered_gamma=True, params_dtype=torch.bfloat16)
    x = torch.randn(64, H, dtype=torch.bfloat16)
    with torch.no_grad():
        before = module.layer_norm(x)
        module.layer_norm_weight.fill_(0.0039)  # 1.0039 is 1 in bfloat16
        assert not torch.equal(module.layer_norm(x), before)


def test_under_autocast_outputs_of_gemms_and_norms_are_in_its_dtype() -> None:
    linear, norm = modules.Linear(H, H), modules.LayerNorm(H)
    fused = (modules.LayerNormLinear(H, H, return_layernorm_output=True), modules.LayerNormMLP(H, F, return_layernorm_output=True))
    layer = nn.ModuleList([linear, *fused, norm])
    x = torch.randn(SEQUENCE, BATCH, H)
    with torch.autocast("cpu", torch.bfloat16):
        out = linear(x)
        assert out.dtype == torch.bfloat16
        for module in fused:
            assert [t.dtype for t in module(x)] == [torch.bfloat16, torch.bfloat16]
            out, normed = module(out)
            out = normed + out
        out = norm(out)
        assert modules.Linear(H, F, return_bias=True)(x)[1].dtype == torch.bfloat16
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert {p.grad.dtype for p in layer.parameters() if p.grad is not None} == {torch.float32}
    assert all(p.grad is not None for p in layer.parameters())


# ---- checkpointing


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_checkpointed_layer_has_bitwise_the_same_gradients(dropout: float) -> None:
    layer = Block(H, F, HEADS, dropout=dropout)
    x = torch.randn(SEQUENCE, BATCH, H)

    def gradients(run: Callable[[], Tensor]) -> list[Tensor]:
        layer.zero_grad()
        torch.manual_seed(5)
        run().square().sum().backward()
        return [p.grad.clone() for p in layer.parameters() if p.grad is not None]

    bare = gradients(lambda: layer(x))
    assert len(bare) == len(list(layer.parameters()))
    assert all(map(torch.equal, gradients(lambda: checkpoint(layer, x, use_reentrant=False)), bare))
