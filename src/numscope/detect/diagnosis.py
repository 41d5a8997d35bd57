"""From a step that went bad to a finding: which tensor was first, and which operation made it so."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from numscope.detect.cures import with_trials
from numscope.detect.evidence import BadLeaf, Evidence
from numscope.detect.parameters import parameters_of
from numscope.detect.weight_evidence import with_weights
from numscope.distributed.agree import Ranks
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.entry import Entry
from numscope.probe.naming import class_name, named_state
from numscope.probe.optimizers import gradient_of
from numscope.records.finding import Culprit, Finding, Numbers, Reason
from numscope.records.site import Phase, Site
from numscope.replay.call import NOT_WANTED
from numscope.replay.capture import Call
from numscope.replay.culprit import find_culprit, pending_states
from numscope.replay.op import COLLECTIVES
from numscope.replay.outside import GRADIENT, MODEL_OUTPUT, MOST_IN_A_ROW
from numscope.replay.reasons.case import LIFTS
from numscope.replay.stages import COMMUNICATES, FINITE, REPRODUCED, Replay
from numscope.replay.tape import plain_name


def escaped(evidence: Evidence, bad: Sequence[BadLeaf], known_weights: frozenset[str]) -> list[BadLeaf]:
    """The bad leaves that reached the loss, a gradient or a weight.

    Args:
        known_weights: names of weights that were non-finite when the watch began; they are no news.
    """
    weights = evidence.journal.weights.ledger
    found = []
    for index, slot in bad:
        event = evidence.journal.event(index)
        if event.phase is not Phase.FORWARD:
            found.append((index, slot))
        elif any(name == slot and ledger is weights for name, ledger, _ in event.items):
            if event.entry.parameter(slot) not in known_weights:
                found.append((index, slot))
    return found


def are_chosen(evidence: Evidence, bad: Sequence[BadLeaf], reached: Sequence[BadLeaf]) -> bool:
    """Whether all that has escaped are weights, which the script wants so: the score of a class that can't come, a row that nobody reads.

    What recorded code or an optimizer has done to them is judged as that step ends; loss, gradients and buffers are finite beside them,
    and outputs hold nothing worse than -inf, as of a class that can't come.
    """
    journal = evidence.journal
    weights = {f"{module}.{slot}".lstrip(".") for module, slot, _ in parameters_of(evidence.names)}
    events = [(journal.event(index), slot) for index, slot in reached]
    if not journal.on_host or not all(event.phase is Phase.FORWARD and event.entry.parameter(slot) in weights for event, slot in events):
        return False
    others = [journal.numbers(*leaf) for leaf in bad if leaf not in reached]
    return all(numbers is not None and numbers.num_nonfinite == numbers.num_neg_inf for numbers in others)


def diagnose(evidence: Evidence, bad: Sequence[BadLeaf], reached: Sequence[BadLeaf]) -> Finding:
    """Name the culprit of what escaped. *Cost:* at most a replay of each suspected call."""
    replay = _find(evidence, bad)
    return with_trials(_finding(evidence, bad, reached, replay), evidence, replay)


def first_of_models(
    evidence: Evidence, bad: Sequence[BadLeaf], reached: Sequence[BadLeaf], others: Sequence[tuple[Evidence, Sequence[BadLeaf]]]
) -> tuple[Finding, Evidence]:
    """The finding of the model that went bad first: of the teacher or the discriminator, rather than of its victim.

    Where this model's forward is good, that is a model whose backward went bad earlier.

    Args:
        bad: what is, of this model.
        reached: what of it escaped.
        others: models whose calls belong to the same step, and what is bad of each.

    Returns: it, and whose it is.
    """
    evidence.outside.ledger.read()
    own = evidence.journal.event(min(bad)[0])
    for other, read in others:
        events = other.journal.events
        out = [
            (i, slot)
            for i, slot in read
            if (not events[i].entry.name and slot.startswith("output")) or own.phase is events[i].phase is Phase.BACKWARD
        ]
        if out and events[out[0][0]].order < own.order:
            return diagnose(other, read, out), other
    finding = diagnose(evidence, bad, reached)
    if finding.culprit is not None and came_from_loss(finding.culprit):
        for other, _ in others:  # whose own gradients are not read before it is judged itself
            theirs = stopped_backward(other)
            if theirs is not None and theirs.culprit is not None and not came_from_loss(theirs.culprit):
                return theirs, other
    return finding, evidence


def diagnose_together(evidence: Evidence, bad: Sequence[BadLeaf], reached: Sequence[BadLeaf], ranks: Ranks) -> Finding | None:
    """``diagnose`` for a model that communicates: all ranks do the same calls again, in the same order, until one has a culprit.

    Args:
        reached: empty on a rank that raised no alarm; it may be the one at fault all the same, its numbers having gone to others.
    """
    outside = _outside(evidence, bad)
    sure = outside is not None and not _handed_on(outside)
    suspects = [] if sure or not reached else list(dict.fromkeys(_suspects(evidence, bad)))
    told = ranks.gather("suspects", {"suspects": suspects, "held": [c.index for c in evidence.calls]})
    held = set(told[0]["held"]).intersection(*(t["held"] for t in told))
    waves = itertools.zip_longest(*(t["suspects"] for t in told))
    replay = Replay(None, "not reproduced: the call's arguments were not kept on every rank")
    handed: Replay | None = None
    for index in dict.fromkeys(n for wave in waves for n in wave if n in held):
        call = next(c for c in evidence.calls if c.index == index)
        replay = evidence.replay(call, backward=call.had_backward, ranks=ranks)
        if replay.culprit is not None and came_from_loss(replay.culprit):  # or a later call handed it to this one
            handed, replay = handed or replay, Replay(None, replay.status)
        before = _made_before(evidence, call, replay.culprit)
        if before is not None and not _from_gradient(before):
            replay = Replay(before, REPRODUCED)
        if ranks.any("a replay's result", replay.culprit is not None)[0]:
            break
    else:
        replay = handed or replay
    if sure or (outside is not None and replay.culprit is None and not _from_model(outside)):
        replay = Replay(outside, REPRODUCED)
    if reached:
        return _finding(evidence, bad, reached, replay)
    culprit = replay.culprit  # nothing stayed bad here, but it may have begun here
    return None if culprit is None or received(culprit) else _finding_of(evidence, culprit, "handed to other ranks")


def diagnose_call(evidence: Evidence, call: Call, bad: Sequence[BadLeaf], leaves: Sequence[BadLeaf]) -> Finding:
    """Name the culprit of a call's bad result, of which nothing follows yet: only a process of its own does the call again.

    Args:
        bad: what the journal has of the call.
        leaves: those of its result.
    """
    return _finding(evidence, bad, leaves, replayed(evidence, call, forks=True))


def replayed(evidence: Evidence, call: Call, *, forks: bool = False) -> Replay:
    """A call's forward done again, and what gave it bad arguments; ``forks``: in a process of its own or not at all."""
    replay = evidence.replay(call, backward=False, forks=forks)
    before = _made_before(evidence, call, replay.culprit)
    return replay if before is None or _from_gradient(before) else Replay(before, replay.status)


def result_of(evidence: Evidence, call: Call, bad: Sequence[BadLeaf]) -> list[BadLeaf]:
    """The bad leaves of a call's result; -inf alone is how scores are masked."""
    return [(i, s) for i, s in bad if evidence.journal.event(i).call == call.index and _tells(evidence, call, i, s)]


def received(culprit: Culprit | None) -> bool:
    """Whether what went bad came from another rank: the operation is a collective."""
    return culprit is not None and culprit.op.partition(".")[0] in COLLECTIVES


def _finding(evidence: Evidence, bad: Sequence[BadLeaf], reached: Sequence[BadLeaf], replay: Replay) -> Finding:
    index, slot = _first(evidence, bad, reached, replay.culprit)
    return with_weights(evidence.finding(index, slot, replay.status, culprit=replay.culprit), evidence)


def _finding_of(evidence: Evidence, culprit: Culprit, slot: str) -> Finding:
    """Of an operation whose results no hook saw."""
    numbers = next((o.numbers for o in culprit.outputs if o.numbers is not None and o.numbers.num_nonfinite), None)
    cls = next((class_name(module) for module, name in evidence.names.items() if name == culprit.module), "")
    finding = evidence.found(Site(culprit.module, cls, culprit.phase, slot), numbers, culprit)
    return with_weights(replace(finding, frames=evidence.journal.frames(len(evidence.journal) - 1, evidence.frames)), evidence)


def contained(evidence: Evidence, bad: Sequence[BadLeaf]) -> list[Finding]:
    """One note a site for what was bad and went nowhere."""
    found: dict[Site, Finding] = {}
    for index, slot in bad:
        site = evidence.journal.site(index, slot)
        if site not in found:
            why = "not replayed: it never reached the loss, a gradient or a weight"
            found[site] = evidence.finding(index, slot, why, contained=True, frames=())
    return list(found.values())


def foresee(evidence: Evidence, bad: Sequence[BadLeaf]) -> None:
    """Do bad calls again before weights can be written that they used; what comes of it is kept for the diagnosis, which may never come."""
    found = _find(evidence, bad, foresees=True)
    if evidence.foreseen is None and found.culprit is not None:
        evidence.foreseen = found


def _find(evidence: Evidence, bad: Sequence[BadLeaf], foresees: bool = False) -> Replay:
    """The stretch outside the model first, where it is the first to go bad; then the calls, the most suspected first."""
    if evidence.foreseen is not None and evidence.rewritten() is not None:
        return evidence.foreseen
    outside = _outside(evidence, bad)
    if outside is not None and not _handed_on(outside):
        return _infinities_made_by_call(evidence, bad, outside, foresees) or Replay(outside, REPRODUCED)
    status = evidence.not_kept
    finite = 0
    handed: Replay | None = None
    for index in dict.fromkeys(_suspects(evidence, bad)):
        call = next((c for c in evidence.calls if c.index == index), None)
        if call is not None:
            replay = evidence.replay(call, backward=call.had_backward, forks=foresees)
            if foresees and replay.culprit is not None:
                call.replayed = replay
            before = _made_before(evidence, call, replay.culprit)
            if before is not None and not _from_gradient(before):
                return Replay(before, REPRODUCED)
            if replay.culprit is not None and (before is not None or came_from_loss(replay.culprit)):
                handed, status = handed or replay, _FINITE_FORWARD  # by the loss, or by a later call
                continue
            if replay.culprit is not None or replay.status == COMMUNICATES:
                return replay
            status = replay.status
            finite += status == FINITE
    if handed is not None and outside is None:
        name = next((e.entry.name for e in map(evidence.journal.event, (i for i, _ in bad)) if e.phase is Phase.BACKWARD), "")
        is_kept = any(not c.name or f"{name}.".startswith(f"{c.name}.") for c in evidence.calls)
        return handed if is_kept or not name else Replay(None, _UNSEEN_CALL.format(name))
    if 1 < finite == len(evidence.calls):
        status = f"not reproduced: each of {finite} micro-batches was finite by itself: their accumulated gradients overflow; {_LATER}"
    phases = {evidence.journal.event(index).phase for index, _ in bad}
    if outside is None and finite == len(evidence.calls) > 0 and Phase.LOSS in phases and Phase.FORWARD not in phases:
        status = _LONG_LOSS if evidence.outside.is_cut else _UNSEEN_LOSS
    if outside is None or _from_model(outside) or (evidence.probe.in_function and _handed_on(outside)):
        return Replay(None, status)  # the loss was handed it by the model, which did not show it again
    return Replay(outside, REPRODUCED)


def _infinities_made_by_call(evidence: Evidence, bad: Sequence[BadLeaf], outside: Culprit, forks: bool) -> Replay | None:
    """The call whose infinities became nan outside, as in a loss; None where it wrote them on purpose, as masks are."""
    if outside.reason is not Reason.INF_MINUS_INF or not _holds_bad(outside, MODEL_OUTPUT):
        return None
    went_bad = {event.call for event in (evidence.journal.event(index) for index, _ in bad) if event.phase is Phase.FORWARD}
    for call in evidence.calls:
        if call.index in went_bad:
            replay = replayed(evidence, call, forks=forks)
            if replay.culprit is not None and replay.culprit.reason not in (Reason.UNKNOWN, Reason.BAD_INPUT, Reason.BAD_PARAMETER):
                return replay
    return None


def _made_before(evidence: Evidence, call: Call, culprit: Culprit | None) -> Culprit | None:
    """The operation between two calls that made the second one's input bad; infinities that it wrote on purpose, as masks are, did not.

    Where a gradient of the first call made it bad, that call is to be replayed: ``_from_gradient``.
    """
    if culprit is None or not (culprit.phase is Phase.FORWARD or _holds_bad(culprit, "input[")):
        return None
    is_given = culprit.reason in (Reason.BAD_INPUT, Reason.BAD_PARAMETER)
    if not is_given and culprit.reason not in (Reason.INF_MINUS_INF, Reason.ZERO_TIMES_INF):
        return None
    own = named_state(evidence.names) if culprit.reason is Reason.BAD_PARAMETER else ()
    states = evidence.outside.states([t for _, t in call.given] + [t for _, _, t in own])
    found = find_culprit(evidence.outside.tape, states, evidence.outside.ledger)
    if found is None or (found.reason is Reason.UNKNOWN and not is_given):
        return None
    is_of_numbers = found.reason is Reason.BAD_INPUT and plain_name(found.op) in LIFTS  # Python's, NumPy's or a file's became a tensor
    return found if not _handed_on(found) or received(found) or _from_gradient(found) or is_of_numbers else None


def left_out_is_bad(evidence: Evidence) -> bool:
    """Whether a loss outside the model is bad on which nobody called backward."""
    waits = any(call.awaits_backward for call in evidence.calls) and evidence.journal.on_host
    return waits and bool(evidence.outside.ledger.bad())


def of_gradients(evidence: Evidence, handles: Sequence[int], replay: str, cls: str, **more: Any) -> Finding:
    """A finding about all gradients, which stands at the first one; where none is left, at the optimizer or model of a class."""
    journal = evidence.journal
    first = next((i for i, e in enumerate(journal.events) if handles and e.flat[1:] == (journal.ledger, handles[0])), len(journal))
    if first == len(journal):
        journal.add_handles(Entry("", cls), Phase.OPTIMIZER, journal.ledger, [("grad", -1)])
    return evidence.finding(first, journal.event(first).items[0][0], replay, **more)


def pending(evidence: Evidence, bad: Sequence[BadLeaf], *, died: bool = False) -> Finding | None:
    """The finding of a loss, or of a call, on which the script called no backward because it was bad; None where neither was.

    Args:
        died: an exception is ending the script, perhaps because of something bad that it looked at a while ago, or in no call.

    *Cost:* at most a replay of each such call, and of one that raised.
    """
    events = evidence.journal.events
    outside = evidence.outside
    is_loss = any(c.awaits_backward for c in evidence.calls) or (died and not evidence.calls)
    states = pending_states(outside.tape, outside.ledger, _MOST_PENDING if died else 1) if is_loss else []
    found = (find_culprit(outside.tape, [state], outside.ledger) for state in states)
    culprit = next((c for c in found if c is not None and c.reason not in (Reason.BAD_INPUT, Reason.UNKNOWN)), None)
    left = {c.index: c for c in evidence.calls if c.awaits_backward or c.raised}
    leaves = [(i, s) for i, s in bad if events[i].call in left and _tells(evidence, left[events[i].call], i, s)]
    if culprit is not None:
        return _finding(evidence, bad, leaves, Replay(culprit, REPRODUCED)) if leaves else _finding_of(evidence, culprit, "loss")
    if not leaves:
        raised = evidence.calls[-1] if died and evidence.calls and evidence.calls[-1].raised else None
        culprit = None if raised is None else replayed(evidence, raised).culprit  # what the model's own check refused no hook has seen
        return None if culprit is None else _finding_of(evidence, culprit, "output")
    replay = Replay(None, "not reproduced: the call's arguments were not kept")
    for index in dict.fromkeys(events[i].call for i, _ in leaves):
        replay = replayed(evidence, left[index])
        if replay.culprit is not None:
            break
    return _finding(evidence, leaves, leaves, replay)


def stopped_backward(evidence: Evidence) -> Finding | None:
    """The finding of a backward that raised before anything bad was seen, as autograd's anomaly mode makes it; None if it was finite.

    *Cost:* at most a replay of each call.
    """
    culprit = _find(evidence, ()).culprit
    return None if culprit is None else _finding_of(evidence, culprit, "gradient")


def _tells(evidence: Evidence, call: Call, index: int, slot: str) -> bool:
    """Whether a bad leaf is what a script gives up for: nan or inf in a call's result; of a call that raised, a nan on the way."""
    event, numbers = evidence.journal.event(index), evidence.journal.numbers(index, slot)
    if event.phase is not Phase.FORWARD or numbers is None:
        return False
    if call.raised:
        return bool(numbers.num_nan)
    return event.entry.name == call.name and slot.startswith("output") and bool(numbers.num_nan or numbers.num_pos_inf)


_MOST_PENDING = 8  # bad tensors that are looked into where a script dies
_FINITE_FORWARD = (
    "not reproduced: the call's forward was finite the second time; it may depend on more than its arguments (a counter, the time, a file) "
    "or the machine failed once (--check again looks for that)"
)
_UNSEEN_LOSS = (
    "not reproduced: the model is finite, and the loss was made where no operation is seen: by compiled code, or "
    "under a dispatch mode of the script's. Compute it outside of that to have its operation named"
)
_LONG_LOSS = (
    f"not reproduced: the model is finite, and what follows has more than {MOST_IN_A_ROW:,} operations in a row: the first are finite, "
    "the others were not written down. Put the loop into an nn.Module to have its operation named"
)
_UNSEEN_CALL = (
    "not reproduced: {} was called where no call is seen, as inside a compiled function. Compile the module itself, torch.compile(module)"
)
_LATER = "or look at what changes them after backward (clipping, unscaling)"


def _outside(evidence: Evidence, bad: Sequence[BadLeaf]) -> Culprit | None:
    """The culprit in what ran outside the models' calls, up to ``backward``."""
    tape, rows = evidence.outside.tape, evidence.outside.ledger
    bad_buffers = [t for module, slot, t in named_state(evidence.names) if f"{module}.{slot}".lstrip(".") in evidence.saved.bad]
    roots = evidence.roots or (pending_states(tape, rows) if evidence.outside.is_cut else [])
    outside = find_culprit(tape, roots, rows, evidence.outside.states(bad_buffers))
    if outside is not None or any(evidence.journal.event(index).phase is Phase.FORWARD for index, _ in bad):
        return outside
    gradients = [g for m in evidence.names for p in m._parameters.values() if p is not None and (g := gradient_of(p)) is not None]
    return find_culprit(tape, [*evidence.backward, *evidence.outside.states(gradients)], rows)


def replay_buffer(evidence: Evidence, name: str, call: Call) -> Replay:
    """The culprit of a bad buffer: code outside the model, or a call. None if nothing made it bad, or if it was written so on purpose."""
    outside = evidence.outside
    states = outside.states([t for module, slot, t in named_state(evidence.names) if f"{module}.{slot}".lstrip(".") == name])
    culprit = find_culprit(outside.tape, (), outside.ledger, states)
    return evidence.replay(call, backward=False, saved={name}) if culprit is None else Replay(culprit, REPRODUCED)


def is_fault(evidence: Evidence, name: str, call: Call | None, numbers: Numbers) -> bool:
    """Whether a buffer has gone bad by a fault: an infinity without a nan may have been written on purpose, as masks are."""
    if numbers.num_nan:
        return True
    if call is not None:
        with optimizer_probe.paused():
            replay = replay_buffer(evidence, name, call)
        if replay.culprit is not None or replay.status not in (NOT_WANTED, COMMUNICATES):
            return replay.culprit is not None
    return bool(numbers.num_pos_inf and numbers.abs_max)


def _suspects(evidence: Evidence, bad: Sequence[BadLeaf]) -> list[int]:
    """Numbers of calls, the most suspected first; repeated."""
    events = [evidence.journal.event(index) for index, _ in bad]
    forward = [e.call for e in events if e.phase is Phase.FORWARD]
    return [*forward, *(e.call for e in events if e.phase is not Phase.FORWARD), *(c.index for c in evidence.calls)]


def _handed_on(culprit: Culprit) -> bool:
    """Whether a culprit of the loss was given its bad values: by the model, which is then asked first, or by the data."""
    return culprit.reason == Reason.BAD_INPUT or (culprit.reason == Reason.UNKNOWN and culprit.phase is not Phase.BACKWARD)


def came_from_loss(culprit: Culprit) -> bool:
    """Whether a replay only showed that the gradients handed to it were bad."""
    return culprit.reason == Reason.BAD_INPUT and culprit.phase is Phase.BACKWARD


def _from_model(culprit: Culprit) -> bool:
    return _handed_on(culprit) and _holds_bad(culprit, MODEL_OUTPUT)


def _from_gradient(culprit: Culprit) -> bool:
    """Whether a culprit between calls was given its bad values by ``torch.autograd.grad``."""
    return _handed_on(culprit) and _holds_bad(culprit, f"({GRADIENT}")


def _holds_bad(culprit: Culprit, name: str) -> bool:
    """Whether an operand of such a name was bad."""
    return any(name in o.name and o.numbers is not None and o.numbers.num_nonfinite > 0 for o in culprit.inputs)


def _first(evidence: Evidence, bad: Sequence[BadLeaf], reached: Sequence[BadLeaf], culprit: Culprit | None) -> BadLeaf:
    """The first bad leaf of the culprit's phase; -inf alone, as scores are masked with, only in the culprit's module or around it."""
    events = evidence.journal.events
    phase = Phase.FORWARD if culprit is None else culprit.phase
    found = [leaf for leaf in bad if events[leaf[0]].phase is phase] or list(reached)

    def telling(leaf: BadLeaf) -> bool:
        numbers = evidence.journal.numbers(*leaf)
        if numbers is None or numbers.num_nan or numbers.num_pos_inf:
            return True
        name = events[leaf[0]].entry.name
        return culprit is not None and (not name or f"{culprit.module}.".startswith(f"{name}."))

    return next((leaf for leaf in found if telling(leaf)), found[0])
