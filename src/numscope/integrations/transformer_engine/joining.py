"""A step's numbers of one process group's ranks as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from numscope.distributed import agree
from numscope.inspect.tally import Seen
from numscope.summary.extras import Layout
from numscope.summary.state import merge_rows

Key = tuple[str, str, str]  # feature, layer, tensor


class Joined(NamedTuple):
    """Numbers over ranks.

    Args:
        ranks: how many showed a part.
        mine: whether this rank is the one that writes them: the lowest of those.
    """

    seen: Seen
    ranks: int = 1
    mine: bool = True


def joined(parts: Mapping[Key, tuple[Seen, Layout | None]], group: Any) -> dict[Key, Joined]:
    """This rank's sites, merged with the same sites of the group's other ranks. All of them must come here.

    *Cost:* one exchange of JSON: some 400 bytes a site and rank.
    """
    import torch.distributed as dist

    me = dist.get_rank()
    told = agree.gather([me, [[*key, seen.row, seen.cells] for key, (seen, _) in parts.items()]], group)
    by_site: dict[Key, list[tuple[int, list[float], list[float]]]] = {}
    for rank, sites in sorted(told, key=lambda part: int(part[0])):
        for feature, layer, tensor, row, cells in sites:
            by_site.setdefault((feature, layer, tensor), []).append((rank, row, cells))
    found = {}
    for key, (seen, layout) in parts.items():
        (first, row, cells), *others = by_site[key]
        for _, other_row, other_cells in others:
            row = merge_rows(row, other_row)
            cells = layout.merge(cells, other_cells) if layout is not None else cells
        found[key] = Joined(replace(seen, row=row, cells=cells), 1 + len(others), first == me)
    return found


def in_order(groups: Mapping[int, Any]) -> list[Any]:
    """Process groups in an order that no two of their ranks see differently."""
    import torch.distributed as dist

    return sorted(groups.values(), key=lambda group: (len(ranks := sorted(dist.get_process_group_ranks(group))), ranks))
