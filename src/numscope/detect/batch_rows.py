"""The rows of a batch without which a call is finite, found by halving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from numscope.replay.capture import Call

MOST_REPLAYS = 24
_SHARE = 4  # at most one row in so many: where more fail it is not the batch


def num_rows(call: Call) -> int:
    """The size of the first dimension of the first tensor that a call is given; 0 if it is given none, or one without dimensions."""
    first = next((t for t in tree_leaves((call.args, call.kwargs)) if isinstance(t, Tensor)), None)
    return 0 if first is None or first.ndim == 0 or first.layout is not torch.strided else len(first)


def on_rows(call: Call, rows: Sequence[int]) -> Call:
    """The call with these rows of each tensor that it is given and that has as many as the batch, and of the gradients that came back."""
    total, made = num_rows(call), dict[int, Tensor]()

    def part(t: Tensor) -> Tensor:
        if t.ndim == 0 or len(t) != total or t.layout is not torch.strided:
            return t
        if id(t) not in made:
            made[id(t)] = t.detach()[[*rows]].requires_grad_(t.requires_grad)
        return made[id(t)]

    def of_gradient(g: Tensor) -> Tensor:
        if g.ndim == 0 or len(g) % total or g.layout is not torch.strided:
            return g
        return g.reshape(total, len(g) // total, *g.shape[1:])[[*rows]].flatten(0, 1)  # rows times positions, as of a language model

    args, kwargs = tree_map_only(Tensor, part, (call.args, call.kwargs))
    received = [{at: of_gradient(g) for at, g in one.items()} for one in call.gradients]
    return replace(call, args=args, kwargs=kwargs, given=[(slot, part(t)) for slot, t in call.known], copies={}, gradients=received)


def bad_rows(total: int, fails: Callable[[Sequence[int]], bool | None]) -> list[int]:
    """The rows that fail, in order; none where that can't be said of rows, or more than a quarter do.

    Args:
        total: how many there are.
        fails: whether a call on some of them does; None: it can't be done on so few.

    *Cost:* at most two calls for each halving of each bad row, ``MOST_REPLAYS`` in all.
    """
    most, left = max(1, total // _SHARE), MOST_REPLAYS
    bad, found = [range(total)], list[int]()  # ranges with a bad row in each
    while bad and len(bad) + len(found) <= most:
        part = bad.pop()
        if len(part) == 1:
            found.append(part[0])
            continue
        left -= 2
        if left < 0:
            return []
        halves = part[: len(part) // 2], part[len(part) // 2 :]
        first = fails(halves[0])
        second = True if first is False else fails(halves[1])  # what the first half is not, the second is
        if first is None or second is None:
            if len(part) > most:
                return []
            found += part  # as where a row alone has no variance
        else:
            bad += [half for half, is_bad in zip(halves, (first, second), strict=True) if is_bad]
    return [] if bad or len(found) > most else sorted(found)
