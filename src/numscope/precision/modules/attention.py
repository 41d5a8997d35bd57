"""Scaled dot-product attention with Transformer Engine's arguments."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from numscope.precision.modules.arguments import check_divides, check_rate, device_for, new_parameter
from numscope.precision.modules.masks import BIAS_TYPES, Mask, Span, Window, alibi, check_mask_type, hidden, padding_of
from numscope.precision.modules.parts import NamedModule
from numscope.records.checks import check_one_of
from numscope.records.errors import UsageError

FORMATS = ("sbhd", "bshd")
SOFTMAX_TYPES = ("vanilla", "off-by-one", "learnable")


class DotProductAttention(NamedModule):
    """Scaled dot-product attention. It has no GEMM layer and stays in high precision under every recipe.

    Args:
        num_attention_heads: number of query heads.
        kv_channels: size of a head, or a pair of sizes for key and value heads.
        num_gqa_groups: number of key and value heads, each shared by several query heads; None: one for each query head.
        attention_dropout: probability that a softmax value is dropped in training.
        qkv_format: ``sbhd`` (sequence first) or ``bshd`` (batch first).
        attn_mask_type: ``causal``, ``no_mask``, ``padding``, ``padding_causal``, ``causal_bottom_right``, ``padding_causal_bottom_right``
            or ``arbitrary``.
        window_size: how many keys to the left and right of the diagonal a query sees; -1: all.
        bottom_right_diagonal: whether the diagonal ends at the bottom right, else at the top left; None: at the top left for ``causal`` and
            ``padding_causal``, at the bottom right for other types.
        attention_type: ``self`` or ``cross``.
        layer_number: stored only.
        softmax_scale: None: 1 / sqrt(size of a head).
        softmax_type: ``vanilla``; ``off-by-one`` adds 1 to the softmax's denominator, ``learnable`` adds ``exp(softmax_offset)``.
        params_dtype, device, name, others: as for ``Linear``.

    Raises: UsageError: an argument is wrong or not supported.
    """

    softmax_offset: Tensor | None

    def __init__(
        self,
        num_attention_heads: int,
        kv_channels: int | tuple[int, int],
        *,
        num_gqa_groups: int | None = None,
        attention_dropout: float = 0.0,
        qkv_format: str = "sbhd",
        attn_mask_type: str = "causal",
        window_size: Window = None,
        bottom_right_diagonal: bool | None = None,
        attention_type: str = "self",
        layer_number: int | None = None,
        softmax_scale: float | None = None,
        softmax_type: str = "vanilla",
        params_dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        name: str | None = None,
        **others: Any,
    ) -> None:
        super().__init__(name, others)
        where = type(self).__name__
        check_format(where, "qkv_format", qkv_format)
        check_one_of(f"{where}: attention_type", attention_type, ("self", "cross"))
        check_one_of(f"{where}: softmax_type", softmax_type, SOFTMAX_TYPES)
        check_rate(where, "attention_dropout", attention_dropout)
        self.num_attention_heads = num_attention_heads
        self.num_gqa_groups = num_attention_heads if num_gqa_groups is None else num_gqa_groups
        check_divides(where, "num_gqa_groups", self.num_gqa_groups, "num_attention_heads", num_attention_heads)
        self.key_channels, self.value_channels = (kv_channels, kv_channels) if isinstance(kv_channels, int) else kv_channels
        self.attention_dropout = attention_dropout
        self.qkv_format = qkv_format
        self.attn_mask_type = check_mask_type(where, attn_mask_type)
        self.window_size = window_size
        self.bottom_right_diagonal = bottom_right_diagonal
        self.attention_type = attention_type
        self.layer_number = 1 if layer_number is None else layer_number
        self.softmax_scale = 1 / math.sqrt(self.key_channels) if softmax_scale is None else softmax_scale
        self.softmax_type = softmax_type
        if softmax_type == "learnable":
            self.softmax_offset = new_parameter((num_attention_heads,), device_for(device), params_dtype)
        else:
            self.softmax_offset = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the learnable softmax offset to 0."""
        if self.softmax_offset is not None and self.softmax_offset.device.type != "meta":
            nn.init.zeros_(self.softmax_offset)

    def forward(
        self,
        query_layer: Tensor,
        key_layer: Tensor,
        value_layer: Tensor,
        attention_mask: Mask = None,
        qkv_format: str | None = None,
        cu_seqlens_q: Tensor | None = None,
        cu_seqlens_kv: Tensor | None = None,
        attn_mask_type: str | None = None,
        window_size: Window = None,
        bottom_right_diagonal: bool | None = None,
        checkpoint_core_attention: bool = False,
        core_attention_bias_type: str = "no_bias",
        core_attention_bias: Tensor | None = None,
        alibi_slopes: Tensor | None = None,
        **others: Any,
    ) -> Tensor:
        """
        Args:
            query_layer: shape ``(sequence, batch, heads, channels)``, or ``(batch, sequence, heads, channels)``, by the format.
            key_layer, value_layer: likewise, with ``num_gqa_groups`` heads.
            attention_mask: true where masked out; used by the padding mask types and ``arbitrary``, see ``masks.hidden``.
            cu_seqlens_q, cu_seqlens_kv: cumulative lengths, shape ``(batch + 1,)``, instead of a padding mask.
            attn_mask_type, window_size, bottom_right_diagonal, qkv_format: override the constructor's.
            checkpoint_core_attention: compute attention again in backward, instead of keeping what backward needs.
            core_attention_bias_type: ``no_bias``; ``pre_scale_bias`` and ``post_scale_bias`` add ``core_attention_bias`` to the scores
                before and after scaling; ``alibi`` adds a bias by distance, with ``alibi_slopes`` of shape ``(heads,)`` or
                ``(batch, heads)``.

        Returns: Shape ``(sequence, batch, heads · channels)``, or batch first. A query that sees no key gives 0.

        Raises: UsageError: an argument is wrong or not supported.
        """
        where = type(self).__name__
        check_call(where, others)
        check_one_of(f"{where}: core_attention_bias_type", core_attention_bias_type, BIAS_TYPES)
        layout = self.qkv_format if qkv_format is None else qkv_format
        check_format(where, "qkv_format", layout)
        queries, keys, values = (by_head(t, layout) for t in (query_layer, key_layer, value_layer))
        span = Span(queries.shape[-2], keys.shape[-2], queries.device)
        if attention_mask is None and cu_seqlens_q is not None:
            padding = padding_of(cu_seqlens_q, span.queries)
            attention_mask = (padding, padding if cu_seqlens_kv is None else padding_of(cu_seqlens_kv, span.keys))
        mask_type = self.attn_mask_type if attn_mask_type is None else check_mask_type(where, attn_mask_type)
        window = self.window_size if window_size is None else window_size
        corner = self.bottom_right_diagonal if bottom_right_diagonal is None else bottom_right_diagonal
        causal = mask_type == "causal" and window in (None, (-1, -1), (-1, 0)) and not corner
        if causal and core_attention_bias_type == "no_bias" and self.softmax_type == "vanilla":
            unseen = bias = None
        else:
            causal = False
            unseen, span = hidden(where, mask_type, attention_mask, window, corner, span)
            if core_attention_bias_type == "alibi":
                aligned = mask_type not in ("causal", "padding_causal") if corner is None else corner
                bias = alibi(alibi_slopes, self.num_attention_heads, aligned, span, queries.dtype)
            else:
                bias = self._given_bias(core_attention_bias_type, core_attention_bias)
        attended = (queries, keys, values, unseen, bias, causal)
        out: Tensor
        if checkpoint_core_attention and torch.is_grad_enabled():
            out = checkpoint(self._attend, *attended, use_reentrant=False)
        else:
            out = self._attend(*attended)
        return (out.permute(2, 0, 1, 3) if layout == "sbhd" else out.permute(0, 2, 1, 3)).flatten(-2)

    def _given_bias(self, kind: str, bias: Tensor | None) -> Tensor | None:
        """The bias, to be added to the scores after scaling."""
        if (bias is None) != (kind == "no_bias"):
            raise UsageError(
                f"{type(self).__name__}: core_attention_bias: got {'None' if bias is None else 'a tensor'} with "
                f"core_attention_bias_type={kind!r}, expected {'a tensor' if bias is None else 'None'}."
            )
        return bias * self.softmax_scale if bias is not None and kind == "pre_scale_bias" else bias

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, unseen: Tensor | None, bias: Tensor | None, causal: bool) -> Tensor:
        """Attention on tensors of shape ``(batch, heads, sequence, channels)``."""
        dropout = self.attention_dropout if self.training else 0.0
        blind: Tensor | None = None
        if unseen is not None:
            blind = unseen.all(-1, keepdim=True)  # queries that see no key; their softmax would be nan
            unseen = unseen & ~blind
        shared = self.num_gqa_groups != self.num_attention_heads
        if self.softmax_type == "vanilla":
            mask = _additive(unseen, bias, queries.dtype)
            out = F.scaled_dot_product_attention(
                queries, keys, values, mask, dropout, is_causal=causal, scale=self.softmax_scale, enable_gqa=shared
            )
        else:
            out = self._attend_with_sink(queries, keys, values, unseen, bias, dropout)
        return out if blind is None else out.masked_fill(blind, 0)

    def _attend_with_sink(
        self, queries: Tensor, keys: Tensor, values: Tensor, unseen: Tensor | None, bias: Tensor | None, dropout: float
    ) -> Tensor:
        """Softmax with an additional key whose value is 0. *Cost:* keeps the scores in memory."""
        repeats = self.num_attention_heads // self.num_gqa_groups
        keys, values = keys.repeat_interleave(repeats, 1), values.repeat_interleave(repeats, 1)
        scores = queries @ keys.transpose(-1, -2) * self.softmax_scale
        if bias is not None:
            scores = scores + bias
        if unseen is not None:
            scores = scores.masked_fill(unseen, -math.inf)
        wide = torch.promote_types(scores.dtype, torch.float32)
        if self.softmax_offset is None:
            offset = torch.zeros((), dtype=wide, device=scores.device)
        else:
            offset = self.softmax_offset.to(wide).view(1, -1, 1, 1)
        sink = offset.expand(*scores.shape[:-1], 1)
        probabilities = torch.cat((scores.to(wide), sink), -1).softmax(-1)[..., :-1].to(queries.dtype)
        return F.dropout(probabilities, dropout, dropout > 0) @ values

    def extra_repr(self) -> str:
        return f"heads={self.num_attention_heads}, groups={self.num_gqa_groups}, {self.attn_mask_type}, {self.qkv_format}"


def check_format(where: str, name: str, layout: str) -> None:
    """Raise UsageError unless the layout is supported."""
    if layout == "thd":
        raise UsageError(f"{where}: {name}: got 'thd', expected one of {', '.join(FORMATS)}. Pad the sequences and use a padding mask.")
    check_one_of(f"{where}: {name}", layout, FORMATS)


# Arguments of Transformer Engine's forward that have no effect here, and those that are not supported.
_CALL_WITHOUT_EFFECT = ("fast_zero_fill", "is_first_microbatch", "max_seqlen_q", "max_seqlen_kv", "pad_between_seqs", "fp8_output")
_CALL_UNSUPPORTED = {
    "inference_params": "These modules keep no keys and values of earlier calls.",
    "cu_seqlens_q_padded": "Pad at the end of each sequence and pass a padding mask.",
    "cu_seqlens_kv_padded": "Pad at the end of each sequence and pass a padding mask.",
}


def check_call(where: str, given: dict[str, Any]) -> None:
    """Accept forward arguments of Transformer Engine that have no effect here, and raise UsageError for those not supported."""
    for name, value in given.items():
        if name in _CALL_UNSUPPORTED and value is not None:
            raise UsageError(f"{where}.forward: {name}: got {type(value).__name__}, expected None. {_CALL_UNSUPPORTED[name]}")
        if name not in _CALL_UNSUPPORTED and name not in _CALL_WITHOUT_EFFECT:
            raise TypeError(f"{where}.forward() got an unexpected keyword argument {name!r}")


def by_head(x: Tensor, layout: str) -> Tensor:
    """A view of shape ``(batch, heads, sequence, channels)``."""
    return x.permute(1, 2, 0, 3) if layout == "sbhd" else x.permute(0, 2, 1, 3)


def _additive(unseen: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Mask and bias as one tensor, for torch's attention."""
    if bias is None:
        return None if unseen is None else ~unseen
    bias = bias.to(dtype)
    return bias if unseen is None else bias.masked_fill(unseen, -math.inf)
