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


def plain_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Head by head; ``(sequence, batch, heads, channels)`` to ``(sequence, batch, heads · channels)``."""
    heads = q.shape[2]
    found = []
    for head in range(heads):
        group = head // (heads // k.shape[2])
        scores = torch.einsum("ibc,jbc->bij", q[:, :, head], k[:, :, group]) / math.sqrt(q.shape[-1])
        if causal:
            hidden = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -math.inf)
        weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
        found.append(torch.einsum("bij,jbc->ibc", weights, v[:, :, group]))
    return torch.cat(found, -1)


def by_heads(x: Tensor, size: int) -> Tensor:
    return x.reshape(*x.shape[:-1], -1, size)


def plain_self_attention(x: Tensor, w: Weights, prefix: str, *, fused: str = "", causal: bool = True, size: int = 4) -> Tensor:
    """After the norm. ``fused``: how the rows of one weight are arranged, ``interleaved`` or ``concatenated``; else three weights."""
    first = f"{prefix}layernorm_qkv." if any(name.startswith(f"{prefix}layernorm_qkv.") for name in w) else f"{prefix}qkv."
    if not fused:
        q, k, v = (plain_linear(x, w, f"{first}{which}_") for which in ("query", "key", "value"))
    else:
        mixed = plain_linear(x, w, first)
        columns = mixed.shape[-1] // size
        groups = (columns - w[f"{prefix}proj.weight"].shape[1] // size) // 2
        each = columns // groups - 2
        if fused == "concatenated":
            q, k, v = mixed.split([each * groups * size, groups * size, groups * size], -1)
        else:
            heads = mixed.split(size, -1)
            q = torch.cat([h for i, h in enumerate(heads) if i % (each + 2) < each], -1)
            k = torch.cat([h for i, h in enumerate(heads) if i % (each + 2) == each], -1)
            v = torch.cat([h for i, h in enumerate(heads) if i % (each + 2) == each + 1], -1)
    return plain_linear(plain_attention(by_heads(q, size), by_heads(k, size), by_heads(v, size), causal), w, f"{prefix}proj.")


def plain_cross_attention(x: Tensor, encoded: Tensor, w: Weights, prefix: str) -> Tensor:
    q = plain_linear(x, w, f"{prefix}layernorm_query.query_")
    k, v = (plain_linear(encoded, w, f"{prefix}key_value.{which}_") for which in ("key", "value"))
    return plain_linear(plain_attention(by_heads(q, 4), by_heads(k, 4), by_heads(v, 4), False), w, f"{prefix}proj.")


def plain_layer(x: Tensor, w: Weights, encoded: Tensor | None = None, **config: Any) -> Tensor:
    """A TransformerLayer without dropout."""
    zero = config.get("zero_centered_gamma", False)
    post = config.get("apply_residual_connection_post_layernorm", False)
    fused = ("interleaved" if config.get("qkv_weight_interleaved", True) else "concatenated") if config.get("fuse_qkv_params") else ""
    size = config.get("kv_channels", H // HEADS)
    causal = config.get("self_attn_mask_type", "causal") == "causal"
    last = config.get("output_layernorm", False)
    normed = x if last else plain_norm(x, w, "self_attention.layernorm_qkv.layer_norm_", zero)
    attended = plain_self_attention(normed, w, "self_attention.", fused=fused, causal=causal, size=size)
    activation = config.get("activation", "gelu")
    if config.get("parallel_attention_mlp", False):
        return x + attended + plain_mlp(x, w, "layernorm_mlp.", activation, zero)
    x = (normed if post and not last else x) + attended
    if encoded is not None:
        normed = plain_norm(x, w, "inter_attention.layernorm_query.layer_norm_", zero)
        x = (normed if post else x) + plain_cross_attention(normed, encoded, w, "inter_attention.")
    before = plain_norm(x, w, "layernorm_mlp.layer_norm_", zero) if post else x
    x = before + plain_mlp(x, w, "layernorm_mlp.", activation, zero)
    return plain_norm(x, w, "layernorm.", zero) if last else x


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


def assert_alike(module: nn.Module, plain: Callable[..., Tensor], given: list[Tensor], keywords: tuple[str, ...] = ()) -> None:
    """Output, the gradients of inputs and of every parameter."""
    out = module(*given[: len(given) - len(keywords)], **dict(zip(keywords, given[len(given) - len(keywords) :], strict=True)))
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


LAYERS: dict[str, dict[str, Any]] = {
    "default": {},
    "unmasked": {"self_attn_mask_type": "no_mask"},
    "fused": {"fuse_qkv_params": True},
    "fused, concatenated": {"fuse_qkv_params": True, "qkv_weight_interleaved": False},
    "grouped": {"num_gqa_groups": 2},
    "grouped, fused": {"num_gqa_groups": 2, "fuse_qkv_params": True},
    "grouped, fused, concatenated": {"num_gqa_groups": 1, "fuse_qkv_params": True, "qkv_weight_interleaved": False},
    "llama": {"normalization": "RMSNorm", "activation": "swiglu", "bias": False, "num_gqa_groups": 2},
    "wide heads": {"kv_channels": 6},
    "zero-centered": {"zero_centered_gamma": True},
    "residuals after norms": {"apply_residual_connection_post_layernorm": True},
    "norm at the end": {"output_layernorm": True},
    "norm at the end, zero-centered RMSNorm": {"output_layernorm": True, "normalization": "RMSNorm", "zero_centered_gamma": True},
    "residuals after norms, norm at the end": {"apply_residual_connection_post_layernorm": True, "output_layernorm": True},
    "parallel": {"parallel_attention_mlp": True},
}


@DTYPES
@pytest.mark.parametrize("config", LAYERS.values(), ids=LAYERS)
def test_transformer_layer_is_the_plain_one(dtype: torch.dtype, config: dict[str, Any]) -> None:
    module = drawn(modules.TransformerLayer(H, F, HEADS, hidden_dropout=0, attention_dropout=0, **config), dtype)
    assert_alike(module, lambda x, w: plain_layer(x, w, **config), inputs(dtype, (SEQUENCE, BATCH, H)))


@DTYPES
@pytest.mark.parametrize("post", [False, True])
def test_decoder_layer_is_the_plain_one(dtype: torch.dtype, post: bool) -> None:
    config = {"apply_residual_connection_post_layernorm": post}
    module = drawn(modules.TransformerLayer(H, F, HEADS, hidden_dropout=0, attention_dropout=0, layer_type="decoder", **config), dtype)
    given = inputs(dtype, (SEQUENCE, BATCH, H), (7, BATCH, H))
    assert_alike(module, lambda x, w, encoded: plain_layer(x, w, encoded, **config), given, ("encoder_output",))


def test_transformer_layer_in_the_other_layout_is_the_same() -> None:
    config: dict[str, Any] = {"hidden_dropout": 0, "attention_dropout": 0, "layer_type": "decoder", "fuse_qkv_params": True}
    one = drawn(modules.TransformerLayer(H, F, HEADS, **config), torch.float64)
    other = modules.TransformerLayer(H, F, HEADS, attn_input_format="bshd", **config).double()
    other.load_state_dict(one.state_dict())
    x, encoded = inputs(torch.float64, (SEQUENCE, BATCH, H), (7, BATCH, H))
    swapped = other(x.transpose(0, 1), encoder_output=encoded.transpose(0, 1))
    torch.testing.assert_close(swapped.transpose(0, 1), one(x, encoder_output=encoded), rtol=1e-12, atol=1e-12)


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
    attention = modules.MultiheadAttention(H, HEADS, input_layernorm=True, return_bias=True, return_layernorm_output=True)
    out, bias, normed = attention(torch.randn(3, 2, H))
    assert bias is attention.proj.bias and normed.shape == out.shape == (3, 2, H)


def test_zero_centered_weight_below_bfloat16s_step_at_one_is_not_lost() -> None:
    module = modules.LayerNormLinear(H, H, zero_centered_gamma=True, params_dtype=torch.bfloat16)
    x = torch.randn(64, H, dtype=torch.bfloat16)
    with torch.no_grad():
        before = module.layer_norm(x)
        module.layer_norm_weight.fill_(0.0039)  # 1.0039 is 1 in bfloat16
        assert not torch.equal(module.layer_norm(x), before)


def test_under_autocast_outputs_and_residuals_are_in_its_dtype() -> None:
    layer = modules.TransformerLayer(H, F, HEADS, layer_type="decoder", output_layernorm=True)
    x = torch.randn(SEQUENCE, BATCH, H)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x, encoder_output=x)
        assert modules.Linear(H, F, return_bias=True)(x)[1].dtype == torch.bfloat16
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert {p.grad.dtype for p in layer.parameters() if p.grad is not None} == {torch.float32}
    assert all(p.grad is not None for p in layer.parameters())


# ---- dropout


def test_dropout_is_determined_by_the_seed_and_off_in_evaluation() -> None:
    layer = modules.TransformerLayer(H, F, HEADS, hidden_dropout=0.3, attention_dropout=0.3, drop_path_rate=0.2)
    x = torch.randn(SEQUENCE, BATCH, H)

    def run(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return layer(x)

    assert torch.equal(run(0), run(0))
    assert not torch.equal(run(0), run(1))
    layer.eval()
    assert torch.equal(run(0), run(1))


def test_dropped_path_is_a_samples_whole_branch_and_kept_ones_are_scaled() -> None:
    layer = modules.TransformerLayer(H, F, HEADS, hidden_dropout=0, attention_dropout=0, drop_path_rate=0.75, parallel_attention_mlp=True)
    layer = drawn(layer, torch.float64)
    (x,) = inputs(torch.float64, (SEQUENCE, 64, H))
    torch.manual_seed(0)
    branch = layer(x) - x
    whole = layer.eval()(x) - x
    kept = branch.ne(0).any(-1).any(0)
    assert 0 < int(kept.sum()) < 64
    torch.testing.assert_close(branch[:, kept], whole[:, kept] * 4, rtol=1e-12, atol=1e-12)
    assert not branch[:, ~kept].any()


# ---- checkpointing, compiling


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_checkpointed_layer_has_bitwise_the_same_gradients(dropout: float) -> None:
    layer = modules.TransformerLayer(H, F, HEADS, hidden_dropout=dropout, attention_dropout=dropout)
    x = torch.randn(SEQUENCE, BATCH, H)

    def gradients(run: Callable[[], Tensor]) -> list[Tensor]:
        layer.zero_grad()
        torch.manual_seed(5)
        run().square().sum().backward()
        return [p.grad.clone() for p in layer.parameters() if p.grad is not None]

    bare = gradients(lambda: layer(x))
    assert len(bare) == len(list(layer.parameters()))
    for run in (
        lambda: checkpoint(layer, x, use_reentrant=False),
        lambda: layer(x, checkpoint_core_attention=True),
    ):
        assert all(map(torch.equal, gradients(run), bare))


def test_layer_compiles_in_one_graph() -> None:
    torch._dynamo.reset()
    layer = drawn(modules.TransformerLayer(H, F, HEADS, hidden_dropout=0, attention_dropout=0, num_gqa_groups=2), torch.float32)
    x = torch.randn(SEQUENCE, BATCH, H)
    padding = torch.zeros(BATCH, 1, 1, SEQUENCE, dtype=torch.bool)
    padding[:, :, :, -1] = True
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for call in ({}, {"attention_mask": padding, "self_attn_mask_type": "padding_causal"}):
        layer.zero_grad()
        expected = layer(x, **call)
        expected.sum().backward()
        wanted = [p.grad.clone() for p in layer.parameters()]
        layer.zero_grad()
        found = compiled(x, **call)
        found.sum().backward()
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        for p, gradient in zip(layer.parameters(), wanted, strict=True):
            torch.testing.assert_close(p.grad, gradient, rtol=1e-4, atol=1e-4)
