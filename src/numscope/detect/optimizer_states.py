"""Optimizers' states, which are saved with a model: an infinite ``exp_avg_sq`` makes each later update of its weight zero."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from numscope.probe.entry import Entry
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
        self._next: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()  # parameter whose turn it is
        self._roots: weakref.WeakKeyDictionary[Optimizer, tuple[int, float]] = weakref.WeakKeyDictionary()
        self._known: weakref.WeakKeyDictionary[Optimizer, set[tuple[int, str]]] = weakref.WeakKeyDictionary()  # bad already

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
        if max(rows.amax([handle for handle in gradients if 0 <= handle < len(rows)]), default=0.0) * _MARGIN >= self._root_of_largest(
            optimizer
        ):
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

    def _root_of_largest(self, optimizer: Optimizer) -> float:
        """The root of the largest number that every parameter's format holds."""
        num, root = self._roots.get(optimizer, (-1, math.inf))
        if num != len(optimizer.state):
            num, dtypes = len(optimizer.state), {p.dtype for p in optimizer.state if isinstance(p, Tensor) and p.is_floating_point()}
            root = math.sqrt(min((torch.finfo(dtype).max for dtype in dtypes), default=math.inf))
            self._roots[optimizer] = num, root
        return root
