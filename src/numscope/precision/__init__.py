"""Number formats, scaling and quantization, and training with them: each name is fetched when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numscope.formats import FORMATS, Format, format_of
    from numscope.precision.cast import Cast
    from numscope.precision.delayed import History, advance_all
    from numscope.precision.quantized import Quantized, quantize, quantize_current
    from numscope.precision.scaling import How, Scaling, scale_of

# Name → the module it comes from. The imports above are the same table for type checkers; a test compares the two.
# No public name is a file's name: importing that file would put the module in the name's place.
_HOMES = {
    "FORMATS": "numscope.formats",
    "Cast": "numscope.precision.cast",
    "Format": "numscope.formats",
    "History": "numscope.precision.delayed",
    "How": "numscope.precision.scaling",
    "Quantized": "numscope.precision.quantized",
    "Scaling": "numscope.precision.scaling",
    "advance_all": "numscope.precision.delayed",
    "format_of": "numscope.formats",
    "quantize": "numscope.precision.quantized",
    "quantize_current": "numscope.precision.quantized",
    "scale_of": "numscope.precision.scaling",
}

__all__ = [
    "FORMATS",
    "Cast",
    "Format",
    "History",
    "How",
    "Quantized",
    "Scaling",
    "advance_all",
    "format_of",
    "quantize",
    "quantize_current",
    "scale_of",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value  # the next use does not come here
        return value
    hint = ""
    if not name.startswith("_"):  # probing for dunders (copy, inspect, doctest) is no typing mistake
        import difflib

        near = difflib.get_close_matches(name, _HOMES, n=1)
        hint = f". Did you mean {near[0]!r}?" if near else f", expected one of {', '.join(sorted(_HOMES))}"
    raise AttributeError(f"module 'numscope.precision' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted(__all__)
