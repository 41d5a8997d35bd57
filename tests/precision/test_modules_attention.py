"""Attention against its definition, score by score: masks, windows, biases, layouts, sinks, rotary positions."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from numscope.precision import modules
from numscope.precision.modules.masks import alibi_slopes
from numscope.precision.modules.rotary import rotate
from numscope.records.errors import UsageError

HEADS, CHANNELS, BATCH = 4, 3, 2
Sees = Callable[[int, int, int], bool]  # batch, query, key
Bias = Callable[[int, int, int, int], float]  # batch, head, query, key


def defined(q: Tensor, k: Tensor, v: Tensor, sees: Sees, bias: Bias | None = None, sink: list[float] | None = None) -> Tensor:
    """``(sequence, batch, heads, channels)``, in float64, one query at a time; a query that sees nothing gives 0."""
    out = []
    for i in range(q.shape[0]):
        for b in range(q.shape[1]):
            for h in range(q.shape[2]):
                g = h * k.shape[2] // q.shape[2]
                keys = [j for j in range(k.shape[0]) if sees(b, i, j)]
                scores = [(q[i, b, h] @ k[j, b, g]) / math.sqrt(q.shape[-1]) + (bias(b, h, i, j) if bias else 0.0) for j in keys]
                weights = [score.exp() for score in scores]
                total = sum(weights) + (math.exp(sink[h]) if sink else 0.0)
                out.append(sum((w / total * v[j, b, g] for w, j in zip(weights, keys, strict=True)), torch.zeros(v.shape[-1]).double()))
    return torch.stack(out).reshape(*q.shape[:2], -1)


def drawn(queries: int = 4, keys: int = 4, groups: int = HEADS) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((queries, HEADS), (keys, groups), (keys, groups))
    q, k, v = (torch.randn(n, BATCH, h, CHANNELS, generator=generator, dtype=torch.float64) for n, h in shapes)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


def attention(**config: Any) -> modules.DotProductAttention:
    return modules.DotProductAttention(HEADS, CHANNELS, **config)


def assert_alike(got: Tensor, wanted: Tensor, leaves: tuple[Tensor, ...]) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)
    direction = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    theirs = torch.autograd.grad(wanted, leaves, direction, allow_unused=True)
    mine = torch.autograd.grad(got, leaves, direction, allow_unused=True)
    for a, b, leaf in zip(mine, theirs, leaves, strict=True):
        torch.testing.assert_close(a, torch.zeros_like(leaf) if b is None else b, rtol=1e-11, atol=1e-11)


# Padded at the end: the lengths of each batch's queries and keys.
QUERY_LENGTHS, KEY_LENGTHS = (4, 2), (5, 3)


def padding(lengths: tuple[int, ...], length: int) -> Tensor:
    return torch.tensor([[j >= n for j in range(length)] for n in lengths]).view(len(lengths), 1, 1, length)


def unpadded(b: int, i: int, j: int) -> bool:
    return i < QUERY_LENGTHS[b] and j < KEY_LENGTHS[b]


ARBITRARY = torch.tensor([[False, True, False, True, True], [True] * 5, [False] * 5, [True, False, False, False, True]])
PAIR = (padding(QUERY_LENGTHS, 4), padding(KEY_LENGTHS, 5))

# Of 4 queries and 5 keys.
MASKS: dict[str, tuple[Tensor | tuple[Tensor, Tensor] | None, Sees]] = {
    "no_mask": (None, lambda b, i, j: True),
    "causal": (None, lambda b, i, j: j <= i),
    "causal_bottom_right": (None, lambda b, i, j: j <= i + 1),
    "padding": (PAIR, unpadded),
    "padding_causal": (PAIR, lambda b, i, j: unpadded(b, i, j) and j <= i),
    "padding_causal_bottom_right": (PAIR, lambda b, i, j: unpadded(b, i, j) and j <= i + KEY_LENGTHS[b] - QUERY_LENGTHS[b]),
    "arbitrary": (ARBITRARY, lambda b, i, j: not bool(ARBITRARY[i, j])),
}


@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("kind", MASKS)
def test_each_query_sees_the_keys_that_its_mask_type_says(kind: str, groups: int) -> None:
    mask, sees = MASKS[kind]
    q, k, v = drawn(4, 5, groups)
    got = attention(attn_mask_type=kind, num_gqa_groups=groups)(q, k, v, attention_mask=mask)
    assert_alike(got, defined(q, k, v, sees), (q, k, v))


def test_mask_type_of_the_call_goes_before_the_constructors() -> None:
    q, k, v = drawn(4, 5)
    assert torch.equal(attention()(q, k, v, attn_mask_type="no_mask"), attention(attn_mask_type="no_mask")(q, k, v))
    for spelling in ("padding,causal", "causal,padding"):
        assert attention(attn_mask_type=spelling).attn_mask_type == "padding_causal"


def test_one_padding_mask_is_of_queries_and_keys() -> None:
    q, k, v = drawn()
    mask = padding(QUERY_LENGTHS, 4)
    got = attention(attn_mask_type="padding")(q, k, v, mask)
    assert_alike(got, defined(q, k, v, lambda b, i, j: max(i, j) < QUERY_LENGTHS[b]), (q, k, v))


def test_cumulative_lengths_stand_for_a_padding_mask() -> None:
    q, k, v = drawn(4, 5)
    module = attention(attn_mask_type="padding_causal_bottom_right")
    lengths = {"cu_seqlens_q": torch.tensor([0, 4, 6], dtype=torch.int32), "cu_seqlens_kv": torch.tensor([0, 5, 8], dtype=torch.int32)}
    assert torch.equal(module(q, k, v, **lengths), module(q, k, v, PAIR))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_query_that_sees_no_key_gives_zero_and_no_nan(dtype: torch.dtype) -> None:
    q, k, v = (t.detach().to(dtype).requires_grad_() for t in drawn())
    mask = torch.tensor([True, False]).view(BATCH, 1, 1, 1).expand(BATCH, 1, 1, 4)
    out = attention(attn_mask_type="padding", attention_dropout=0.5)(q, k, v, mask)
    assert torch.equal(out[:, 0], torch.zeros_like(out[:, 0]))
    out.sum().backward()
    assert all(torch.isfinite(t.grad).all() for t in (q, k, v) if t.grad is not None)
    assert q.grad is not None and not q.grad[:, 0].any()


@given(
    kind=st.sampled_from(["no_mask", "causal", "causal_bottom_right"]),
    window=st.tuples(st.integers(-1, 5), st.integers(-1, 5)),
    queries=st.integers(1, 5),
    keys=st.integers(1, 5),
    corner=st.sampled_from([None, True, False]),
)
def test_window_is_measured_from_the_diagonal(kind: str, window: tuple[int, int], queries: int, keys: int, corner: bool | None) -> None:
    q, k, v = (t.detach() for t in drawn(queries, keys))
    bottom_right = kind != "causal" if corner is None else corner
    left, right = window

    def sees(b: int, i: int, j: int) -> bool:
        distance = j - i - (keys - queries if bottom_right else 0)
        limit = 0 if kind.startswith("causal") else right
        return (left < 0 or distance >= -left) and (limit < 0 or distance <= limit)

    got = attention(attn_mask_type=kind, window_size=window, bottom_right_diagonal=corner)(q, k, v)
    torch.testing.assert_close(got, defined(q, k, v, sees), rtol=1e-12, atol=1e-12)


def test_biases_join_the_scores_before_and_after_the_scale() -> None:
    q, k, v = drawn(4, 5)
    bias = torch.randn(1, HEADS, 4, 5, dtype=torch.float64, requires_grad=True)
    for kind, factor in (("pre_scale_bias", 1 / math.sqrt(CHANNELS)), ("post_scale_bias", 1.0)):
        got = attention(attn_mask_type="causal")(q, k, v, core_attention_bias_type=kind, core_attention_bias=bias)
        wanted = defined(q, k, v, lambda b, i, j: j <= i, lambda b, h, i, j, f=factor: bias[0, h, i, j] * f)
        assert_alike(got, wanted, (q, k, v, bias))


@pytest.mark.parametrize("own", [False, True])
def test_alibi_falls_with_the_distance_from_the_diagonal(own: bool) -> None:
    q, k, v = drawn(4, 5)
    slopes = torch.rand(BATCH, HEADS) if own else alibi_slopes(HEADS, q.device).expand(BATCH, HEADS)
    module = attention(attn_mask_type="causal_bottom_right")
    got = module(q, k, v, core_attention_bias_type="alibi", alibi_slopes=slopes if own else None)
    wanted = defined(q, k, v, lambda b, i, j: j <= i + 1, lambda b, h, i, j: -slopes[b, h].item() * abs(j - i - 1))
    torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)  # slopes are float32


def test_alibi_slopes_are_a_geometric_sequence_and_for_other_numbers_of_heads_two_of_them() -> None:
    device = torch.device("cpu")
    assert alibi_slopes(8, device).tolist() == [2.0**-n for n in range(1, 9)]
    assert alibi_slopes(12, device)[8:].tolist() == pytest.approx([2 ** (-(n + 0.5)) for n in range(4)])


@pytest.mark.parametrize("kind", ["off-by-one", "learnable"])
def test_sink_takes_part_in_the_softmax(kind: str) -> None:
    q, k, v = drawn(4, 5, 2)
    module = attention(softmax_type=kind, num_gqa_groups=2).double()
    offsets = [0.0] * HEADS
    if module.softmax_offset is not None:
        offsets = [0.5, -1.0, 2.0, 0.0]
        with torch.no_grad():
            module.softmax_offset.copy_(torch.tensor(offsets))
    assert_alike(module(q, k, v), defined(q, k, v, lambda b, i, j: j <= i, sink=offsets), (q, k, v))
    if module.softmax_offset is not None:
        module(q, k, v).sum().backward()
        assert module.softmax_offset.grad is not None and module.softmax_offset.grad.all()


def test_layout_is_only_a_transposition() -> None:
    q, k, v = drawn(4, 5)
    swapped = attention(qkv_format="bshd")(*(t.transpose(0, 1) for t in (q, k, v)))
    torch.testing.assert_close(swapped.transpose(0, 1), attention()(q, k, v), rtol=1e-14, atol=1e-14)


def test_values_may_have_heads_of_another_size() -> None:
    q, k, _ = drawn()
    v = torch.randn(4, BATCH, HEADS, 5, dtype=torch.float64)
    got = modules.DotProductAttention(HEADS, (CHANNELS, 5))(q, k, v)
    torch.testing.assert_close(got, defined(q, k, v, lambda b, i, j: j <= i), rtol=1e-12, atol=1e-12)


def test_dropped_softmax_values_leave_the_expectation() -> None:
    torch.manual_seed(0)
    q, k, _ = (t.detach() for t in drawn())
    v = torch.ones(4, BATCH, HEADS, CHANNELS, dtype=torch.float64)
    module = attention(attention_dropout=0.5, attn_mask_type="no_mask")
    outs = torch.stack([module(q, k, v) for _ in range(400)])
    assert outs.std() > 0.1
    # Means of 400 draws that are between 0 and 2: within 5 standard errors of 1.
    assert (outs.mean(0) - 1).abs().max() < 5 / 400**0.5
    assert torch.equal(module.eval()(q, k, v), module(q, k, v))


# ---- rotary positions


@given(st.booleans(), st.sampled_from(["sbhd", "bshd"]), st.sampled_from([4, 8]))
def test_rotary_positions_turn_pairs_as_complex_numbers(interleaved: bool, layout: str, channels: int) -> None:
    length, rotated = 3, 4
    x = torch.randn(length, BATCH, HEADS, channels, dtype=torch.float64)
    pairs = torch.tensor([[position * frequency for frequency in (1.0, 0.1)] for position in range(5)], dtype=torch.float64)
    angles = (pairs.repeat_interleave(2, -1) if interleaved else torch.cat((pairs, pairs), -1)).view(5, 1, 1, rotated)
    got = rotate(x if layout == "sbhd" else x.transpose(0, 1), angles, layout, interleaved)
    got = got if layout == "sbhd" else got.transpose(0, 1)
    assert torch.equal(got[..., rotated:], x[..., rotated:])
    for position in range(length):
        for pair in range(2):
            first, second = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + 2)
            before = torch.complex(x[position, ..., first], x[position, ..., second])
            after = torch.complex(got[position, ..., first], got[position, ..., second])
            torch.testing.assert_close(after, before * cmath.exp(1j * pairs[position, pair].item()))


def test_attention_with_rotary_positions_depends_on_distance_alone() -> None:
    torch.manual_seed(0)
    module = modules.MultiheadAttention(16, HEADS, attention_dropout=0, attn_mask_type="no_mask").double()
    x = torch.randn(5, 1, 16, dtype=torch.float64)
    frequencies = torch.outer(torch.arange(20.0, dtype=torch.float64), torch.tensor([1.0, 0.2], dtype=torch.float64))
    angles = torch.cat((frequencies, frequencies), -1).view(20, 1, 1, 4)
    torch.testing.assert_close(module(x, rotary_pos_emb=angles), module(x, rotary_pos_emb=angles[7:]), rtol=1e-10, atol=1e-12)
    assert not torch.allclose(module(x, rotary_pos_emb=angles), module(x))


@pytest.mark.parametrize("kind", ["L2Normalization", "RMSNorm", "LayerNorm"])
def test_normalized_heads_do_not_see_the_scale_of_queries(kind: str) -> None:
    torch.manual_seed(0)
    module = modules.MultiheadAttention(
        16, HEADS, attention_dropout=0, qk_norm_type=kind, qk_norm_eps=1e-30, fuse_qkv_params=False
    ).double()
    x = torch.randn(5, 2, 16, dtype=torch.float64)
    before = module(x)
    with torch.no_grad():
        module.qkv.query_weight.mul_(100)
    torch.testing.assert_close(module(x), before, rtol=1e-10, atol=1e-12)


# ---- refusals


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            {"attn_mask_type": "padding"},
            "DotProductAttention: attention_mask: got None, expected a boolean padding mask for attn_mask_type='padding'.",
        ),
        (
            {"attn_mask_type": "arbitrary"},
            "DotProductAttention: attention_mask: got None, expected a boolean tensor that broadcasts to (batch, heads, queries, keys) "
            "for attn_mask_type='arbitrary'.",
        ),
        (
            {"attn_mask_type": "padding", "attention_mask": padding(QUERY_LENGTHS, 4)},
            "DotProductAttention: attention_mask: got shape (2, 1, 1, 4) for keys, expected (batch, 1, 1, 5). "
            "In cross attention pass a pair: (mask for queries, mask for keys).",
        ),
        (
            {"attn_mask_type": "arbitrary", "attention_mask": ARBITRARY.float()},
            "DotProductAttention: attention_mask: got dtype torch.float32, expected torch.bool, true where masked out.",
        ),
        (
            {"core_attention_bias_type": "post_scale_bias"},
            "DotProductAttention: core_attention_bias: got None with core_attention_bias_type='post_scale_bias', expected a tensor.",
        ),
        (
            {"inference_params": object()},
            "DotProductAttention.forward: inference_params: got object, expected None. "
            "These modules keep no keys and values of earlier calls.",
        ),
    ],
)
def test_wrong_call_is_refused_in_one_sentence(call: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        attention()(*drawn(4, 5), **call)
    assert str(caught.value) == message


def test_cross_attention_without_encoder_output_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^MultiheadAttention\.forward: encoder_output: got None, expected a tensor for keys and values"):
        modules.TransformerLayer(16, 16, HEADS, layer_type="decoder")(torch.randn(3, 2, 16))


def test_unknown_argument_of_a_call_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'atention_mask'"):
        modules.TransformerLayer(16, 16, HEADS)(torch.randn(3, 2, 16), atention_mask=None)
