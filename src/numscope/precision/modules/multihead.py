"""Multi-head attention with its projections."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from numscope.precision.gemm.passes import in_autocast_dtype
from numscope.precision.modules.arguments import Init, check_divides
from numscope.precision.modules.attention import DotProductAttention, check_call, check_format
from numscope.precision.modules.layernorm_linear import LayerNormLinear
from numscope.precision.modules.linear import Linear
from numscope.precision.modules.masks import Mask, Window, check_mask_type
from numscope.precision.modules.norm import NORMS, L2Normalization
from numscope.precision.modules.parts import NamedModule
from numscope.precision.modules.rotary import rotate
from numscope.records.checks import check_one_of
from numscope.records.errors import UsageError

Angles = Tensor | tuple[Tensor, Tensor] | None
QK_NORMS = ("L2Normalization", "RMSNorm", "LayerNorm")


class MultiheadAttention(NamedModule):
    """Projections of queries, keys and values, attention, and an output projection.

    Children: ``layernorm_qkv`` (``qkv`` without a norm) for self attention, ``layernorm_query`` (``query_layer``) and ``key_value`` for
    cross attention, then ``core_attention`` and ``proj``.

    Args:
        hidden_size: size of the last dimension of input and output.
        num_attention_heads: number of query heads.
        kv_channels: size of a head; None: ``hidden_size / num_attention_heads``.
        layernorm_epsilon, normalization, zero_centered_gamma: of the norm, as for ``LayerNormLinear``.
        init_method, output_layer_init_method: initialize the weights of the first projections, and of ``proj``.
        num_gqa_groups, attention_dropout, attn_mask_type, window_size, layer_number, qkv_format, softmax_type: as for
            ``DotProductAttention``.
        attention_type: ``self``, or ``cross`` with keys and values from ``encoder_output``.
        input_layernorm: normalize the input first.
        return_layernorm_output: also return that norm's output, last.
        return_bias: return the bias of ``proj`` instead of adding it.
        bias: whether the projections have one.
        fuse_qkv_params: one ``weight`` for query, key and value; else ``query_weight``, ``key_weight`` and ``value_weight``.
        qkv_weight_interleaved: with one weight, each group of heads has its rows of query, key and value next to each other; else all query
            rows come first, then all key rows.
        rotary_pos_interleaved: whether pairs of rotary positions are neighbors.
        qk_norm_type: normalize each head of queries and keys: ``L2Normalization``, ``RMSNorm`` or ``LayerNorm``.
        qk_norm_eps: added to that norm's variance or mean square.
        qk_norm_before_rope: normalize before rotary positions are applied instead of after.
        params_dtype, device, name, others: as for ``Linear``.

    Raises: UsageError: an argument is wrong or not supported.
    """

    def __init__(
        self,
        hidden_size: int,
        num_attention_heads: int,
        kv_channels: int | None = None,
        attention_dropout: float = 0.1,
        layernorm_epsilon: float = 1e-5,
        init_method: Init | None = None,
        output_layer_init_method: Init | None = None,
        *,
        num_gqa_groups: int | None = None,
        attn_mask_type: str = "causal",
        window_size: Window = None,
        layer_number: int | None = None,
        qkv_format: str = "sbhd",
        attention_type: str = "self",
        input_layernorm: bool = False,
        return_layernorm_output: bool = False,
        return_bias: bool = False,
        bias: bool = True,
        normalization: str = "LayerNorm",
        zero_centered_gamma: bool = False,
        fuse_qkv_params: bool = False,
        qkv_weight_interleaved: bool = True,
        rotary_pos_interleaved: bool = False,
        qk_norm_type: str | None = None,
        qk_norm_eps: float = 1e-6,
        qk_norm_before_rope: bool = False,
        softmax_type: str = "vanilla",
        params_dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        name: str | None = None,
        **others: Any,
    ) -> None:
        super().__init__(name, others)
        where = type(self).__name__
        check_one_of(f"{where}: attention_type", attention_type, ("self", "cross"))
        check_format(where, "qkv_format", qkv_format)
        check_mask_type(where, attn_mask_type)
        if not kv_channels:
            check_divides(where, "num_attention_heads", num_attention_heads, "hidden_size", hidden_size)
        self.num_attention_heads = num_attention_heads
        self.num_gqa_groups = num_attention_heads if num_gqa_groups is None else num_gqa_groups
        check_divides(where, "num_gqa_groups", self.num_gqa_groups, "num_attention_heads", num_attention_heads)
        self.kv_channels = kv_channels or hidden_size // num_attention_heads
        self.layer_number = 1 if layer_number is None else layer_number
        self.qkv_format = qkv_format
        self.attention_type = attention_type
        self.input_layernorm = input_layernorm
        self.return_layernorm_output = return_layernorm_output and input_layernorm
        self.return_bias = return_bias
        self.qkv_weight_interleaved = qkv_weight_interleaved and fuse_qkv_params
        self.rotary_pos_interleaved = rotary_pos_interleaved
        self.qk_norm_before_rope = qk_norm_before_rope
        query, key = self.kv_channels * num_attention_heads, self.kv_channels * self.num_gqa_groups
        shared: dict[str, Any] = {"params_dtype": params_dtype, "device": device, "bias": bias}
        normed = {
            **shared,
            "eps": layernorm_epsilon,
            "normalization": normalization,
            "zero_centered_gamma": zero_centered_gamma,
            "return_layernorm_output": self.return_layernorm_output,
        }

        def split(**sizes: int) -> dict[str, int] | None:
            return None if fuse_qkv_params else sizes

        first: dict[str, Any] = {"init_method": init_method}
        if attention_type == "self":
            rows, first["parameters_split"] = query + 2 * key, split(query=query, key=key, value=key)
            if input_layernorm:
                self.layernorm_qkv = LayerNormLinear(hidden_size, rows, name=self.named("layernorm_qkv"), **first, **normed)
            else:
                self.qkv = Linear(hidden_size, rows, name=self.named("qkv"), **first, **shared)
        else:
            if input_layernorm:
                first["parameters_split"] = split(query=query)
                self.layernorm_query = LayerNormLinear(hidden_size, query, name=self.named("layernorm_query"), **first, **normed)
            else:
                self.query_layer = Linear(hidden_size, query, name=self.named("query_layer"), **first, **shared)
            first["parameters_split"] = split(key=key, value=key)
            self.key_value = Linear(hidden_size, 2 * key, name=self.named("key_value"), **first, **shared)
        self.q_norm = self._head_norm("q_norm", qk_norm_type, qk_norm_eps, params_dtype, device)
        self.k_norm = self._head_norm("k_norm", qk_norm_type, qk_norm_eps, params_dtype, device)
        self.core_attention = DotProductAttention(
            num_attention_heads,
            self.kv_channels,
            num_gqa_groups=self.num_gqa_groups,
            attention_dropout=attention_dropout,
            qkv_format=qkv_format,
            attn_mask_type=attn_mask_type,
            window_size=window_size,
            attention_type=attention_type,
            layer_number=layer_number,
            softmax_type=softmax_type,
            params_dtype=params_dtype,
            device=device,
            name=self.named("core_attention"),
        )
        self.proj = Linear(
            query, hidden_size, init_method=output_layer_init_method, return_bias=return_bias, name=self.named("proj"), **shared
        )

    def _head_norm(self, child: str, kind: str | None, eps: float, dtype: torch.dtype | None, device: Any) -> nn.Module | None:
        if kind is None:
            return None
        check_one_of(f"{type(self).__name__}: qk_norm_type", kind, QK_NORMS)
        if kind == "L2Normalization":
            return L2Normalization(eps)
        return NORMS[kind](self.kv_channels, eps, params_dtype=dtype, device=device, name=self.named(child))

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Mask = None,
        encoder_output: Tensor | None = None,
        attn_mask_type: str | None = None,
        window_size: Window = None,
        is_first_microbatch: bool | None = None,
        checkpoint_core_attention: bool = False,
        rotary_pos_emb: Angles = None,
        core_attention_bias_type: str = "no_bias",
        core_attention_bias: Tensor | None = None,
        alibi_slopes: Tensor | None = None,
        cu_seqlens_q: Tensor | None = None,
        cu_seqlens_kv: Tensor | None = None,
        **others: Any,
    ) -> Tensor | tuple[Tensor | None, ...]:
        """
        Args:
            hidden_states: shape ``(sequence, batch, hidden_size)``, or batch first, by ``qkv_format``.
            attention_mask: true where masked out; in cross attention a pair of padding masks for queries and keys.
            encoder_output: in cross attention, the source of keys and values, shaped as ``hidden_states``.
            attn_mask_type, window_size: override the constructor's.
            is_first_microbatch: ignored: a weight is quantized once as long as it does not change.
            rotary_pos_emb: angles, shape ``(positions, 1, 1, rotated)``, or a pair for queries and keys.
            checkpoint_core_attention, core_attention_bias_type, core_attention_bias, alibi_slopes, cu_seqlens_q, cu_seqlens_kv: as for
                ``DotProductAttention``.

        Returns: Shape of ``hidden_states``; then, if wanted, the bias of ``proj`` and the norm's output.

        Raises: UsageError: an argument is wrong or not supported.
        """
        check_call(type(self).__name__, others)
        hidden_states = in_autocast_dtype(hidden_states)
        if self.attention_type == "self":
            queries, keys, values, normed = self._self_projections(hidden_states)
        elif encoder_output is None:
            raise UsageError(f"{type(self).__name__}.forward: encoder_output: got None, expected a tensor for keys and values.")
        else:
            queries, keys, values, normed = self._cross_projections(hidden_states, in_autocast_dtype(encoder_output))
        queries, keys = self._positioned(queries, keys, rotary_pos_emb)
        context = self.core_attention(
            queries,
            keys,
            values,
            attention_mask=attention_mask,
            cu_seqlens_q=cu_seqlens_q,
            cu_seqlens_kv=cu_seqlens_kv,
            attn_mask_type=attn_mask_type,
            window_size=window_size,
            checkpoint_core_attention=checkpoint_core_attention,
            core_attention_bias_type=core_attention_bias_type,
            core_attention_bias=core_attention_bias,
            alibi_slopes=alibi_slopes,
        )
        out = self.proj(context)
        returned = out if self.return_bias else (out,)
        if self.return_layernorm_output:
            returned = (*returned, normed)
        return returned if len(returned) > 1 else returned[0]

    def _self_projections(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries, keys and values, each ``(…, heads, channels)``, and the norm's output if it is returned."""
        mixed, normed = _apart(self.layernorm_qkv(x) if self.input_layernorm else self.qkv(x))
        groups, size, each = self.num_gqa_groups, self.kv_channels, self.num_attention_heads // self.num_gqa_groups
        if self.qkv_weight_interleaved:
            grouped = mixed.reshape(*mixed.shape[:-1], groups, each + 2, size)
            queries, keys, values = torch.split(grouped, [each, 1, 1], dim=-2)
        else:
            queries, keys, values = torch.split(mixed, [groups * each * size, groups * size, groups * size], dim=-1)
        queries, keys, values = (t.reshape(*mixed.shape[:-1], -1, size) for t in (queries, keys, values))
        return queries, keys, values, normed

    def _cross_projections(self, x: Tensor, encoder_output: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        mixed = self.key_value(encoder_output)
        groups, size = self.num_gqa_groups, self.kv_channels
        if self.qkv_weight_interleaved:
            keys, values = mixed.reshape(*mixed.shape[:-1], groups, 2 * size).chunk(2, -1)
        else:
            keys, values = mixed.reshape(*mixed.shape[:-1], 2 * groups, size).chunk(2, -2)
        queries, normed = _apart(self.layernorm_query(x) if self.input_layernorm else self.query_layer(x))
        return queries.reshape(*queries.shape[:-1], self.num_attention_heads, size), keys, values, normed

    def _positioned(self, queries: Tensor, keys: Tensor, angles: Angles) -> tuple[Tensor, Tensor]:
        """Apply the heads' norms and rotary positions."""
        if self.qk_norm_before_rope:
            queries, keys = self._head_normed(queries, keys)
        if angles is not None:
            of_queries, of_keys = (angles, angles) if isinstance(angles, Tensor) else angles
            queries = rotate(queries, of_queries, self.qkv_format, self.rotary_pos_interleaved)
            keys = rotate(keys, of_keys, self.qkv_format, self.rotary_pos_interleaved)
        return (queries, keys) if self.qk_norm_before_rope else self._head_normed(queries, keys)

    def _head_normed(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        if self.q_norm is None or self.k_norm is None:
            return queries, keys
        return self.q_norm(queries), self.k_norm(keys)


def _apart(returned: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor | None]:
    """A projection, and the norm's output if it was returned too."""
    return (returned, None) if isinstance(returned, Tensor) else returned
