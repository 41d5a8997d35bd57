"""The codes of a layer's weight, kept until the weight changes: gradient accumulation and recomputation quantize it once."""

from __future__ import annotations

import weakref

from torch import Tensor, nn

from numscope.precision.casting.cast import Cast
from numscope.precision.casting.scaling import How


class KeptWeight:
    """The codes of one weight, quantized in one way.

    Args:
        recorded: whether its amax joined a history.
        counted: the cells that the cast was counted into, by GEMM.
    """

    __slots__ = ("_pointer", "_version", "_weight", "cast", "counted", "recorded")

    def __init__(self, weight: Tensor, cast: Cast, recorded: bool, counted: dict[str, Tensor]) -> None:
        self.cast, self.recorded, self.counted = cast, recorded, counted
        self._weight = weakref.ref(weight)
        self._version = weight._version
        self._pointer = weight.data_ptr()  # ``weight.data = other`` changes the address but not the version

    def is_of(self, weight: Tensor) -> bool:
        """Whether the codes still belong to this weight."""
        return self._weight() is weight and self._version == weight._version and self._pointer == weight.data_ptr()


def can_be_kept(weight: Tensor, module: nn.Module | None) -> bool:
    """Whether a weight lives as long as its layer: it is neither gathered for one call nor computed from other parameters."""
    is_gathered = module is not None and "_is_fsdp_managed_module" in module.__dict__
    return isinstance(weight, nn.Parameter) and not is_gathered and not weight.is_inference()


def is_same_both_ways(how: How) -> bool:
    """Whether a weight's cast is the same for the GEMM that takes it transposed."""
    rows, columns = how.scaling.block
    return how.scaling.kind == "tensor" or (how.scaling.kind == "block" and rows == columns)
