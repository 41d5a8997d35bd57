"""Number formats, scaling and quantization, and training with them: each name is fetched when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numscope.lazy import lazy_names

if TYPE_CHECKING:
    from numscope.formats import FORMATS, Format, format_of
    from numscope.precision.autocasting import autocast
    from numscope.precision.cast import Cast
    from numscope.precision.conversion import convert, revert
    from numscope.precision.delayed import History, advance_all
    from numscope.precision.gemms import LayerPlan
    from numscope.precision.quantized import Quantized, quantize, quantize_current
    from numscope.precision.recipes import (
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
    from numscope.precision.scaling import How, Scaling, scale_of
    from numscope.precision.state import LayerState, states
    from numscope.precision.stepping import load_state_dict, state_dict, step

# Name → the module it comes from. The imports above are the same table for type checkers; a test compares the two.
# No public name is a file's name: importing that file would put the module in the name's place.
_HOMES = {
    "BlockScaling": "numscope.precision.recipes",
    "Cast": "numscope.precision.cast",
    "CurrentScaling": "numscope.precision.recipes",
    "Custom": "numscope.precision.recipes",
    "DelayedScaling": "numscope.precision.recipes",
    "E4M3": "numscope.precision.recipes",
    "E5M2": "numscope.precision.recipes",
    "FORMATS": "numscope.formats",
    "Format": "numscope.formats",
    "HYBRID": "numscope.precision.recipes",
    "HighPrecision": "numscope.precision.recipes",
    "History": "numscope.precision.delayed",
    "How": "numscope.precision.scaling",
    "LayerPlan": "numscope.precision.gemms",
    "LayerState": "numscope.precision.state",
    "MXFP8": "numscope.precision.recipes",
    "NVFP4": "numscope.precision.recipes",
    "Quantized": "numscope.precision.quantized",
    "Recipe": "numscope.precision.recipes",
    "RowwiseScaling": "numscope.precision.recipes",
    "Scaling": "numscope.precision.scaling",
    "advance_all": "numscope.precision.delayed",
    "autocast": "numscope.precision.autocasting",
    "convert": "numscope.precision.conversion",
    "format_of": "numscope.formats",
    "load_state_dict": "numscope.precision.stepping",
    "quantize": "numscope.precision.quantized",
    "quantize_current": "numscope.precision.quantized",
    "recipe_of": "numscope.precision.recipes",
    "revert": "numscope.precision.conversion",
    "scale_of": "numscope.precision.scaling",
    "state_dict": "numscope.precision.stepping",
    "states": "numscope.precision.state",
    "step": "numscope.precision.stepping",
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
