"""Does a call once more under a variation: is it finite then, and what is bad if not?"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch
from torch import UntypedStorage, nn

from numscope.distributed.agree import has_group
from numscope.records.finding import Culprit
from numscope.records.places import place
from numscope.replay.call import as_it_began, eager, put_spared_back, what_hinders
from numscope.replay.capture import FORWARD, BufferCopies, Call
from numscope.replay.stages import FINITE, FORWARD_FINITE, Replay, Stages, heads, nonfinite, run_stages
from numscope.replay.tape import plain_name


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a variation.

    Args:
        is_finite: of the forward, and of the backward where there is one; None if it could not be done.
        culprit: what is bad if it is not.
        said: one sentence without a full stop.
    """

    is_finite: bool | None
    culprit: Culprit | None
    said: str


def varied(
    call: Call,
    names: Mapping[nn.Module, str],
    buffers: BufferCopies,
    fault: Culprit,
    variation: AbstractContextManager[object],
    factor: float = 1.0,
) -> Outcome:
    """A call's forward and backward once more, as it began but for the variation; afterwards all is as it is now.

    The backward begins from what the call's results had received; where that was bad, as after a bad forward, from a mean of them.

    Args:
        fault: what it is to be without; its operation's largest result is told.
        factor: of what the results receive, as a lower loss scale gives.

    *Cost:* that of a replay.
    """
    spared: dict[int, tuple[UntypedStorage, UntypedStorage]] = {}
    if (against := what_hinders(call, names, has_group())) is not None:
        return Outcome(None, None, f"could not be done: {against.status}")
    try:
        with as_it_began(call, names, buffers), eager(), variation:
            stages = _Varied(call, names, has_group(), None, spared)
            stages.factor = factor
            return _outcome(run_stages(stages, call.grad_enabled), stages, fault)
    finally:
        put_spared_back(spared)


class _Varied(Stages):
    factor = 1.0
    is_assumed = False

    def forward(self) -> Culprit | None:
        culprit = super().forward()
        able = [(at, t) for at, t in self.outputs if t.requires_grad]
        began = [pair for pair, head in zip(able, heads([t for _, t in able]), strict=True) if head]
        received = self.call.gradients[0] if self.call.gradients else {}
        given = {at: received[at].to(t.dtype) * self.factor for at, t in began if at in received}
        if not given or any(map(nonfinite, given.values())):
            self.is_assumed = True
            given = {at: torch.full_like(t, self.factor / max(t.numel(), 1)) for at, t in began}
        later = [] if self.is_assumed else self.call.gradients[1:]
        self.call = replace(self.call, gradients=[given, *later])
        return culprit

    def unready(self) -> Replay | None:
        return super().unready() if self.call.gradients[0] else Replay(None, FORWARD_FINITE)

    def largest(self, fault: Culprit) -> str:
        """The largest magnitude that the operation at fault gives now, as part of a sentence; empty where there is none of its name."""
        self.rows.read()
        same = (r for r in self.tape.records if r.name == plain_name(fault.op) and (r.module, r.phase) == (fault.module, fault.phase))
        states = (o.state for record in same for o in record.outputs)
        found = [self.rows.numbers(s.row).abs_max or 0.0 for s in states if s is not None and s.row >= 0]
        return f", largest {plain_name(fault.op)} {max(found):.3g}" if found else ""


def _outcome(replay: Replay, stages: _Varied, fault: Culprit) -> Outcome:
    bad = replay.culprit
    if bad is not None:
        where = f" at {place(bad.file, bad.line)}" if bad.file else ""
        return Outcome(False, bad, f"{bad.op} ({bad.phase.value}){where} is not finite: {bad.reason.value}")
    if replay.status not in (FINITE, FORWARD_FINITE):
        return Outcome(None, None, f"could not be done: {replay.status.removeprefix('not reproduced: ')}")
    if any(nonfinite(t) and bool(t.isnan().any()) for at, t in stages.outputs if at[0] == FORWARD):
        return Outcome(False, None, "its result is nan")
    both = "forward finite" if replay.status == FORWARD_FINITE else "forward and backward finite"
    begun = "; what the script makes of its result was not tried" if stages.is_assumed and replay.status == FINITE else ""
    return Outcome(True, None, f"{both}{stages.largest(fault)}{begun}")
