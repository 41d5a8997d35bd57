"""A transformer layer made of the modules: its projections and its perceptron are theirs, its attention is torch's."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from numscope.precision import modules


class Block(nn.Module):
    """Causal attention and a perceptron, each with norm, dropout and residual connection; batch first.

    Args:
        groups: heads of keys and values; None: as many as of queries.
        fused: one weight for query, key and value; else three, which the GEMM takes as one.
        activation: the perceptron's.
        name: the beginning of its layers' names; None: they have their places in the model.
        config: of all the modules whose GEMMs take a norm's output.
    """

    def __init__(
        self, size: int, inner: int, heads: int, *, groups: int | None = None, fused: bool = False, dropout: float = 0.0,
        activation: str = "gelu", bias: bool = True, name: str | None = None, **config: object,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads, self.dropout = heads, dropout
        of_keys = size // heads * (groups or heads)
        self.rows = {"query": size, "key": of_keys, "value": of_keys}
        names = {child: name and f"{name}.{child}" for child in ("layernorm_qkv", "proj", "layernorm_mlp")}
        self.layernorm_qkv = modules.LayerNormLinear(
            size, size + 2 * of_keys, bias=bias, parameters_split=None if fused else self.rows, name=names["layernorm_qkv"], **config
        )
        self.proj = modules.Linear(size, size, bias, name=names["proj"])
        self.layernorm_mlp = modules.LayerNormMLP(size, inner, bias=bias, activation=activation, name=names["layernorm_mlp"], **config)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.layernorm_qkv(x).split(list(self.rows.values()), -1)
        size = x.shape[-1] // self.heads
        queries, keys, values = (part.unflatten(-1, (-1, size)).transpose(1, 2) for part in mixed)
        dropped = self.dropout if self.training else 0.0
        attended = F.scaled_dot_product_attention(
            queries, keys, values, dropout_p=dropped, is_causal=True, enable_gqa=keys.shape[1] != queries.shape[1]
        )
        x = x + F.dropout(self.proj(attended.transpose(1, 2).flatten(-2)), self.dropout, self.training)
        return x + F.dropout(self.layernorm_mlp(x), self.dropout, self.training)
