"""Selections of a plan that match nothing in any rank's model are refused."""

from __future__ import annotations

import re
from collections.abc import Sequence

from numscope.distributed import agree
from numscope.records.errors import UsageError

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
