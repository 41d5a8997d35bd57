"""The samples of a batch without which a call is finite, found by halving."""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from numscope.probe import walk
from numscope.replay.capture import Call

MOST_REPLAYS = 64
_SHARE = 4  # at most one row in so many: where more fail it is not the batch


def dim_of(names: Mapping[nn.Module, str]) -> int:
    """The dimension of a model's batch: 1 behind time, as of recurrent layers and attention with ``batch_first=False``, else 0."""
    return int(any(getattr(module, "batch_first", None) is False for module in names))


def num_rows(call: Call, dim: int) -> int:
    """The size of a dimension of the first tensor that a call is given; 0 if it is given none, or one without it."""
    first = next((t for _, t in walk.tensors((call.args, call.kwargs), "")), None)
    return 0 if first is None or first.ndim <= dim or first.layout is not torch.strided else first.shape[dim]


def on_rows(call: Call, rows: Sequence[int], dim: int) -> Call:
    """The call with these rows of each tensor that it is given and that has as many as the batch, and of the gradients that came back."""
    total, made = num_rows(call, dim), dict[int, Tensor]()

    def part(t: Tensor) -> Tensor:
        along = next((d for d in (dim, 0) if d < t.ndim and t.shape[d] == total), None)
        if along is None or t.layout is not torch.strided:
            return t
        if id(t) not in made:
            made[id(t)] = t.detach().index_select(along, torch.tensor(rows, device=t.device)).requires_grad_(t.requires_grad)
        return made[id(t)]

    def within(value: Any) -> Any:
        if isinstance(value, Tensor):
            return part(value)
        if isinstance(value, UserDict) or (is_dataclass(value) and not isinstance(value, type)):
            changed = copy.copy(value)
            for name, own in vars(value).items():
                object.__setattr__(changed, name, tree_map(within, own))
            return changed
        return value

    def of_gradient(g: Tensor) -> Tensor:
        if g.ndim == 0 or (dim < g.ndim and g.shape[dim] == total) or len(g) % total or g.layout is not torch.strided:
            return part(g)
        return g.reshape(total, len(g) // total, *g.shape[1:])[[*rows]].flatten(0, 1)  # rows times positions, as of a language model

    args, kwargs = tree_map(within, (call.args, call.kwargs))
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
