"""Weights that grew suddenly before a step went bad: then the update before it was too large, not the operation at fault."""

from __future__ import annotations

from dataclasses import dataclass, replace

from numscope.detect.evidence import Evidence
from numscope.detect.parameters import parameters_of
from numscope.records.finding import Finding, Reason
from numscope.replay.reasons.case import number

FACTOR = 100  # of the largest magnitude in one update; no sound update does that to a weight that ends
AT_LEAST = 10  # as large as this


@dataclass(frozen=True, slots=True)
class Growth:
    """The parameter that grew the most in its last update.

    Args:
        before, now: its largest magnitude.
        rate: its learning rate in that update, where it is known.
    """

    name: str
    before: float
    now: float
    rate: float | None


def growth(evidence: Evidence) -> Growth | None:
    """The parameter that grew the most, if it grew suspiciously. Call after the journal was read; no tensor is read."""
    weights = evidence.journal.weights
    found: list[Growth] = []
    for module, slot, parameter in parameters_of(evidence.names):
        handle = weights.handle(parameter)
        before = weights.amax_before.get(handle, 0.0)
        now = weights.ledger.numbers(handle).abs_max if before else None
        if now is not None and now >= max(AT_LEAST, FACTOR * before):
            found.append(Growth(f"{module}.{slot}" if module else slot, before, now, evidence.rates.get(id(parameter))))
    return max(found, key=lambda g: g.now / g.before, default=None)


def with_growth(finding: Finding, grown: Growth | None) -> Finding:
    """The finding, with a note on the growth and advice on the learning rate where growth explains the culprit's reason."""
    if grown is None:
        return finding
    before, now, factor = map(number, (grown.before, grown.now, grown.now / grown.before))
    rate = "" if grown.rate is None else f" ({number(grown.rate)})"
    note = f"the last update made the largest magnitude of {grown.name} grow from {before} to {now}; is the learning rate{rate} too high?"
    culprit = finding.culprit
    if culprit is not None and culprit.reason in (Reason.OVERFLOW, Reason.EXP_OVERFLOW):
        advice = f"Lower the learning rate{rate} or clip gradients: the last update made {grown.name} {factor} times as large."
        culprit = replace(culprit, advice=advice)
    return replace(finding, culprit=culprit, note=note)
