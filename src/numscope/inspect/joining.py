"""Numbers of tensors that others show, outside of a watched model, over the ranks of one process group."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from numscope.distributed import agree
from numscope.distributed.channel import Apart, Channel, name_of
from numscope.distributed.reduce import ANSWER_S
from numscope.inspect.tally import Seen
from numscope.summary.extras import Layout
from numscope.summary.state import merge_rows

log = logging.getLogger("numscope")

Key = TypeVar("Key", bound=tuple[str, ...])

_channels: WeakKeyDictionary[Any, Channel] = WeakKeyDictionary()


def joined(parts: Mapping[Key, tuple[Seen, Layout]], group: Any, step: int) -> dict[Key, Seen]:
    """This rank's sites, merged with the same sites of the group's other ranks. All of them must call it, at the same steps.

    Ranks that are found apart each have their own numbers from then on; it is said once.

    *Cost:* one exchange of JSON: some 400 bytes a site and rank.
    """
    me = agree.rank()
    mine = [me, [[key, seen.row, seen.cells] for key, (seen, _) in parts.items()]]
    told = _told(mine, group, step)
    by_site: dict[tuple[str, ...], list[tuple[int, list[float], list[float]]]] = {}
    for rank, sites in sorted(told, key=lambda part: int(part[0])):
        for key, row, cells in sites:
            by_site.setdefault(tuple(key), []).append((rank, row, cells))
    found = {}
    for key, (seen, layout) in parts.items():
        (first, row, cells), *others = by_site[key]
        for _, other_row, other_cells in others:
            row = merge_rows(row, other_row)
            cells = layout.merge(cells, other_cells)
        found[key] = replace(seen, row=row, cells=cells, ranks=1 + len(others), mine=first == me)
    return found


def _told(mine: Any, group: Any, step: int) -> list[Any]:
    channel = _channels.get(group)
    if channel is None:
        channel = _channels[group] = Channel(f"joined/{name_of(group)}", group, ANSWER_S)
    was_open = channel.is_open
    try:
        return channel.gather("numbers of tensors handed in", step, mine)
    except Apart as apart:
        if was_open:
            log.warning("numscope: %s; from now on rank %d reports its own statistics", apart, agree.rank())
        return [json.loads(json.dumps(mine))]
