"""Weights keep their bits from an optimizer's step to the model's next call."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from numscope.alerts.checks.check import FIRST, Check, Subject, current_line
from numscope.alerts.checks.weight_updates import Sums
from numscope.summary.checksum import flipped_bit
from numscope.summary.unwrap import plain


class _Weights:
    """Those of a model at one time."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self.sums = Sums(parameters)
        self.parameters = {name: (weakref.ref(p), p.dtype, p.shape) for name, p in parameters.items()}
        self.versions = {name: p._version for name, p in parameters.items()}

    def has(self, name: str, other: _Weights) -> bool:
        """Whether a weight is the other one's; references to two tensors that live would be compared element by element."""
        (mine, *as_it_is), (theirs, *as_it_was) = self.parameters[name], other.parameters[name]
        return mine is theirs and as_it_is == as_it_was


class BetweenSteps(Check):
    """Compares checksums of the weights after an optimizer's step with those before the next training call: has one bit of one weight
    flipped, of which no operation knows? Scripts write weights in between, and more of them than that.

    *Cost:* after a thorough step (on a device not the first ones) and before the next call one pass over the weights; where one weight
    alone has changed, for the first time, 0.1 µs for each of its elements.
    """

    name = "weight changes between steps"
    cheap = "enter", "before_step"

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._after: _Weights | None = None  # the last optimizer's step, which was a thorough one
        self._pair: tuple[_Weights, _Weights] | None = None  # the same, and as the next call began
        self._line = ""
        self._written: set[str] = set()  # weights that have changed in between

    def after_step(self, optimizer: Optimizer) -> None:
        parameters = self.subject.parameters()
        # On a device the first steps have enough copies on their way to the host.
        looks = self.subject.num >= FIRST or all(p.is_cpu for p in parameters.values())
        self._after = _Weights(parameters) if looks else None

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self._after is not None and torch.is_grad_enabled() and self.subject.model.training:
            self._pair, self._after = (self._after, _Weights(self.subject.parameters())), None
            self._line = current_line().at(" before the call at ")

    def before_step(self, optimizer: Optimizer) -> None:  # where detection has waited for what lies on a device
        pair, self._pair, self._after = self._pair, None, None
        if pair is None:
            return
        before, after = (each.sums.read() for each in pair)
        changed = [n for n, total in before.items() if after.get(n, total) != total and pair[0].has(n, pair[1])]
        unknown = [n for n in changed if pair[0].versions[n] == pair[1].versions[n]]
        if len(changed) == 1 == len(unknown) and changed[0] not in self._written:
            self._say_flip(changed[0], before[changed[0]])
        self._written.update(changed)

    def _say_flip(self, name: str, before: int) -> None:
        part = plain(self.subject.parameters()[name])
        if (found := flipped_bit(before, part)) is not None:
            element, bit = divmod(found, 8 * part.itemsize)
            text = f"Bit {bit} of element {element} of {name} has flipped between the optimizer's step and the next call{self._line}. "
            text += "Nothing else has changed, and no operation of torch has written it."
            advice = "If the script writes no weight through .data, NumPy or another process, test this machine's memory."
            self.say(text, advice, parameters=[name], value=float(bit), evidence={"element": element, "bit": bit})

    def close(self) -> None:
        self._after = self._pair = None
