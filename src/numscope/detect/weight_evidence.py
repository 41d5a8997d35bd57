"""Evidence of weights for a finding: which one the last update has made grow, and whether a bad one was ever written."""

from __future__ import annotations

from dataclasses import replace

from numscope.detect.evidence import Evidence
from numscope.detect.parameters import parameters_of
from numscope.records.finding import Finding, Reason
from numscope.replay.reasons.case import number
from numscope.replay.reasons.explain import NEVER_WRITTEN, SCRIPT_WRITES
from numscope.replay.stages import CHANGED
from numscope.summary.parameter_rows import NO_UPDATE

_FACTOR = 100  # by which no sound update multiplies a weight's largest magnitude
_AT_LEAST = 10  # where it ends above this; biases may start from next to nothing


def with_weights(finding: Finding, evidence: Evidence) -> Finding:
    """The finding with a note on the weight that grew most, and with advice that fits what the weights' rows show.

    *Cost:* a walk over the parameters; no tensor is read. The rows must have been read.
    """
    weights = evidence.journal.weights
    in_forward = {handle for e in evidence.journal.events for _, ledger, handle in e.items if ledger is weights.ledger}
    most = 1.0
    for module, slot, parameter in parameters_of(evidence.names):
        name, handle = f"{module}.{slot}" if module else slot, weights.handle(parameter)
        if handle < 0:
            continue
        row, before, culprit = weights.ledger.numbers(handle), weights.amax_before.get(handle), finding.culprit
        if culprit is not None and culprit.reason == Reason.BAD_PARAMETER and culprit.detail.startswith(f"{name} held "):
            if row.num_nonfinite and before is None:
                finding = replace(finding, culprit=replace(culprit, advice=NEVER_WRITTEN))
            elif row.num_nonfinite and before == NO_UPDATE:
                detail = culprit.detail.replace(" held ", " holds ").replace(" before this step.", ", which no update has written.")
                finding = replace(finding, culprit=replace(culprit, detail=detail, advice=SCRIPT_WRITES))
            elif not row.num_nonfinite and handle in in_forward:
                finding = replace(finding, culprit=None, replay=CHANGED)
        now = row.abs_max or 0.0
        if before and before > 0 and now >= max(_AT_LEAST, _FACTOR * before) and now / before > most:
            most = now / before
            known = evidence.rate(parameter)
            rate = "" if known is None else f" ({number(known)})"
            grew = f"made the largest magnitude of {name} grow from {number(before)} to {number(now)}"
            finding = replace(finding, note=f"the last update {grew}; is the learning rate{rate} too high?")
            if culprit is not None and culprit.reason in (Reason.OVERFLOW, Reason.EXP_OVERFLOW):
                advice = f"Lower the learning rate{rate} or clip gradients: the last update made {name} {number(most)} times as large."
                finding = replace(finding, culprit=replace(culprit, advice=advice))
    return finding
