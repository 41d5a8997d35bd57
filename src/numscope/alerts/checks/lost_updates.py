"""Updates that are lost: smaller than half the distance to the next number of a low-precision weight."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from numscope.alerts.checks.check import EVERY, FIRST, MOST_NAMED, Check, Subject, peak_rate
from numscope.summary.host_copy import HostCopy
from numscope.summary.sampling import sampled
from numscope.summary.unseen import unseen
from numscope.summary.unwrap import Unsummarizable, plain

SHARE = 0.5  # of the elements with a gradient; above it the parameter is named
STEPS = 3  # looked at after the first, at a learning rate that does not rise
SPAN = EVERY - FIRST  # steps over which elements stay as they are; fewer where the run ends
LEAST = 64  # elements with a gradient in a sample; fewer say nothing
MOST_PARAMETERS = 512  # that are followed, spread over the model
OF_PEAK = 0.5  # of the highest learning rate: below it a schedule may have updates be lost, as it ends
OF_LEVEL = 2.0**-8  # of the highest mean gradient: smaller ones are those of a model that has converged
LOW = (torch.bfloat16, torch.float16)
# States of optimizers that keep what a low-precision weight can't hold, or round so that it averages out.
_COMPENSATES = re.compile("master|kahan|compensation|fp32|shift|stochastic", re.IGNORECASE)


@dataclass(slots=True, eq=False)
class _Record:
    """A parameter's sample, and how it has fared since it was looked at first."""

    before: Tensor  # its bits then
    had: Tensor  # which elements had a gradient at each look
    stayed: Tensor  # which elements had these bits before and after each step that was looked at
    num: int  # of the first step
    matrix: bool
    steps: list[int] = field(default_factory=list)
    rate: float | None = None
    span: int = 0  # how many steps the last look came after the first
    share: float = 0.0

    def see(self, weight: Tensor) -> None:
        self.stayed &= weight.view(torch.int16) == self.before

    def counts(self) -> list[Tensor]:
        return [(self.stayed & self.had).sum(), self.had.sum()]


@dataclass(slots=True)
class _Look:
    """One step's counts, on their way from a device."""

    step: int
    num: int
    records: list[tuple[str, _Record, float]]
    counts: HostCopy


class UpdatesLost(Check):
    """The share of elements of bfloat16 and float16 parameters, among those with a gradient, that an optimizer which updates them directly
    leaves as they were, bit for bit, for a hundred steps or until the run ends.

    An update that is put together from several steps, masked or rounded at random moves elements within that time; what is written back
    after the step has moved within it. Left out are elements of zero, which lose nothing by rounding; gradients that have become tiny; a
    learning rate that rises, or has sunk below half its highest value; and optimizers that keep a float32 copy or a compensation, as far as
    their states' or settings' names say so.

    *Cost:* at thorough steps, some 0.1 ms for each of at most 512 low-precision parameters; 16 KB each for its sample of 4,096 elements.
    """

    name = "updates lost"
    cheap = ("end",)
    fused = True

    def __init__(self, subject: Subject, share: float = SHARE, steps: int = STEPS) -> None:
        super().__init__(subject)
        self._share, self._steps = share, steps
        self._records: dict[str, _Record] = {}
        self._peaks: dict[str, float] = {}
        self._levels: dict[str, Tensor] = {}
        self._taken: list[tuple[str, Tensor, _Record, Any, float]] = []  # in the step at work, with the group's rate and known peak
        self._looks: list[_Look] = []

    def before_step(self, optimizer: Optimizer) -> None:
        self._taken = []
        chosen = {
            id(p): (group.get("lr"), peak_rate(group))
            for group in optimizer.param_groups
            for p in group["params"]
            if p.dtype in LOW and p.grad is not None and not _compensates(optimizer, group, p)
        }
        if chosen:
            with unseen():
                for name, p in self._places():
                    if id(p) in chosen:
                        self._take(name, p, *chosen[id(p)])

    def _places(self) -> Iterator[tuple[str, Tensor]]:
        """The parameters that are followed."""
        low = [(name, p) for name, p in self.subject.parameters().items() if p.dtype in LOW]
        yield from low[:: 1 + len(low) // MOST_PARAMETERS]

    def _take(self, name: str, p: Tensor, rate: Any, peak: float) -> None:
        try:
            weight, gradient = sampled(plain(p)), sampled(plain(p.grad))  # type: ignore[arg-type]
        except Unsummarizable:
            return
        if gradient.shape != weight.shape or gradient.layout is not torch.strided:
            return
        size = gradient.float().abs()
        mean = size.mean()
        level = self._levels[name] = torch.maximum(self._levels[name], mean) if name in self._levels else mean
        had = (size > 0) & (size >= level * OF_LEVEL) & (weight != 0)
        record = self._records.get(name)
        if record is None or record.before.shape != weight.shape or record.before.device != weight.device:
            bits = weight.view(torch.int16).clone()
            record = self._records[name] = _Record(bits, had, torch.ones_like(had), self.subject.num, p.dim() > 1)
        else:
            record.see(weight)
            record.had &= had
        self._taken.append((name, p, record, rate, peak))

    def after_step(self, optimizer: Optimizer) -> None:
        if self._taken:
            with unseen():
                of_device: dict[torch.device, list[tuple[tuple[str, _Record, float], Tensor]]] = {}
                for name, p, record, rate, peak in self._taken:
                    record.see(sampled(plain(p)))
                    device = record.before.device
                    used = (
                        torch.as_tensor(rate, device=device)
                        if isinstance(rate, Tensor)
                        else torch.full((), float(rate or 0), device=device)
                    )
                    row = torch.stack([one.double() for one in (*record.counts(), used.reshape(()))])
                    of_device.setdefault(device, []).append(((name, record, peak), row))
                for rows in of_device.values():
                    about, counts = zip(*rows, strict=True)
                    self._looks.append(_Look(self.subject.step, self.subject.num, list(about), HostCopy(torch.stack(counts))))
            self._taken = []

    def end(self, closing: bool) -> None:
        self._taken = []
        while self._looks and self._looks[0].counts.is_here:
            self._count(self._looks.pop(0))
        self._tell(SPAN)

    def last(self) -> None:
        for look in self._looks:
            self._count(look)
        self._looks = []
        places = dict(self._places()) if self._losing(0) else {}
        with unseen():
            for name in self._losing(0):
                record = self._records[name]
                if name in places and sampled(plain(places[name])).shape == record.before.shape:
                    record.see(sampled(plain(places[name])))
                    lost, num = map(int, record.counts())
                    record.share = lost / num
        self._tell(0)

    def _count(self, look: _Look) -> None:
        for (name, record, peak), (lost, num, rate) in zip(look.records, look.counts.take().tolist(), strict=True):
            self._peaks[name] = max(self._peaks.get(name, 0.0), peak, rate)
            rises = record.rate is not None and rate > record.rate
            record.rate = rate
            if rate <= 0 or rises or lost <= self._share * num:
                if num >= LEAST or rate <= 0 or rises:
                    self._records.pop(name, None)  # the next look is a first one
            elif num >= LEAST and rate >= OF_PEAK * self._peaks[name]:
                record.steps.append(look.step)
                record.share, record.span = lost / num, look.num - record.num

    def _losing(self, span: int) -> list[str]:
        """The parameters that have lost their updates at enough looks, over a span of steps."""
        return [
            name
            for name, record in self._records.items()
            if len(record.steps) > self._steps and record.share > self._share and record.span >= span
        ]

    def _tell(self, span: int) -> None:
        losing = self._losing(span)
        if not losing:
            return
        losing.sort(key=lambda name: self._records[name].share, reverse=True)
        worst = self._records[losing[0]]
        dtype = str(dict(self._places())[losing[0]].dtype).removeprefix("torch.")
        among = f"; {len(losing)} of {len(self._peaks)} such parameters lose so many, {losing[0]} the most" if len(losing) > 1 else ""
        self.say(
            f"{worst.share:.0%} of the {dtype} elements with a gradient have kept their bits since step {worst.steps[0]}: the update is "
            f"below half the distance to the next number{among}.",
            "Keep weights in float32 and use autocast, or an optimizer with float32 master weights or stochastic rounding, or a larger "
            "learning rate.",
            parameters=losing,
            value=worst.share,
            limit=self._share,
            asks=not any(self._records[name].matrix for name in losing),  # norms' gains at 1: whoever trains in bfloat16 alone may know
            evidence={"steps": worst.steps, "shares": {name: round(self._records[name].share, 3) for name in losing[:MOST_NAMED]}},
        )

    def close(self) -> None:
        self._taken = []
        self._records.clear()


def _compensates(optimizer: Optimizer, group: dict[str, Any], parameter: Tensor) -> bool:
    names = [type(optimizer).__name__, *(key for key, on in group.items() if key != "params" and on is not None and on is not False)]
    state = optimizer.state.get(parameter, {})
    return any(_COMPENSATES.search(str(name)) for name in (*names, *(state if isinstance(state, dict) else ())))
