"""Tries remedies before they are given: does the call at fault once more under each, and says what came of it.

Each trial is a replay, in a forked process where there can be one. It never changes the run.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from numscope.detect.at_line import FUNCTIONS, AtLine, Remedy, levels
from numscope.detect.evidence import Evidence
from numscope.detect.written_remedy import in_own_words
from numscope.distributed.agree import Ranks, has_group
from numscope.precision.high_precision import high_precision
from numscope.probe import optimizer as optimizer_probe
from numscope.records.errors import UsageError
from numscope.records.faults import ours, suppress
from numscope.records.finding import Culprit, Finding, Reason, Trial
from numscope.records.places import place
from numscope.records.site import Phase
from numscope.replay.call import do_again
from numscope.replay.capture import FORWARD, Call, put_back
from numscope.replay.fork import in_child
from numscope.replay.reasons.case import attribute, largest
from numscope.replay.stages import FINITE, FORWARD_FINITE, Replay, Stages, heads, nonfinite
from numscope.replay.tape import plain_name

PRECISION = "numscope.high_precision("
MOST_SECONDS = 60.0  # no further trial begins after so long
_NOT_THE_CALLS = (Reason.BAD_INPUT, Reason.BAD_PARAMETER, Reason.UNINITIALIZED, Reason.OPTIMIZER_UPDATE, Reason.COMPILED)
_SCALES = (8, 256, 65536)  # by which a loss scale is lowered
_MOST_MODULES = 6
_NEAR = 1 / 16  # of float16's range

Outcome = tuple[bool | None, str]  # whether the call was finite, None if it could not be done; one sentence without a full stop


@dataclass(frozen=True, slots=True)
class _Remedy:
    """One thing to try.

    Args:
        text: what to write.
        under: makes what the call is done under.
        call: it, with what it is to begin from.
        factor: of the gradients that its results receive.
    """

    text: str
    under: Callable[[], AbstractContextManager[object]]
    call: Call
    factor: float = 1.0


def with_trials(finding: Finding, evidence: Evidence, replay: Replay) -> Finding:
    """The finding with what was tried against it; as it is where the call at fault can't be done again, or no remedy of ours fits.

    *Cost:* a replay each, at most some ten, none begun after a minute.
    """
    culprit, call = finding.culprit, replay.call
    if culprit is None or call is None or culprit.reason in _NOT_THE_CALLS or finding.note:  # the note names another cause
        return finding
    if not evidence.trials or evidence.rewritten() is not None:
        return finding
    evidence.trials -= 1

    def work() -> tuple[Trial, ...]:
        return _tried(evidence, call, culprit)

    try:
        found = in_child(work, lambda why: ())
        tried = work() if found is None else found
    except ours():  # as where a device has no memory left
        return finding
    if not tried:
        return finding
    advice = culprit.advice
    fails = any(not one.worked and one.remedy in advice for one in tried)
    if tried[0].worked and (fails or PRECISION in advice or ".float()" in advice):
        # What a rule computes in float32 may be too little, or more than it takes, and its result does not go with the other tensors.
        advice = f"Use {tried[0].remedy}, which was tried.{_next(evidence, tried[0].remedy)}"

    def own(text: str) -> str:
        return in_own_words(text, plain_name(culprit.op), culprit.file, culprit.line)

    tried = tuple(replace(trial, remedy=own(trial.remedy)) for trial in tried)
    return replace(finding, culprit=replace(culprit, advice=own(advice), tried=tried))


def remedy_of(name: str, output: torch.dtype | None = None) -> str:
    """What a script writes for one module in float32."""
    return f"{PRECISION}{attribute(name)}{'' if output is None else f', output_dtype={output}'})"


def tried_together(evidence: Evidence, ranks: Ranks) -> str:
    """The module that makes a call finite on all ranks if it computes in float32, as a remedy; "" if none does, or nothing shows again.

    All ranks do the calls of the step that they have in common, in place and at the same time: their weights are spread over them.
    """
    evidence.trials -= 1
    held = ranks.gather("calls to be tried", [call.index for call in evidence.calls])

    def outcome(remedy: _Remedy) -> tuple[bool | None, Culprit | None]:
        stages = _Varied(remedy, evidence.names, ranks)
        done = do_again(stages, evidence.buffers, remedy.call.grad_enabled)
        return stages.outcome(done)[0], done.culprit

    with optimizer_probe.paused():
        for call in (one for one in evidence.calls if all(one.index in others for others in held)):
            _, culprit = outcome(_Remedy("", contextlib.nullcontext, call))
            is_its_own = culprit is not None and culprit.reason not in _NOT_THE_CALLS
            modules = ranks.gather("modules at fault", culprit.module if culprit is not None and is_its_own else None)
            for remedy in _in_float32(evidence.names, call, min(modules)) if modules else ():
                with suppress(UsageError):  # on all ranks
                    if not ranks.any("a trial", outcome(remedy)[0] is not True)[0]:
                        return remedy.text
    return ""


def _next(evidence: Evidence, remedy: str) -> str:
    """What will soon leave float16's range too: the largest result of this step outside of the module that a remedy covers."""
    kept = remedy.removeprefix(PRECISION).rstrip(")").partition(", output")[0]
    if kept == remedy or kept == "model":
        return ""
    most, where, depth = 0.0, "", len(re.findall(r"[.[]", kept))
    for event in evidence.journal.events if evidence.journal.on_host else ():
        path = attribute(event.entry.name)
        if event.phase is Phase.FORWARD and not _holds(kept, path) and not _holds(path, kept):
            for slot, ledger, handle in event.items:
                found = ledger.numbers(int(handle)) if ledger is not None and slot.startswith("output") else None
                if found is not None and found.dtype == "float16" and not found.num_nonfinite and (found.abs_max or 0.0) > most:
                    most, where = found.abs_max or 0.0, attribute(".".join(event.entry.name.split(".")[:depth]))
    share = most / largest("float16")
    if share < _NEAR:
        return ""
    return f" {where} has reached {most:.3g} in the same step, {share:.0%} of float16's range: take it too, or lower the learning rate."


def _holds(outer: str, inner: str) -> bool:
    """Of modules as Python writes them."""
    return f"{inner}.".startswith((f"{outer}.", f"{outer}["))


def _tried(evidence: Evidence, call: Call, culprit: Culprit) -> tuple[Trial, ...]:
    end = time.monotonic() + MOST_SECONDS

    def outcome(remedy: _Remedy) -> Outcome:
        stages = _Varied(remedy, evidence.names)
        return stages.outcome(do_again(stages, evidence.buffers, remedy.call.grad_enabled), culprit)

    watched = AtLine(culprit.file, culprit.line)
    if outcome(_Remedy("", lambda: watched, call))[0] is not False:  # what it is to cure does not show: a trial would prove nothing
        return ()
    found: list[Trial] = []
    for family in _families(evidence.names, call, culprit, watched.met):
        last = None
        for remedy in family:
            if time.monotonic() > end:
                break
            try:
                is_finite, said = outcome(remedy)
            except ours():
                continue
            if is_finite is None:  # which tells nothing of the remedy
                continue
            last = Trial(remedy.text, is_finite, said)
            if last.worked:
                break
            if last.remedy in culprit.advice:
                found.append(last)
        found += [last] if last is not None and last not in found else []
    works = [trial for trial in found if trial.worked]
    return (*works, *(trial for trial in found if not trial.worked and (not works or trial.remedy in culprit.advice)))


def _families(names: Mapping[nn.Module, str], call: Call, culprit: Culprit, met: list[str]) -> Iterator[Iterator[_Remedy]]:
    """Remedies of one kind each, the mildest first: of each kind the first that works is told, or the last that does not."""
    dtypes = {o.numbers.dtype for o in (*culprit.inputs, *culprit.outputs) if o.numbers is not None}
    own = [name for name in met if FUNCTIONS[name][0] == plain_name(culprit.op)]
    at = culprit.file, culprit.line
    for name in own or met:
        remedies = ((text, Remedy(frozenset({name}), edit, level)) for edit, level, text in levels(name, dtypes))
        yield (_Remedy(text, partial(AtLine, *at, remedy), call) for text, remedy in remedies)
    if "float16" in dtypes and culprit.phase is Phase.BACKWARD:
        what = "loss" if optimizer_probe.scale() is None else "loss scale"
        yield (_Remedy(f"a {what} {scale} times smaller", contextlib.nullcontext, call, 1 / scale) for scale in _SCALES)
    if dtypes & {"float16", "bfloat16"}:
        yield _in_float32(names, call, culprit.module)
    if "float16" in dtypes:
        yield _in_bfloat16(names, call)


def _in_float32(names: Mapping[nn.Module, str], call: Call, name: str) -> Iterator[_Remedy]:
    """The module at fault, what holds it, and so on up to the whole model; then the first and the last with a result that stays float32."""
    modules = {name: module for module, name in names.items()}
    held = [".".join(parts[:n]) for parts in [name.split(".")] for n in range(len(parts), 0, -1)][: _MOST_MODULES - 1]
    for at, output in [*((at, None) for at in dict.fromkeys((*held, call.name))), (name, torch.float32), (call.name, torch.float32)]:
        if (module := modules.get(at)) is not None and not isinstance(module, nn.ModuleList | nn.ModuleDict):
            yield _Remedy(remedy_of(at, output), partial(high_precision, module, output_dtype=output), call)


def _in_bfloat16(names: Mapping[nn.Module, str], call: Call) -> Iterator[_Remedy]:
    text = "bfloat16 in place of float16"
    if any(enabled and dtype is torch.float16 for _, enabled, dtype in call.autocast.types):
        types = [(kind, enabled, torch.bfloat16 if dtype is torch.float16 else dtype) for kind, enabled, dtype in call.autocast.types]
        yield _Remedy(text, contextlib.nullcontext, replace(call, autocast=replace(call.autocast, types=types)))
    else:
        yield _Remedy(text, partial(computed_in, torch.bfloat16, names, call.module, {torch.float16}), call)


@contextlib.contextmanager
def computed_in(dtype: torch.dtype, names: Mapping[nn.Module, str], module: nn.Module, weights: Collection[torch.dtype]) -> Iterator[None]:
    """As after ``module.to(dtype)`` for weights of some dtypes, gradients too; what the call is given is cast. The weights themselves are
    not touched."""
    kept = [(m, dict(m._parameters.items())) for m in names]
    flat = [(m, m._flat_weights) for m in names if isinstance(m, nn.RNNBase)]  # a second list of the weights, which the kernels read
    stand_ins: dict[int, nn.Parameter] = {}  # a shared weight needs one
    try:
        for m, own in kept:
            for slot, weight in own.items():
                if weight is not None and weight.dtype in weights:
                    cast = nn.Parameter(weight.detach().to(dtype), weight.requires_grad)
                    m._parameters[slot] = stand_ins.setdefault(id(weight), cast)
        for rnn, _ in flat:
            rnn._flat_weights = [rnn._parameters.get(slot) for slot in rnn._flat_weights_names]
        with high_precision(module, dtype=dtype, output_dtype=dtype):
            yield
    finally:
        for m, own in kept:
            put_back(m._parameters, own)
        for rnn, several in flat:
            rnn._flat_weights = several


class _Varied(Stages):
    """A call's forward and backward once more under a remedy.

    The backward begins from what the call's results had received; where that was bad, as after a bad forward, from a mean of them.
    """

    is_assumed = False

    def __init__(self, remedy: _Remedy, names: Mapping[nn.Module, str], ranks: Ranks | None = None) -> None:
        super().__init__(remedy.call, names, ranks is None and has_group(), ranks)
        self.factor, self.under = remedy.factor, remedy.under()

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

    def outcome(self, replay: Replay, fault: Culprit | None = None) -> Outcome:
        """What came of the call; ``fault``: what it is to be without, where that is asked for."""
        bad = replay.culprit
        if bad is not None:
            where = f" at {place(bad.file, bad.line)}" if bad.file else ""
            return False, f"{bad.op} ({bad.phase.value}){where} is not finite: {bad.reason.value}"
        if replay.status not in (FINITE, FORWARD_FINITE):
            return None, replay.status
        if any(nonfinite(t) and bool(t.isnan().any()) for at, t in self.outputs if at[0] == FORWARD):
            return False, "its result is nan"
        both = "forward finite" if replay.status == FORWARD_FINITE else "forward and backward finite"
        begun = "; what the script makes of its result was not tried" if self.is_assumed and replay.status == FINITE else ""
        return True, f"{both}{self._largest(fault)}{begun}"

    def _largest(self, fault: Culprit | None) -> str:
        """The largest magnitude that the operation at fault gives now, as part of a sentence; empty where there is none of its name."""
        if fault is None:
            return ""
        self.rows.read()
        same = (r for r in self.tape.records if r.name == plain_name(fault.op) and (r.module, r.phase) == (fault.module, fault.phase))
        states = (o.state for record in same for o in record.outputs)
        found = [self.rows.numbers(s.row).abs_max or 0.0 for s in states if s is not None and s.row >= 0]
        return f", largest {plain_name(fault.op)} {max(found):.3g}" if found else ""
