"""What of a plan finds nothing in a model: refused, or said."""

from __future__ import annotations

import re
from collections.abc import Sequence

from numscope.config.plan import Switch
from numscope.distributed import agree
from numscope.records.errors import UsageError
from numscope.records.layer import Layer

_WORD = re.compile(r'"(?:[^"\\…]|\\.)*["…]')  # as messages show one, shortened where it is long


def refuse_unmatched(unmatched: Sequence[str]) -> None:
    """Raise UsageError for what no rank's model has. A pipeline's stage need not have what another one has.

    *Cost:* where this rank's model lacks something, it waits for what the other ranks say.
    """
    places = [place_of(line) for line in unmatched]
    everywhere = agree.in_all_ranks(places, "unmatched")
    missing = [line for line, place in zip(unmatched, places, strict=True) if place in everywhere]
    if missing:
        raise UsageError("\n".join(missing))


def place_of(line: str) -> str:
    """File and key of a message about a configuration, and its word where the key has several: each model may lack another one."""
    *place, text = line.split(": ", 2)
    word = _WORD.match(text)
    return ": ".join([*place, word[0]] if word is not None else place)


IN_HIGH = "these layers compute in high precision, nothing there is fp8"


def unmet(switch: Switch, layers: Sequence[Layer], why: str = IN_HIGH) -> str:
    """What the log says of a precision feature on layers that it can do nothing to."""
    names = ", ".join(layer.name for layer in layers[:4]) + (f" and {len(layers) - 4} more" if len(layers) > 4 else "")
    return f"{switch.section}.{switch.feature}: nothing to do on {names}: {why}"
