"""Number formats, scaling and quantization, and training with them: each name is fetched when it is first used."""

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

# Name → the module it comes from. The imports above are the same table for type checkers; a test compares the two.
# No public name is a file's name: importing that file would put the module in the name's place.
_HOMES = {
    "BlockScaling": "numscope.precision.gemm.recipes",
    "Cast": "numscope.precision.casting.cast",
    "CurrentScaling": "numscope.precision.gemm.recipes",
    "Custom": "numscope.precision.gemm.recipes",
    "DelayedScaling": "numscope.precision.gemm.recipes",
    "E4M3": "numscope.precision.gemm.recipes",
    "E5M2": "numscope.precision.gemm.recipes",
    "FORMATS": "numscope.records.formats",
    "Format": "numscope.records.formats",
    "HYBRID": "numscope.precision.gemm.recipes",
    "HighPrecision": "numscope.precision.gemm.recipes",
    "History": "numscope.precision.casting.delayed",
    "How": "numscope.precision.casting.scaling",
    "LayerPlan": "numscope.precision.gemm.plan",
    "LayerState": "numscope.precision.gemm.state",
    "MXFP8": "numscope.precision.gemm.recipes",
    "NVFP4": "numscope.precision.gemm.recipes",
    "Quantized": "numscope.precision.casting.quantized",
    "Recipe": "numscope.precision.gemm.recipes",
    "RowwiseScaling": "numscope.precision.gemm.recipes",
    "Scaling": "numscope.precision.casting.scaling",
    "advance_all": "numscope.precision.casting.delayed",
    "autocast": "numscope.precision.gemm.autocasting",
    "convert": "numscope.precision.gemm.conversion",
    "format_of": "numscope.records.formats",
    "load_state_dict": "numscope.precision.gemm.states",
    "quantize": "numscope.precision.casting.quantized",
    "quantize_current": "numscope.precision.casting.quantized",
    "recipe_of": "numscope.precision.gemm.recipes",
    "revert": "numscope.precision.gemm.conversion",
    "scale_of": "numscope.precision.casting.scaling",
    "state_dict": "numscope.precision.gemm.states",
    "states": "numscope.precision.gemm.states",
    "step": "numscope.precision.gemm.states",
}

__all__ = [
    "E4M3",
    "E5M2",
    "FORMATS",
    "HYBRID",
    "MXFP8",
    "NVFP4",
    "BlockScaling",
    "Cast",
    "CurrentScaling",
    "Custom",
    "DelayedScaling",
    "Format",
    "HighPrecision",
    "History",
    "How",
    "LayerPlan",
    "LayerState",
    "Quantized",
    "Recipe",
    "RowwiseScaling",
    "Scaling",
    "advance_all",
    "autocast",
    "convert",
    "format_of",
    "load_state_dict",
    "quantize",
    "quantize_current",
    "recipe_of",
    "revert",
    "scale_of",
    "state_dict",
    "states",
    "step",
]


__getattr__ = lazy_names(__name__, _HOMES, globals())


def __dir__() -> list[str]:
    return sorted(__all__)
