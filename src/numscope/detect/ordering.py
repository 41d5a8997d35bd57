"""Which of several models' findings was first, and of several ranks'."""

from __future__ import annotations

from collections.abc import Sequence

from numscope.detect.diagnosis import came_from_loss, diagnose, received, stopped_backward
from numscope.detect.evidence import BadLeaf, Evidence
from numscope.distributed.agree import Ranks
from numscope.records.finding import Finding, parse_finding, plain
from numscope.records.site import Phase


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


def first_of_ranks(finding: Finding | None, evidence: Evidence, ranks: Ranks) -> tuple[Finding | None, bool]:
    """Of all ranks' findings the first one that is no victim's: it has a culprit, which no other rank handed over.

    Ranks are at the same place of the same step, so that what comes more calls before it, or in an earlier phase of a call, or in an
    earlier stage of a pipeline's forward, a later one of its backward, or in an earlier event of a phase, was first.

    Args:
        finding: this rank's.
        evidence: of the model that it is of.

    Returns: it, and whether this rank speaks for all.
    """
    if not ranks.are_here:
        return finding, True
    key = None
    if finding is not None:
        key = [finding.culprit is None, received(finding.culprit), *_since(finding, evidence, ranks), finding.rank]
    first = ranks.least("findings", key, None if finding is None else plain(finding))
    return None if first is None else parse_finding(first), evidence.rank == ranks.first


def _since(finding: Finding, evidence: Evidence, ranks: Ranks) -> tuple[int, int, int, int]:
    """The order of findings in time: how many calls ago, the phase, the stages that came before, and the call's events before it."""
    journal = evidence.journal
    there = [event for event in journal.events if event.call == finding.batch]
    site = finding.site
    seen = (
        place
        for place, event in enumerate(there)
        if (event.entry.name, event.phase) == (site.module, site.phase) and any(slot == site.slot for slot, _, _ in event.items)
    )
    stage = 0 if ranks.stage is None else ranks.stage.index
    before = -stage if finding.phase is Phase.BACKWARD else stage
    return finding.batch - journal.call, list(Phase).index(finding.phase), before, next(seen, len(there))
