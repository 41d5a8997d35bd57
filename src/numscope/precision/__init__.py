"""Number formats, scaling, quantization, and training with them. Each name is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numscope.lazy import lazy_names

if TYPE_CHECKING:
    from numscope.precision.casting.cast import Cast
    from numscope.precision.casting.delayed import History, advance_all
    from numscope.precision.casting.quantized import Quantized, quantize, quantize_current
    from numscope.precision.casting.scaling import How, Scaling, scale_of
    from numscope.precision.gemm.autocasting import autocast
    from numscope.precision.gemm.conversion import convert, revert
    from numscope.precision.gemm.plan import LayerPlan
    from numscope.precision.gemm.recipes import (
        E4M3,
        E5M2,
        HYBRID,
        MXFP8,
        NVFP4,
        BlockScaling,
        CurrentScaling,
        Custom,
        DelayedScaling,
        HighPrecision,
        Recipe,
        RowwiseScaling,
        recipe_of,
    )
    from numscope.precision.gemm.state import LayerState
    from numscope.precision.gemm.states import load_state_dict, state_dict, states, step
    from numscope.records.formats import FORMATS, Format, format_of

# Module → the names that come from it. The imports above are the same table for type checkers; a test compares the two.
# No public name is a file's name: importing that file would put the module in the name's place.
_NAMES = {
    "precision.casting.cast": ("Cast",),
    "precision.casting.delayed": ("History", "advance_all"),
    "precision.casting.quantized": ("Quantized", "quantize", "quantize_current"),
    "precision.casting.scaling": ("How", "Scaling", "scale_of"),
    "precision.gemm.autocasting": ("autocast",),
    "precision.gemm.conversion": ("convert", "revert"),
    "precision.gemm.plan": ("LayerPlan",),
    "precision.gemm.recipes": (
        "E4M3", "E5M2", "HYBRID", "MXFP8", "NVFP4", "BlockScaling", "CurrentScaling", "Custom", "DelayedScaling", "HighPrecision", "Recipe",
        "RowwiseScaling", "recipe_of",
    ),
    "precision.gemm.state": ("LayerState",),
    "precision.gemm.states": ("load_state_dict", "state_dict", "states", "step"),
    "records.formats": ("FORMATS", "Format", "format_of"),
}  # fmt: skip
_HOMES = {name: f"numscope.{module}" for module, names in _NAMES.items() for name in names}

__all__ = [
    "E4M3", "E5M2", "FORMATS", "HYBRID", "MXFP8", "NVFP4", "BlockScaling", "Cast", "CurrentScaling", "Custom", "DelayedScaling", "Format",
    "HighPrecision", "History", "How", "LayerPlan", "LayerState", "Quantized", "Recipe", "RowwiseScaling", "Scaling", "advance_all",
    "autocast", "convert", "format_of", "load_state_dict", "quantize", "quantize_current", "recipe_of", "revert", "scale_of", "state_dict",
    "states", "step",
]  # fmt: skip

__getattr__ = lazy_names(__name__, _HOMES, globals())


def __dir__() -> list[str]:
    return sorted(__all__)
