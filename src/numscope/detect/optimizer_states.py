"""Optimizers' states, which are saved with a model: an infinite ``exp_avg_sq`` makes each later update of its weight zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from numscope.probe.entry import Entry
from numscope.probe.living import Beside
from numscope.summary.ledger import UNOBSERVED, Ledger

WITHIN = 32  # steps in which each state is read at least once
_MARGIN = 4.0  # an optimizer may scale a gradient before it squares it


class OptimizerStates:
    """Reads what optimizers keep for their parameters, all of it where a gradient is so large that its square overflows, else a part in
    turn.

    *Cost:* a pass over the states every ``WITHIN`` steps, in portions; about 1 µs a tensor that is read.
    """

    def __init__(self) -> None:
        self.ledger = Ledger(capacity=64)
        self._next: Beside[Optimizer, int] = Beside()  # parameter whose turn it is
        self._formats: Beside[Optimizer, tuple[int, float, float]] = Beside()  # of its parameters: how many, and their limits
        self._known: Beside[Optimizer, set[tuple[int, str]]] = Beside()  # bad already

    def see(
        self, optimizer: Optimizer, places: Sequence[tuple[Entry, str, Parameter]], rows: Ledger, gradients: Sequence[int]
    ) -> list[tuple[str, int]]:
        """Read states after an optimizer's step.

        Args:
            places: module, slot and parameter of each that it has.
            rows, gradients: where the gradients' rows are that it got, and their handles.

        Returns: names and handles of those that have gone bad; the weights were finite.
        """
        self.ledger.reset()
        num = len(optimizer.state)
        begin, most = self._next.get(optimizer, 0), math.ceil(num / WITHIN)
        if begin >= num:
            begin = 0
        if self._is_square_too_large(optimizer, rows, gradients):
            begin, most = 0, num
        self._next[optimizer] = begin + most
        found = {
            (id(parameter), name): tensor
            for parameter, state in islice(optimizer.state.items(), begin, begin + most)
            if isinstance(state, dict)
            for name, tensor in state.items()
            if isinstance(tensor, Tensor) and tensor.is_floating_point()
        }
        if not found:
            return []
        handles = self.ledger.observe_many([*found.values()])
        self.ledger.read()
        bad = set(self.ledger.bad()) - {UNOBSERVED}
        known = self._known.setdefault(optimizer, set())
        news = [(key, handle) for key, handle in zip(found, handles, strict=True) if handle in bad and key not in known]
        known.update(key for key, _ in news)
        names = {id(p): entry.parameter(slot) for entry, slot, p in places} if news else {}
        return [(f"{name} of {names.get(number, 'a parameter')}", handle) for (number, name), handle in news]

    def may_spoil(self, optimizer: Optimizer, rows: Ledger, gradients: Sequence[int]) -> bool:
        """Whether an optimizer's next step may make weights or states bad, as far as gradients and settings show; the rows were read."""
        if not rows.on_host:
            return False
        _, smallest = self._limits(optimizer)
        is_unsafe = any(_is_unsafe(setting, value, smallest) for group in optimizer.param_groups for setting, value in group.items())
        return is_unsafe or self._is_square_too_large(optimizer, rows, gradients)

    def _is_square_too_large(self, optimizer: Optimizer, rows: Ledger, gradients: Sequence[int]) -> bool:
        limit, _ = self._limits(optimizer)
        if rows.most() * _MARGIN < limit:  # nor is any other number of the step
            return False
        return max(rows.amax([handle for handle in gradients if 0 <= handle < len(rows)]), default=0.0) * _MARGIN >= limit

    def _limits(self, optimizer: Optimizer) -> tuple[float, float]:
        """The root of the largest number that every parameter's format holds, and the smallest one."""
        num = sum(len(group["params"]) for group in optimizer.param_groups)
        known = self._formats.get(optimizer)
        if known is None or known[0] != num:
            dtypes = {p.dtype for group in optimizer.param_groups for p in group["params"] if p.is_floating_point()}
            formats = [torch.finfo(dtype) for dtype in dtypes]
            root = math.sqrt(min((f.max for f in formats), default=math.inf))
            known = self._formats[optimizer] = num, root, max((f.smallest_normal * f.eps for f in formats), default=0.0)
        return known[1:]


def _is_unsafe(setting: str, value: Any, smallest: float) -> bool:
    """Whether a number given to an optimizer can make weights bad though the gradients are not large: an eps that rounds to 0 can."""
    return isinstance(value, float | int) and (not math.isfinite(value) or (setting == "eps" and value <= smallest / 2))
