"""Weights keep their bits from an optimizer's step to the model's next call."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from numscope.alerts.checks.check import FIRST, Check, Subject, current_line, names_of
from numscope.alerts.checks.weight_updates import Sums
from numscope.distributed.agree import spread
from numscope.probe import loop_calls
from numscope.records.words import count
from numscope.summary.checksum import flipped_bit
from numscope.summary.unwrap import plain

LEAST_GAPS = 2  # looked at, in which a weight kept its bits: others are written by the script as a rule


class _Weights:
    """Those of a model at one time."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self.sums, self.num_loads = Sums(parameters), loop_calls.num_loads()
        self.marks = {name: (weakref.ref(p), p.dtype, p.shape) for name, p in parameters.items()}
        self.versions = {name: p._version for name, p in parameters.items()}


class BetweenSteps(Check):
    """Compares checksums of the weights after an optimizer's step with those before the next training call.

    What a script writes at each step, as a clamp is, is a rule; a module that is loaded is another matter; and several ranks may average
    their weights. One flipped bit of one weight, of which no operation knows, is none of these.

    *Cost:* after a thorough step (on a device not the first ones) and before the next call one pass over the weights; where one weight
    alone has changed, for the first time, 0.1 µs for each of its elements.
    """

    name = "weight changes between steps"
    cheap = True

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._after: _Weights | None = None  # the last optimizer's step, which was a thorough one
        self._pair: tuple[_Weights, _Weights] | None = None  # the same, and as the next call began
        self._line = ""
        self._num_gaps = 0
        self._times: Counter[str] = Counter()

    def after_step(self, optimizer: Optimizer) -> None:
        parameters = self.subject.parameters()
        # On a device the first steps have enough copies on their way to the host.
        looks = self.subject.thorough and (self.subject.num >= FIRST or all(p.is_cpu for p in parameters.values()))
        self._after = _Weights(parameters) if looks else None

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self._after is not None and torch.is_grad_enabled() and self.subject.model.training:
            self._pair, self._after = (self._after, _Weights(self.subject.parameters())), None
            self._line = current_line().at(" before the call at ")

    def before_step(self, optimizer: Optimizer) -> None:  # where detection has waited for what lies on a device
        pair, self._pair = self._pair, None
        if pair is None:
            return
        before, after = (each.sums.read() for each in pair)
        changed = [n for n, total in before.items() if after.get(n, total) != total and pair[0].marks[n] == pair[1].marks[n]]
        unknown = [n for n in changed if pair[0].versions[n] == pair[1].versions[n]]
        self._num_gaps += 1
        self._times.update(changed)
        if len(changed) == 1 == len(unknown) == self._times[changed[0]] and self._flipped(changed[0], before[changed[0]]):
            return
        if spread() or pair[0].num_loads != pair[1].num_loads:
            return
        news = [name for name in changed if self._times[name] == 1 and self._num_gaps > LEAST_GAPS]
        if news:
            how = ", and no operation on them is known" if len(unknown) == len(changed) else ""
            text = (
                f"{names_of(news)} changed after the optimizer's step{self._line}, as {count(self._num_gaps - 1, 'time')} before they did "
            )
            advice = "Look for what writes them in between: copy_() within no_grad(), .data, NumPy, another process."
            advice += " If nothing does, suspect the memory." if how else ""
            self.say(f"{text}not{how}.", advice, parameters=news, evidence={"counted by torch": not how}, asks=True)

    def _flipped(self, name: str, before: int) -> bool:
        part = plain(self.subject.parameters()[name])
        found = flipped_bit(before, part)
        if found is not None:
            element, bit = divmod(found, 8 * part.itemsize)
            text = (
                f"Bit {bit} of element {element} of {name} has flipped between the optimizer's step and the next call{self._line}. Nothing "
            )
            text += "else has changed, and no operation of torch has written it."
            advice = (
                "If the script writes no weight through .data, NumPy or another process, it is the hardware: test this machine's memory."
            )
            self.say(text, advice, parameters=[name], value=float(bit), evidence={"element": element, "bit": bit})
        return found is not None

    def close(self) -> None:
        self._after = self._pair = None
