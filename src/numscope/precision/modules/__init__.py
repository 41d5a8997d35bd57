"""Modules with Transformer Engine's arguments, parameters and layer names, in plain PyTorch: they run anywhere, with every GEMM visible."""

from numscope.precision.modules.linear import LayerNormLinear, LayerNormMLP, Linear
from numscope.precision.modules.norm import LayerNorm, RMSNorm

__all__ = ["LayerNorm", "LayerNormLinear", "LayerNormMLP", "Linear", "RMSNorm"]
