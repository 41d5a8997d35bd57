"""Calls without gradients whose results were bad: a note each, and the origin of what later reaches training.

An evaluation, a teacher, a frozen encoder and an agent that acts call models without gradients. A bad result of theirs harms nobody until
it reaches a loss. Where it does, the tape of what runs outside the models shows that, as long as the result stays within torch. A result
that went through NumPy or Python's lists is recognized by the bad data that training then gets, which nothing else explains.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from numscope.detect.diagnosis import diagnose_call, replayed
from numscope.detect.evidence import REPLAY_BYTES, BadLeaf, Evidence
from numscope.probe import optimizer as optimizer_probe
from numscope.records.finding import Finding, Kind, Reason
from numscope.records.places import place
from numscope.records.site import Phase
from numscope.replay.call import NO_FORK
from numscope.replay.capture import Call

NEAR_STEPS = 64  # so many optimizer steps later, bad data still comes from such a call: an agent learns for long from what it has collected
_MAX_KEPT = 64
_UNUSED = "the call had no gradients, and its result has not reached training"


@dataclass(eq=False, slots=True)
class _Kept:
    """One bad result.

    Args:
        note: names the operation, where it is known.
        call: to be done again if its result reaches training, where it could not be done again in a process of its own.
        num_steps: optimizers' steps until then.
        has_reached: training has met it.
    """

    note: Finding
    evidence: Evidence
    call: Call | None
    num_steps: int
    has_reached: bool = False


_kept: deque[_Kept] = deque(maxlen=_MAX_KEPT)  # of all models of this process
_num_steps = 0


def stepped() -> None:
    """An optimizer is about to step."""
    global _num_steps
    _num_steps += 1


def forget(evidence: Evidence) -> None:
    """A model's watch has ended."""
    for kept in [kept for kept in _kept if kept.evidence is evidence]:
        _kept.remove(kept)


class Evaluations:
    """The bad results of one model's calls without gradients.

    Attributes:
        last: the note of the model's last call, if that was such a call.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._times: Counter[str] = Counter()  # at how many steps a slot was bad
        self._notes: dict[str, _Kept] = {}  # the last of each slot
        self.last: Finding | None = None

    @property
    def notes(self) -> list[Finding]:
        """The last note of each slot, without those that reached training or are written on purpose."""
        return [kept.note for kept in self._notes.values() if not (kept.has_reached or _on_purpose(kept.note))]

    def note(self, call: Call, bad: Sequence[BadLeaf], leaves: Sequence[BadLeaf]) -> Finding | None:
        """Keep what a call returned, and mark it on the tape. Returns: the note, unless its slot has one.

        Args:
            bad: what the journal has of the call.
            leaves: those of its result.

        *Cost:* a replay of the call, at the 1st, 2nd, 4th, 8th … step at which that result is bad.
        """
        evidence, slot = self._evidence, leaves[0][1]
        known = self._notes.get(slot)
        kept = known if known is not None and known.num_steps == _num_steps else self._keep(call, bad, leaves, known)
        self._notes[slot], self.last = kept, kept.note
        if kept.note.culprit is not None and not _on_purpose(kept.note):
            slots = {slot for _, slot in leaves}
            evidence.outside.came_bad([t for slot, ref in call.outputs if slot in slots and (t := ref()) is not None], kept.note.culprit)
        return kept.note if known is None else None

    def _keep(self, call: Call, bad: Sequence[BadLeaf], leaves: Sequence[BadLeaf], known: _Kept | None) -> _Kept:
        evidence, slot = self._evidence, leaves[0][1]
        self._times[slot] += 1
        if known is None or self._times[slot].bit_count() == 1:
            with optimizer_probe.paused():
                note = diagnose_call(evidence, call, bad, leaves)
            unused = "" if _on_purpose(note) else _UNUSED
            if note.culprit is None and (callers := call.caller.resolve()):
                unused += f"; called at {place(*callers[-1][:2])} `{callers[-1][3]}`"
            note = replace(note, contained=True, frames=(), note=unused)
        else:
            note = replace(known.note, step=evidence.step, batch=call.index)
        if known is not None and known in _kept:
            _kept.remove(known)
        for older in _kept:
            older.call = None  # the arguments of one call are kept at most
        again = call if note.replay == NO_FORK and call.nbytes <= REPLAY_BYTES else None
        _kept.append(_Kept(note, evidence, again, _num_steps))
        return _kept[-1]


def traced_back(finding: Finding) -> Finding:
    """A finding of training that bad data caused, with the call without gradients that made these data in place of the one that met them.

    *Cost:* a replay of the call, where its note does not name its operation.
    """
    culprit = finding.culprit
    exact = next((kept for kept in _kept if culprit is not None and kept.note.culprit is culprit), None)
    kept = exact or (_nearest() if _is_given(finding) else None)
    if kept is None:
        return finding
    kept.has_reached = True
    met = f" at {place(culprit.file, culprit.line)}" if exact is None and culprit is not None and culprit.line else ""
    note = f"it was made by a call without gradients, batch {kept.note.batch}, and reached training in batch {finding.batch}{met}"
    return replace(kept.note, contained=False, step=finding.step, note="; ".join(filter(None, (note, finding.note))))


def _is_given(finding: Finding) -> bool:
    """Whether nothing that training did itself explains a finding."""
    culprit = finding.culprit
    if culprit is None:
        return finding.phase in (Phase.FORWARD, Phase.LOSS)
    return culprit.reason is Reason.BAD_INPUT and culprit.phase in (Phase.FORWARD, Phase.LOSS, Phase.SCRIPT)


def _on_purpose(note: Finding) -> bool:
    """Whether a result holds an infinity that no operation came to by itself: a bound, a score that is masked, the best so far."""
    return note.kind is Kind.INF and note.culprit is not None and note.culprit.reason is Reason.UNKNOWN


def _nearest() -> _Kept | None:
    for kept in reversed(_kept):
        if _num_steps - kept.num_steps > NEAR_STEPS:
            break
        if kept.call is not None:
            found, kept.call = replayed(kept.evidence, kept.call), None
            kept.note = replace(kept.note, culprit=found.culprit, replay=found.status)
        made = kept.note.culprit
        if made is not None and made.reason not in (Reason.BAD_INPUT, Reason.BAD_PARAMETER) and not _on_purpose(kept.note):
            return kept
    return None
