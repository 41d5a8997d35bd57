"""What the rows of weights add to a finding: that an update made a weight grow suddenly, or that nothing ever wrote a bad one."""

from __future__ import annotations

from dataclasses import replace

from numscope.detect.evidence import Evidence
from numscope.detect.parameters import parameters_of
from numscope.records.finding import Finding, Reason
from numscope.replay.reasons.case import number
from numscope.replay.reasons.explain import NEVER_WRITTEN
from numscope.summary.ledger import UNOBSERVED

FACTOR = 100  # by which no sound update multiplies a weight's largest magnitude
AT_LEAST = 10  # where it ends above this; biases may start from next to nothing


def with_weights(finding: Finding, evidence: Evidence) -> Finding:
    """The finding with a note on the weight that grew most, and with advice that fits what the weights' rows show.

    *Cost:* a walk over the parameters; no tensor is read. The rows must have been read.
    """
    weights, culprit = evidence.journal.weights, finding.culprit
    most, note, advice = 1.0, finding.note, ""
    for module, slot, parameter in parameters_of(evidence.names):
        name = f"{module}.{slot}" if module else slot
        handle = weights.handle(parameter)
        if handle == UNOBSERVED:
            continue
        row = weights.ledger.numbers(handle)
        before, now = weights.amax_before.get(handle), row.abs_max or 0.0
        if culprit is not None and culprit.reason == Reason.BAD_PARAMETER:
            if culprit.detail.startswith(f"{name} held ") and before is None and row.num_nonfinite:
                advice = NEVER_WRITTEN
        elif before and now >= max(AT_LEAST, FACTOR * before) and now / before > most:
            most = now / before
            rate = f" ({number(evidence.rates[id(parameter)])})" if id(parameter) in evidence.rates else ""
            grew = f"made the largest magnitude of {name} grow from {number(before)} to {number(now)}"
            note = f"the last update {grew}; is the learning rate{rate} too high?"
            if culprit is not None and culprit.reason in (Reason.OVERFLOW, Reason.EXP_OVERFLOW):
                advice = f"Lower the learning rate{rate} or clip gradients: the last update made {name} {number(most)} times as large."
    if culprit is not None and advice:
        culprit = replace(culprit, advice=advice)
    return replace(finding, culprit=culprit, note=note)
