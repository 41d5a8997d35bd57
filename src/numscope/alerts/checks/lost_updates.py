"""Updates that are lost: smaller than half the distance to the next number of a low-precision weight."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from numscope.alerts.checks.protocol import MOST_NAMED, NONE, Check, Subject
from numscope.probe.living import Beside
from numscope.probe.naming import named_state
from numscope.records.alert import Alert
from numscope.summary.late import Late
from numscope.summary.sampling import sampled
from numscope.summary.unseen import unseen
from numscope.summary.unwrap import Unsummarizable, plain

SHARE = 0.5  # of the elements with a gradient; above it the parameter is named
STEPS = 3  # looked at in a row, while the learning rate does not rise
LEAST = 64  # elements with a gradient in a sample; fewer say nothing
LOW = (torch.bfloat16, torch.float16)
# States of optimizers that keep what a low-precision weight can't hold, or round so that it averages out.
_COMPENSATES = re.compile("master|kahan|compensation|fp32|shift|stochastic", re.IGNORECASE)


@dataclass(slots=True)
class _Sample:
    """A parameter's sample before the step."""

    name: tuple[str, str]
    parameter: Tensor
    before: Tensor
    has_gradient: Tensor


@dataclass(slots=True)
class _Record:
    """How a parameter fared at the steps that were looked at."""

    steps: list[int] = field(default_factory=list)
    lost: int = 0
    num: int = 0


class UpdatesLost(Check):
    """The share of elements with a nonzero gradient that the optimizer's step left as they were, bit for bit, in bfloat16 and float16
    parameters that the optimizer updates directly.

    Steps at which a learning rate rises are left out: a warm-up begins with updates that are lost. So are optimizers that keep a float32
    copy or a compensation, or that round stochastically, as far as their states' or settings' names say so.

    *Cost:* at thorough steps, a sample of 4,096 elements of each low-precision parameter, before and after the step, some 40 µs each.
    """

    name = "updates lost"
    cheap = True

    def __init__(self, subject: Subject, share: float = SHARE, steps: int = STEPS) -> None:
        super().__init__(subject)
        self._share, self._steps = share, steps
        self._rates: Beside[Optimizer, list[Any]] = Beside()
        self._samples: list[_Sample] = []
        self._found: list[tuple[int, list[tuple[tuple[str, str], torch.dtype]], Late]] = []
        self._records: dict[tuple[str, str], _Record] = {}
        self._matrices: set[tuple[str, str]] = set()
        self._said = False

    def before_step(self, optimizer: Optimizer) -> Iterable[Alert]:
        self._samples = []
        if not self.subject.thorough or self._said:
            return NONE
        rates = [group.get("lr") for group in optimizer.param_groups]
        were = self._rates.get(optimizer)
        self._rates[optimizer] = [_known(rate) for rate in rates]
        chosen = {
            id(p)
            for i, group in enumerate(optimizer.param_groups)
            if were is not None and i < len(were) and _is_steady(were[i], rates[i])
            for p in group["params"]
            if p.dtype in LOW and p.grad is not None and not _compensates(optimizer, group, p)
        }
        if chosen:
            with unseen():
                for layer, slot, p in named_state(self.subject.probe.names, buffers=False):
                    if id(p) in chosen:
                        self._take(layer, slot, p)
        return NONE

    def _take(self, layer: str, slot: str, p: Tensor) -> None:
        try:
            weight, gradient = sampled(plain(p)), sampled(plain(p.grad))  # type: ignore[arg-type]
        except Unsummarizable:
            return
        if gradient.shape == weight.shape and gradient.layout is torch.strided:
            self._samples.append(_Sample((layer, slot), p, _bits(weight).clone(), gradient != 0))
            if p.dim() > 1:
                self._matrices.add((layer, slot))

    def after_step(self, optimizer: Optimizer) -> Iterable[Alert]:
        if self._samples:
            with unseen():
                counts: dict[torch.device, list[Tensor]] = {}
                names: dict[torch.device, list[tuple[tuple[str, str], torch.dtype]]] = {}
                for sample in self._samples:
                    same = _bits(sampled(plain(sample.parameter))) == sample.before
                    own = torch.stack([(same & sample.has_gradient).sum(), sample.has_gradient.sum()])
                    counts.setdefault(own.device, []).append(own)
                    names.setdefault(own.device, []).append((sample.name, sample.parameter.dtype))
                self._found += [(self.subject.step, names[device], Late(torch.stack(found))) for device, found in counts.items()]
            self._samples = []
        return NONE

    def end(self, closing: bool) -> Iterable[Alert]:
        found: list[Alert] = []
        while self._found and self._found[0][2].is_here:
            step, names, late = self._found.pop(0)
            found += self._counted(step, dict(names), late.take().tolist())
        return found

    def _counted(self, step: int, dtypes: dict[tuple[str, str], torch.dtype], counts: list[list[int]]) -> Iterable[Alert]:
        for name, (lost, num) in zip(dtypes, counts, strict=True):
            record = self._records.setdefault(name, _Record())
            if num < LEAST:
                continue
            if lost <= self._share * num:
                self._records[name] = _Record()
                continue
            record.steps.append(step)
            record.lost += lost
            record.num += num
        losing = [name for name in dtypes if len(self._records[name].steps) >= self._steps]
        if not losing or self._said:
            return NONE
        self._said = True
        return [self._alert(losing, dtypes)]

    def _alert(self, losing: list[tuple[str, str]], dtypes: dict[tuple[str, str], torch.dtype]) -> Alert:
        worst = max(losing, key=self._share_of)
        share = self._share_of(worst)
        dtype = str(dtypes[worst]).removeprefix("torch.")
        among = f"; {len(losing)} of {len(dtypes)} such parameters lose so many" if len(losing) > 1 else ""
        return self.subject.alert(
            self.name,
            f"{share:.0%} of the {dtype} elements with a gradient kept their bits in the last {len(self._records[worst].steps)} steps that "
            f"were looked at: the update is below half the distance to the next number{among}.",
            "Keep weights in float32 and use autocast, or an optimizer with float32 master weights or stochastic rounding, or a larger "
            "learning rate.",
            parameters=[".".join(filter(None, name)) for name in sorted(losing, key=self._share_of, reverse=True)],
            value=share,
            limit=self._share,
            asks=not self._matrices.intersection(losing),  # norms' gains at 1: whoever trains in bfloat16 alone may know
            evidence={
                "steps": self._records[worst].steps,
                "shares": {".".join(filter(None, name)): round(self._share_of(name), 3) for name in losing[:MOST_NAMED]},
            },
        )

    def _share_of(self, name: tuple[str, str]) -> float:
        return self._records[name].lost / self._records[name].num

    def close(self) -> None:
        self._samples = []


def _bits(tensor: Tensor) -> Tensor:
    return tensor.view(torch.int16)


def _known(rate: Any) -> float | None:
    """A learning rate, unless reading it would be a sync."""
    return float(rate) if isinstance(rate, int | float) or (isinstance(rate, Tensor) and rate.device.type == "cpu") else None


def _is_steady(was: float | None, rate: Any) -> bool:
    """Whether a learning rate is in use and does not rise. One on a device can't be read, and counts as steady."""
    now = _known(rate)
    return was is now is None or (was is not None and now is not None and 0 < now <= was)


def _compensates(optimizer: Optimizer, group: dict[str, Any], parameter: Tensor) -> bool:
    names = [type(optimizer).__name__, *(key for key, on in group.items() if key != "params" and on is not None and on is not False)]
    state = optimizer.state.get(parameter, {})
    return any(_COMPENSATES.search(str(name)) for name in (*names, *(state if isinstance(state, dict) else ())))
