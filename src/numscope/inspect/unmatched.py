"""Selections of a plan that match nothing in any rank's model are refused."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence

from numscope.distributed import agree
from numscope.distributed.channel import store
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
        everywhere = _in_all_ranks(everywhere)
    missing = [line for line in models[0] if _place_of(line) in everywhere]
    if missing:
        raise UsageError("\n".join(missing))


def _in_all_ranks(places: set[str]) -> set[str]:
    """Those that every rank lacks too that says what it lacks within ``PATIENCE_S``. A rank that lacks nothing does not wait."""
    met, place = store(), f"numscope/{agree.numbered('unmatched')}"
    met.set(f"{place}/{agree.rank()}", json.dumps(sorted(places)))
    keys = [f"{place}/{rank}" for rank in range(agree.num_ranks())]
    end = time.monotonic() + agree.PATIENCE_S
    while places and not met.check(keys) and time.monotonic() < end:
        time.sleep(0.02)
    return places.intersection(*(json.loads(met.get(key)) for key in keys if places and met.check([key])))


def _place_of(line: str) -> str:
    """File and key of a message about a configuration, and its word where the key has several: each model may lack another one."""
    *place, text = line.split(": ", 2)
    word = _WORD.match(text)
    return ": ".join([*place, word[0]] if word is not None else place)
