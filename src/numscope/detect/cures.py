"""Tries remedies before they are given: does the call at fault once more under each, and says what came of it.

Each trial is a replay, in a forked process where there can be one. It never changes the run.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from numscope.detect.at_line import FUNCTIONS, AtLine, Remedy, known, levels
from numscope.detect.batch_rows import bad_rows, dim_of, num_rows, on_rows
from numscope.detect.evidence import Evidence
from numscope.detect.written_remedy import in_own_words
from numscope.distributed.agree import Ranks, has_group
from numscope.precision.high_precision import high_precision
from numscope.probe import optimizer as optimizer_probe
from numscope.records.errors import UsageError
from numscope.records.faults import ours, suppress
from numscope.records.finding import Culprit, Finding, Reason, Trial
from numscope.records.layer import GEMMS
from numscope.records.places import place
from numscope.records.site import Phase
from numscope.replay.call import do_again
from numscope.replay.capture import FORWARD, Call, put_back
from numscope.replay.fork import in_child
from numscope.replay.reasons.case import attribute, largest
from numscope.replay.reasons.explain import SCRIPT_WRITES
from numscope.replay.stages import FINITE, FORWARD_FINITE, Replay, Stages, heads, nonfinite
from numscope.replay.tape import plain_name

PRECISION = "numscope.high_precision("
OUT_OF_FP8 = "disable_fp8_"
MOST_SECONDS = 60.0  # no further trial begins after so long
_GIVEN = (Reason.BAD_INPUT, Reason.BAD_PARAMETER)  # the call does nothing wrong
_NOT_THE_CALLS = (Reason.UNINITIALIZED, Reason.OPTIMIZER_UPDATE, Reason.COMPILED)
_SCALES = (8, 256, 65536)  # by which a loss scale is lowered
_MOST_MODULES = 6
_NEAR = 1 / 16  # of float16's range
_MOST_WEIGHTS = 4  # with rows to be set to 0, and their states
_MOST_SECONDS_FOR_ROWS = 20.0
_MOST_NAMES = 3
_FAR = 1e3

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
    is_fp8s = tried[0].remedy.startswith(OUT_OF_FP8)
    if tried[0].worked and (fails or PRECISION in advice or ".float()" in advice or is_fp8s):
        # What a rule computes in float32 may be too little, or more than it takes, and its result does not go with the other tensors.
        where = " in a configuration" if is_fp8s else ""
        advice = f"Use {tried[0].remedy}{where}, which was tried.{_next(evidence, tried[0].remedy)}"

    op = plain_name(culprit.op)

    def own(text: str) -> str:
        return in_own_words(text, op, culprit.file, culprit.line)

    def is_advised(remedy: str) -> bool:  # else it is another function's of the line, or of another kind
        return remedy in advice or (remedy in known() and any(FUNCTIONS[name][0] == op for name in known()[remedy].names))

    is_tried = culprit.reason in _GIVEN or advice is not culprit.advice or any(is_advised(one.remedy) for one in tried)
    tried = tuple(replace(trial, remedy=own(trial.remedy)) for trial in tried)
    return replace(finding, culprit=replace(culprit, advice=own(advice), tried=tried, advice_tried=is_tried))


def remedy_of(name: str, output: torch.dtype | None = None) -> str:
    """The remedy that computes one module in float32, as a script writes it."""
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
            is_its_own = culprit is not None and culprit.reason not in (*_GIVEN, *_NOT_THE_CALLS)
            modules = ranks.gather("modules at fault", culprit.module if culprit is not None and is_its_own else None)
            for remedy in _in_float32(evidence.names, call, min(modules)) if modules else ():
                with suppress(UsageError):  # on all ranks
                    if not ranks.any("a trial", outcome(remedy)[0] is not True)[0]:
                        return remedy.text
    return ""


def _next(evidence: Evidence, remedy: str) -> str:
    """A warning of the next result to leave float16's range: the largest result of this step outside of the module that a remedy covers."""
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

    def tried(remedy: _Remedy) -> Outcome:
        try:
            return outcome(remedy) if time.monotonic() < end else (None, "")
        except ours():
            return None, ""

    found: list[Trial] = []
    for family in _families(evidence, call, culprit, watched.met, tried):
        last = None
        for remedy in family:
            is_finite, said = tried(remedy)
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


def _families(
    evidence: Evidence, call: Call, culprit: Culprit, met: list[str], tried: Callable[[_Remedy], Outcome]
) -> Iterator[Iterator[_Remedy]]:
    """Remedies of one kind each, the mildest first: of each kind the first that works is told, or the last that does not."""
    names = evidence.names
    dtypes = {o.numbers.dtype for o in (*culprit.inputs, *culprit.outputs) if o.numbers is not None}
    own = [name for name in met if FUNCTIONS[name][0] == plain_name(culprit.op)]
    at = culprit.file, culprit.line
    is_its_own = culprit.reason not in _GIVEN
    if is_its_own:
        yield _out_of_fp8(names, call, tried)
    for name in (own or met) if is_its_own else ():
        yield (
            _Remedy(text, partial(AtLine, *at, Remedy(frozenset({name}), edit, level)), call)
            for edit, level, text in levels(name, dtypes, may_be_negative="y.clamp_min(" not in culprit.advice)
        )
    if is_its_own and "float16" in dtypes and culprit.phase is Phase.BACKWARD:
        what = "loss" if optimizer_probe.scale() is None else "loss scale"
        yield (_Remedy(f"a {what} {scale} times smaller", contextlib.nullcontext, call, 1 / scale) for scale in _SCALES)
    if is_its_own and dtypes & {"float16", "bfloat16"}:
        yield _in_float32(names, call, culprit.module)
    if is_its_own and "float16" in dtypes:
        yield _in_bfloat16(names, call)
    yield _without_rows_of_weights(names, call, culprit, evidence.steps.optimizers.living)
    yield _without_rows(names, call, tried)


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


def _out_of_fp8(names: Mapping[nn.Module, str], call: Call, tried: Callable[[_Remedy], Outcome]) -> Iterator[_Remedy]:
    """As few converted layers in high precision as halving finds, of one GEMM before all three."""
    if "numscope.precision.gemm.layer_state" not in sys.modules:  # so there is none; to import it takes longer than all trials
        return
    from numscope.precision.gemm.layer_state import state_of
    from numscope.precision.gemm.raising import raised

    part = [(attribute(name), state) for module, name in names.items() if (state := state_of(module)) is not None]

    def remedy(layers: Sequence[tuple[str, Any]], gemm: str = "") -> _Remedy:
        what = OUT_OF_FP8 + (f"gemm ({gemm})" if gemm else "layer")
        more = f" and {len(layers) - _MOST_NAMES} more" if len(layers) > _MOST_NAMES else ""
        under = partial(raised, [state for _, state in layers], [gemm] if gemm else GEMMS)
        return _Remedy(f"{what} for {', '.join(name for name, _ in layers[:_MOST_NAMES])}{more}", under, call)

    if part and tried(remedy(part))[0]:
        while len(part) > 1:
            halves = part[: len(part) // 2], part[len(part) // 2 :]
            if (smaller := next((half for half in halves if tried(remedy(half))[0]), None)) is None:
                break
            part = smaller
        yield from (remedy(part, gemm) for gemm in GEMMS)
    if part:
        yield remedy(part)


def _without_rows(names: Mapping[nn.Module, str], call: Call, tried: Callable[[_Remedy], Outcome]) -> Iterator[_Remedy]:
    """The batch without the rows that make it bad, where these are few."""
    dim, end = dim_of(names), time.monotonic() + _MOST_SECONDS_FOR_ROWS
    total = num_rows(call, dim)

    def fails(rows: Sequence[int]) -> bool | None:
        if time.monotonic() > end:
            return None
        is_finite = tried(_Remedy("", contextlib.nullcontext, on_rows(call, rows, dim)))[0]
        return None if is_finite is None else not is_finite

    def rest(bad: Sequence[int]) -> list[int]:
        return [row for row in range(total) if row not in bad]

    if total > 1 and (bad := bad_rows(total, fails)):
        for row in bad if len(bad) > 1 else ():
            others = [one for one in bad if one != row]
            bad = others if others and fails(rest(others)) is False else bad
        yield _Remedy(f"a batch without {_rows(bad)} of {total}", contextlib.nullcontext, on_rows(call, rest(bad), dim))


def _without_rows_of_weights(
    names: Mapping[nn.Module, str], call: Call, culprit: Culprit, optimizers: Sequence[Optimizer]
) -> Iterator[_Remedy]:
    """Rows of weights at 0 that are not finite, or, of the module at fault, far larger than the weight's others; with what is not finite
    of their optimizer's states, without which the next update would be bad again."""
    is_given = culprit.reason is Reason.BAD_PARAMETER
    found: dict[nn.Parameter, list[int]] = {}
    text: list[str] = []
    for module, name in names.items():
        for slot, weight in module._parameters.items():
            if weight is None or weight in found:
                continue
            if culprit.advice == SCRIPT_WRITES and _writes(module, slot):  # perhaps once, and not in a call that is done again
                return
            rows = _outliers(weight, is_given) if is_given or name == culprit.module else []
            at = attribute(f"{name}.{slot}".lstrip("."))
            if rows:
                found[weight] = rows
                text.append(f"{at}[{rows[0] if len(rows) == 1 else rows}] = 0")
            for optimizer in optimizers if weight.requires_grad else ():
                for key, state in optimizer.state.get(weight, {}).items():
                    if isinstance(state, Tensor) and state.shape == weight.shape and state.ndim and nonfinite(state):
                        bad = _outliers(state, True)
                        text.append(f"{key} of {at}{f'[{bad[0] if len(bad) == 1 else bad}]' if bad else ''} = 0")
    if found and len(text) <= _MOST_WEIGHTS:
        made = {id(weight): weight.detach().index_fill(0, torch.tensor(rows, device=weight.device), 0) for weight, rows in found.items()}
        yield _Remedy(", ".join(text), partial(_stood_in, names, lambda weight: made.get(id(weight))), call)


def _writes(module: nn.Module, slot: str) -> bool:
    """Whether a method of a script's module names a parameter and something that writes in place."""
    for kind in type(module).__mro__:
        for name, method in vars(kind).items() if not kind.__module__.startswith("torch.") else ():
            names = getattr(getattr(method, "__code__", None), "co_names", ())
            if name != "__init__" and slot in names and any(n == "data" or (n.endswith("_") and n[0] != "_") for n in names):
                return True
    return False


def _outliers(weight: Tensor, is_bad: bool) -> list[int]:
    """The rows of a weight or state that are not finite (``is_bad``), or far larger than its middle one; none where these are many."""
    if weight.ndim == 0 or not weight.is_floating_point() or type(weight.data) is not Tensor or weight.is_meta:
        return []
    largest_of = weight.detach().flatten(1).abs().amax(1).float() if weight.ndim > 1 else weight.detach().abs().float()
    far = ~largest_of.isfinite() if is_bad else largest_of > _FAR * largest_of.median()
    rows: list[int] = far.nonzero().flatten().tolist()
    return rows if len(rows) <= max(1, len(weight) // 4) else []


def _rows(rows: Sequence[int]) -> str:
    return f"row {rows[0]}" if len(rows) == 1 else f"rows {', '.join(map(str, rows[:-1]))} and {rows[-1]}"


@contextlib.contextmanager
def computed_in(dtype: torch.dtype, names: Mapping[nn.Module, str], module: nn.Module, weights: Collection[torch.dtype]) -> Iterator[None]:
    """As after ``module.to(dtype)`` for weights of some dtypes, gradients too; what the call is given is cast. The weights themselves are
    not touched."""
    cast = partial(_stood_in, names, lambda weight: weight.detach().to(dtype) if weight.dtype in weights else None)
    with cast(), high_precision(module, dtype=dtype, output_dtype=dtype):
        yield


@contextlib.contextmanager
def _stood_in(names: Mapping[nn.Module, str], make: Callable[[nn.Parameter], Tensor | None]) -> Iterator[None]:
    """Others in the place of those weights of which any are made. The weights themselves are not touched."""
    kept = [(m, dict(m._parameters.items())) for m in names]
    flat = [(m, m._flat_weights) for m in names if isinstance(m, nn.RNNBase)]  # a second list of the weights, which the kernels read
    stand_ins: dict[int, nn.Parameter] = {}  # a shared weight needs one
    try:
        for m, own in kept:
            for slot, weight in own.items():
                if weight is not None and (made := make(weight)) is not None:
                    m._parameters[slot] = stand_ins.setdefault(id(weight), nn.Parameter(made, weight.requires_grad))
        for rnn, _ in flat:
            rnn._flat_weights = [rnn._parameters.get(slot) for slot in rnn._flat_weights_names]
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
        """The outcome of the call; ``fault``: of which it is to be free, where that is asked."""
        bad = replay.culprit
        if bad is not None:
            where = f" at {place(bad.file, bad.line)}" if bad.file else ""
            return False, f"{bad.op} ({bad.phase.value}){where} is not finite: {bad.reason.value}"
        if replay.status not in (FINITE, FORWARD_FINITE):
            return None, replay.status
        if any(nonfinite(t) and bool(t.isnan().any()) for at, t in self.outputs if at[0] == FORWARD):
            return False, "its result is nan"
        both = "forward finite" if replay.status == FORWARD_FINITE else "forward and backward finite"
        begun = "; the script's own loss and its gradient were not tried" if self.is_assumed and replay.status == FINITE else ""
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
