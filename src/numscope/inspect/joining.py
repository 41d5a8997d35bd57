"""Numbers of tensors that others show, outside of a watched model, over the ranks of one process group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from numscope.distributed import agree
from numscope.inspect.tally import Joined, Seen
from numscope.summary.extras import Layout
from numscope.summary.state import merge_rows

Key = TypeVar("Key", bound=tuple[str, ...])


def joined(parts: Mapping[Key, tuple[Seen, Layout]], group: Any) -> dict[Key, Joined]:
    """This rank's sites, merged with the same sites of the group's other ranks. All of them must call it.

    *Cost:* one exchange of JSON: some 400 bytes a site and rank.
    """
    me = agree.rank()
    told = agree.gather([me, [[key, seen.row, seen.cells] for key, (seen, _) in parts.items()]], group)
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
        found[key] = Joined(replace(seen, row=row, cells=cells), 1 + len(others), first == me)
    return found
