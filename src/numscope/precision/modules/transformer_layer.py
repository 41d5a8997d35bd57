"""A transformer layer made of the other modules."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numscope.precision.gemm.passes import in_autocast_dtype
from numscope.precision.modules.arguments import Init, check_rate
from numscope.precision.modules.attention import check_format
from numscope.precision.modules.layernorm_mlp import LayerNormMLP
from numscope.precision.modules.masks import Mask, Window, check_mask_type
from numscope.precision.modules.multihead import Angles, MultiheadAttention
from numscope.precision.modules.norm import NORMS
from numscope.precision.modules.parts import NamedModule
from numscope.records.checks import check_one_of
from numscope.records.errors import UsageError


class TransformerLayer(NamedModule):
    """Attention and a perceptron, each with norm, dropout and residual connection.

    Children: ``self_attention``, in a decoder ``inter_attention``, ``layernorm_mlp``, and with ``output_layernorm`` also ``layernorm``.

    Args:
        hidden_size: size of the last dimension of input and output.
        ffn_hidden_size: size between the perceptron's layers.
        hidden_dropout: probability that an element of the output of attention and perceptron is dropped in training.
        init_method: initializes the weights of the first projections and of fc1.
        output_layer_init_method: initializes those of ``proj`` and fc2.
        self_attn_mask_type, window_size: for self attention, as for ``DotProductAttention``.
        enc_dec_attn_mask_type, enc_dec_window_size: for a decoder's cross attention.
        apply_residual_connection_post_layernorm: residuals start after the norms instead of before.
        output_layernorm: normalize the output instead of the input of self attention.
        parallel_attention_mlp: attention and perceptron side by side on the same input.
        layer_type: ``encoder``, or ``decoder``, which has cross attention after self attention.
        drop_path_rate: probability that a sample's branch is dropped in training.
        attn_input_format: ``sbhd`` (sequence first) or ``bshd`` (batch first).
        num_attention_heads, num_gqa_groups, layernorm_epsilon, attention_dropout, layer_number, kv_channels, fuse_qkv_params,
            qkv_weight_interleaved, rotary_pos_interleaved, qk_norm_type, qk_norm_eps, qk_norm_before_rope, softmax_type: as for
            ``MultiheadAttention``.
        normalization, zero_centered_gamma, bias, activation: as for ``LayerNormMLP``.
        params_dtype, device, name, others: as for ``Linear``.

    Raises: UsageError: an argument is wrong or not supported.
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
        super().__init__(name, others)
        where = type(self).__name__
        check_one_of(f"{where}: layer_type", layer_type, ("encoder", "decoder"))
        check_format(where, "attn_input_format", attn_input_format)
        check_rate(where, "hidden_dropout", hidden_dropout)
        check_rate(where, "drop_path_rate", drop_path_rate)
        if parallel_attention_mlp:
            for is_set, other in (
                (layer_type == "decoder", "layer_type='decoder'"),
                (apply_residual_connection_post_layernorm, "apply_residual_connection_post_layernorm=True"),
                (output_layernorm, "output_layernorm=True"),
            ):
                if is_set:
                    raise UsageError(f"{where}: parallel_attention_mlp: got True, expected False with {other}.")
        for mask_type in (self_attn_mask_type, enc_dec_attn_mask_type):
            check_mask_type(where, mask_type)
        self.hidden_dropout = hidden_dropout
        self.layer_number = layer_number
        self.layer_type = layer_type
        self.output_layernorm = output_layernorm
        self.parallel_attention_mlp = parallel_attention_mlp
        self.apply_residual_connection_post_layernorm = apply_residual_connection_post_layernorm
        self.attn_input_format = attn_input_format
        both: dict[str, Any] = {
            "normalization": normalization,
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

        self.self_attention = MultiheadAttention(
            hidden_size,
            num_attention_heads,
            **attention,
            attn_mask_type=self_attn_mask_type,
            window_size=window_size,
            input_layernorm=not output_layernorm,
            name=self.named("self_attention"),
        )
        if layer_type == "decoder":
            self.inter_attention = MultiheadAttention(
                hidden_size,
                num_attention_heads,
                **attention,
                attn_mask_type=enc_dec_attn_mask_type,
                window_size=enc_dec_window_size,
                attention_type="cross",
                input_layernorm=True,
                name=self.named("inter_attention"),
            )
        self.layernorm_mlp = LayerNormMLP(
            hidden_size, ffn_hidden_size, eps=layernorm_epsilon, **both, activation=activation, name=self.named("layernorm_mlp")
        )
        self.drop_path = DropPath(drop_path_rate, attn_input_format.index("b")) if drop_path_rate > 0 else None
        if output_layernorm:
            self.layernorm = NORMS[normalization](
                hidden_size,
                layernorm_epsilon,
                zero_centered_gamma=zero_centered_gamma,
                params_dtype=params_dtype,
                device=device,
                name=self.named("layernorm"),
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
            hidden_states: shape ``(sequence, batch, hidden_size)``, or batch first, by ``attn_input_format``.
            attention_mask: for self attention, true where masked out: padding of shape ``(batch, 1, 1, sequence)``, or for ``arbitrary``
                broadcastable to ``(batch, heads, sequence, sequence)``.
            encoder_output: the source of keys and values of a decoder's cross attention, shaped as ``hidden_states``.
            enc_dec_attn_mask: for cross attention: a pair of padding masks, or one mask for ``arbitrary``.
            self_attn_mask_type, window_size, enc_dec_attn_mask_type, enc_dec_window_size: override the constructor's.
            is_first_microbatch: ignored: a weight is quantized once as long as it does not change.
            rotary_pos_emb: for self attention, angles of shape ``(positions, 1, 1, rotated)``, or a pair for queries and keys.
            checkpoint_core_attention, core_attention_bias_type, core_attention_bias, alibi_slopes, cu_seqlens_q, cu_seqlens_kv: as for
                ``DotProductAttention``.

        Returns: Shape of ``hidden_states``.

        Raises: UsageError: an argument is wrong or not supported.
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
            attn_mask_type=self_attn_mask_type,
            window_size=window_size,
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
                attn_mask_type=enc_dec_attn_mask_type,
                window_size=enc_dec_window_size,
                encoder_output=encoder_output,
                **shared,
            )
            hidden_states = self._after(crossed, hidden_states, None)
        hidden_states = self._after(self.layernorm_mlp(hidden_states), hidden_states, self.drop_path)
        out: Tensor = self.layernorm(hidden_states) if self.output_layernorm else hidden_states
        return out

    def _after(self, returned: Tensor | tuple[Tensor, Tensor], before: Tensor, drop_path: nn.Module | None) -> Tensor:
        """A branch's output added to the residual, which is the output of the branch's norm if that was returned too."""
        out, residual = (returned, before) if isinstance(returned, Tensor) else returned
        return self._added(out, residual, drop_path)

    def _added(self, out: Tensor, residual: Tensor, drop_path: nn.Module | None) -> Tensor:
        out = F.dropout(out, self.hidden_dropout, self.training)
        return residual + (out if drop_path is None else drop_path(out))


class DropPath(nn.Module):
    """Drops the whole branch of a sample in training, with a probability of ``rate``, and scales up the others.

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
