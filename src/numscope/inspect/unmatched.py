"""Selections of a plan that match nothing in any rank's model are refused."""

from __future__ import annotations

import re
from collections.abc import Sequence

from numscope.distributed import agree
from numscope.records.errors import UsageError

_WORD = re.compile(r'"(?:[^"\\…]|\\.)*["…]')  # as messages show one, shortened where it is long


def refuse_unmatched(*models: Sequence[str]) -> None:
    """Raise UsageError for what no model of any rank has. A pipeline's stage need not have what another one has.

    Args:
        models: for each of this rank's models the messages about what it lacks.

    *Cost:* where this rank's models lack something, it waits for what the other ranks say.
    """
    everywhere = set.intersection(*({_place_of(line) for line in lines} for lines in models))
    if agree.spread():
        everywhere = agree.in_all_ranks(sorted(everywhere), "unmatched")
    missing = [line for line in models[0] if _place_of(line) in everywhere]
    if missing:
        raise UsageError("\n".join(missing))


def _place_of(line: str) -> str:
    """File and key of a message about a configuration, and its word where the key has several: each model may lack another one."""
    *place, text = line.split(": ", 2)
    word = _WORD.match(text)
    return ": ".join([*place, word[0]] if word is not None else place)
