"""Who multiplies: ``emulate`` takes dequantized operands to a high-precision GEMM, ``scaled_mm`` the codes themselves to an fp8 GEMM.

Both take the same quantized operands. Emulated, a dequantized operand is rounded once to the dtype of the computation, and products add up
in the GEMM's own order; an fp8 GEMM multiplies codes exactly, and its result is scaled.
"""

from __future__ import annotations

from torch import Tensor

from numscope.precision.scaling import How
from numscope.precision.state import LayerState

__all__ = ["is_real"]


def is_real(state: LayerState, gemm: str, first: How | None, second: How | None, a: Tensor, b: Tensor) -> bool:
    return False
