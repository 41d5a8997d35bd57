"""A transformer layer of the modules of this folder."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numscope.precision.gemm.passes import in_autocast_dtype
from numscope.precision.modules.arguments import Init, check_one_of, check_others, check_rate
from numscope.precision.modules.attention import check_format
from numscope.precision.modules.layernorm_mlp import LayerNormMLP
from numscope.precision.modules.masks import Mask, Window, check_mask_type
from numscope.precision.modules.multihead import Angles, MultiheadAttention
from numscope.precision.modules.norm import LayerNorm, RMSNorm, check_normalization
from numscope.records.errors import UsageError


class TransformerLayer(nn.Module):
    """Attention and perceptron, each with norm, dropout and residual.

    Children: ``self_attention``, of a decoder ``inter_attention``, ``layernorm_mlp``, with ``output_layernorm`` also ``layernorm``.

    Args:
        hidden_size: size of the last dimension of input and output.
        ffn_hidden_size: size between the perceptron's layers.
        num_attention_heads: of queries.
        num_gqa_groups: heads of keys and values; as many as of queries where not given.
        layernorm_epsilon: added to the norms' variance, or to the mean square.
        hidden_dropout: probability that an element of attention's and perceptron's output is dropped in training.
        attention_dropout: likewise of the softmax's values.
        init_method: fills the weights of the first projections and of fc1.
        output_layer_init_method: fills those of ``proj`` and fc2.
        layer_number: kept as it is.
        kv_channels: size of a head.
        self_attn_mask_type, window_size: of self attention, as of ``DotProductAttention``.
        enc_dec_attn_mask_type, enc_dec_window_size: of a decoder's cross attention.
        apply_residual_connection_post_layernorm: residuals are taken after the norms instead of before.
        output_layernorm: normalize the output, and not the input of self attention.
        parallel_attention_mlp: attention and perceptron side by side on the same input.
        layer_type: ``encoder``, or ``decoder`` for cross attention after self attention.
        drop_path_rate: probability that a sample's branch is dropped in training.
        fuse_qkv_params, qkv_weight_interleaved, qk_norm_type, qk_norm_eps, qk_norm_before_rope, rotary_pos_interleaved, softmax_type: as of
            ``MultiheadAttention``.
        normalization, zero_centered_gamma, bias, activation: as of ``LayerNormMLP``.
        attn_input_format: ``sbhd`` (sequence first) or ``bshd`` (batch first).
        params_dtype, device, name, others: as of ``Linear``.

    Raises: UsageError.
    """

    def __init__(
        self,
        hidden_size: int,
        ffn_hidden_size: int,
        num_attention_heads: int,
        num_gqa_groups: int | None = None,
        layernorm_epsilon: float = 1e-5,
        hidden_dropout: float = 0.1,
        attention_dropout: float = 0.1,
        init_method: Init | None = None,
        output_layer_init_method: Init | None = None,
        layer_number: int | None = None,
        kv_channels: int | None = None,
        self_attn_mask_type: str = "causal",
        window_size: Window = None,
        enc_dec_attn_mask_type: str = "no_mask",
        enc_dec_window_size: Window = None,
        *,
        apply_residual_connection_post_layernorm: bool = False,
        output_layernorm: bool = False,
        parallel_attention_mlp: bool = False,
        layer_type: str = "encoder",
        drop_path_rate: float = 0.0,
        fuse_qkv_params: bool = False,
        qkv_weight_interleaved: bool = True,
        rotary_pos_interleaved: bool = False,
        qk_norm_type: str | None = None,
        qk_norm_eps: float = 1e-6,
        qk_norm_before_rope: bool = False,
        softmax_type: str = "vanilla",
        zero_centered_gamma: bool = False,
        normalization: str = "LayerNorm",
        bias: bool = True,
        activation: str = "gelu",
        attn_input_format: str = "sbhd",
        params_dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        name: str | None = None,
        **others: Any,
    ) -> None:
        super().__init__()
        where = type(self).__name__
        check_others(type(self), others)
        check_one_of(where, "layer_type", layer_type, ("encoder", "decoder"))
        check_format(where, "attn_input_format", attn_input_format)
        check_rate(where, "hidden_dropout", hidden_dropout)
        check_rate(where, "drop_path_rate", drop_path_rate)
        if parallel_attention_mlp:
            for asked, other in (
                (layer_type == "decoder", "layer_type='decoder'"),
                (apply_residual_connection_post_layernorm, "apply_residual_connection_post_layernorm=True"),
                (output_layernorm, "output_layernorm=True"),
            ):
                if asked:
                    raise UsageError(f"{where}: parallel_attention_mlp: got True, expected False with {other}.")
        self.self_attn_mask_type = check_mask_type(where, self_attn_mask_type)
        self.window_size = window_size
        self.enc_dec_attn_mask_type = check_mask_type(where, enc_dec_attn_mask_type)
        self.enc_dec_window_size = enc_dec_window_size
        self.hidden_dropout = hidden_dropout
        self.layer_number = layer_number
        self.layer_type = layer_type
        self.output_layernorm = output_layernorm
        self.parallel_attention_mlp = parallel_attention_mlp
        self.apply_residual_connection_post_layernorm = apply_residual_connection_post_layernorm
        self.attn_input_format = attn_input_format
        self.name = name
        both: dict[str, Any] = {
            "normalization": check_normalization(where, normalization),
            "zero_centered_gamma": zero_centered_gamma,
            "init_method": init_method,
            "output_layer_init_method": output_layer_init_method,
            "return_layernorm_output": apply_residual_connection_post_layernorm,
            "bias": bias,
            "params_dtype": params_dtype,
            "device": device,
        }
        attention: dict[str, Any] = {
            **both,
            "kv_channels": kv_channels,
            "attention_dropout": attention_dropout,
            "layernorm_epsilon": layernorm_epsilon,
            "layer_number": layer_number,
            "num_gqa_groups": num_gqa_groups,
            "fuse_qkv_params": fuse_qkv_params,
            "qkv_weight_interleaved": qkv_weight_interleaved,
            "rotary_pos_interleaved": rotary_pos_interleaved,
            "qk_norm_type": qk_norm_type,
            "qk_norm_eps": qk_norm_eps,
            "qk_norm_before_rope": qk_norm_before_rope,
            "softmax_type": softmax_type,
            "qkv_format": attn_input_format,
        }

        def named(child: str) -> str | None:
            return name and f"{name}.{child}"

        self.self_attention = MultiheadAttention(
            hidden_size,
            num_attention_heads,
            **attention,
            attn_mask_type=self.self_attn_mask_type,
            input_layernorm=not output_layernorm,
            name=named("self_attention"),
        )
        if layer_type == "decoder":
            self.inter_attention = MultiheadAttention(
                hidden_size,
                num_attention_heads,
                **attention,
                attn_mask_type=self.enc_dec_attn_mask_type,
                attention_type="cross",
                input_layernorm=True,
                name=named("inter_attention"),
            )
        self.layernorm_mlp = LayerNormMLP(
            hidden_size, ffn_hidden_size, eps=layernorm_epsilon, **both, activation=activation, name=named("layernorm_mlp")
        )
        self.drop_path = DropPath(drop_path_rate, attn_input_format.index("b")) if drop_path_rate > 0 else None
        if output_layernorm:
            norm = LayerNorm if normalization == "LayerNorm" else RMSNorm
            self.layernorm = norm(
                hidden_size,
                layernorm_epsilon,
                zero_centered_gamma=zero_centered_gamma,
                params_dtype=params_dtype,
                device=device,
                name=named("layernorm"),
            )

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Mask = None,
        self_attn_mask_type: str | None = None,
        window_size: Window = None,
        encoder_output: Tensor | None = None,
        enc_dec_attn_mask: Mask = None,
        enc_dec_attn_mask_type: str | None = None,
        enc_dec_window_size: Window = None,
        is_first_microbatch: bool | None = None,
        checkpoint_core_attention: bool = False,
        rotary_pos_emb: Angles = None,
        core_attention_bias_type: str = "no_bias",
        core_attention_bias: Tensor | None = None,
        alibi_slopes: Tensor | None = None,
        cu_seqlens_q: Tensor | None = None,
        cu_seqlens_kv: Tensor | None = None,
        **others: Any,
    ) -> Tensor:
        """
        Args:
            hidden_states: shape ``(sequence, batch, hidden_size)``, or batch first as ``attn_input_format`` says.
            attention_mask: of self attention, true where masked out: ``(batch, 1, 1, sequence)`` of padding, or for ``arbitrary``
                broadcastable to ``(batch, heads, sequence, sequence)``.
            encoder_output: what a decoder's cross attention looks at, shaped as ``hidden_states``.
            enc_dec_attn_mask: of cross attention: a pair of padding masks, or one for ``arbitrary``.
            self_attn_mask_type, window_size, enc_dec_attn_mask_type, enc_dec_window_size: in place of the constructor's.
            is_first_microbatch: not needed: a weight is quantized once as long as it does not change.
            rotary_pos_emb: angles, shape ``(positions, 1, 1, rotated)``; a pair for queries and keys; of self attention.
            checkpoint_core_attention, core_attention_bias_type, core_attention_bias, alibi_slopes, cu_seqlens_q, cu_seqlens_kv: as of
                ``DotProductAttention``.

        Returns: shape of ``hidden_states``.

        Raises: UsageError.
        """
        hidden_states = in_autocast_dtype(hidden_states)
        shared: dict[str, Any] = {
            "checkpoint_core_attention": checkpoint_core_attention,
            "core_attention_bias_type": core_attention_bias_type,
            "core_attention_bias": core_attention_bias,
            "alibi_slopes": alibi_slopes,
            **others,
        }
        attended = self.self_attention(
            hidden_states,
            attention_mask=attention_mask,
            attn_mask_type=self.self_attn_mask_type if self_attn_mask_type is None else self_attn_mask_type,
            window_size=self.window_size if window_size is None else window_size,
            rotary_pos_emb=rotary_pos_emb,
            cu_seqlens_q=cu_seqlens_q,
            cu_seqlens_kv=cu_seqlens_kv,
            **shared,
        )
        if self.parallel_attention_mlp:
            return self._added(attended + self.layernorm_mlp(hidden_states), hidden_states, self.drop_path)
        hidden_states = self._after(attended, hidden_states, self.drop_path)
        if self.layer_type == "decoder":
            crossed = self.inter_attention(
                hidden_states,
                attention_mask=enc_dec_attn_mask,
                attn_mask_type=self.enc_dec_attn_mask_type if enc_dec_attn_mask_type is None else enc_dec_attn_mask_type,
                window_size=self.enc_dec_window_size if enc_dec_window_size is None else enc_dec_window_size,
                encoder_output=encoder_output,
                **shared,
            )
            hidden_states = self._after(crossed, hidden_states, None)
        hidden_states = self._after(self.layernorm_mlp(hidden_states), hidden_states, self.drop_path)
        out: Tensor = self.layernorm(hidden_states) if self.output_layernorm else hidden_states
        return out

    def _after(self, given: Tensor | tuple[Tensor, Tensor], before: Tensor, drop_path: nn.Module | None) -> Tensor:
        """What a branch gave, added to the residual: to what its norm gave if that came along."""
        out, residual = (given, before) if isinstance(given, Tensor) else given
        return self._added(out, residual, drop_path)

    def _added(self, out: Tensor, residual: Tensor, drop_path: nn.Module | None) -> Tensor:
        out = F.dropout(out, self.hidden_dropout, self.training)
        return residual + (out if drop_path is None else drop_path(out))


class DropPath(nn.Module):
    """Drops a sample's branch as a whole, and scales the others up.

    Args:
        rate: probability of it, in training.
        batch_dim: which dimension counts samples.

    *Source:* Huang et al., Deep Networks with Stochastic Depth, 2016.
    """

    def __init__(self, rate: float, batch_dim: int) -> None:
        super().__init__()
        self.rate = rate
        self.batch_dim = batch_dim

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        shape = [1] * x.dim()
        shape[self.batch_dim] = x.shape[self.batch_dim]
        kept = torch.rand(shape, device=x.device) >= self.rate
        return x * kept.to(x.dtype) / (1 - self.rate)

    def extra_repr(self) -> str:
        return f"{self.rate}"
