"""Each planted fault is found in its step, and its operation, line, reason, phase and module are named."""

from __future__ import annotations

import pytest

from numscope.records.finding import Reason
from tests.faults import in_backward, in_forward, in_loss, in_optimizer
from tests.faults.planting import BODY, Fault, found, watched

CATALOG: list[Fault] = [*in_forward.CATALOG, *in_backward.CATALOG, *in_loss.CATALOG, *in_optimizer.CATALOG]
IN_MODEL = [f for f in CATALOG if f.in_model]
CHECKPOINTED = IN_MODEL[::2]  # the others are under a sentinel
SENTINEL = [f for f in CATALOG if f not in CHECKPOINTED]


@pytest.mark.tried
@pytest.mark.parametrize("fault", CATALOG, ids=lambda f: f.name)
def test_fault_is_named_the_frames_end_at_it_and_a_warning_goes_on(fault: Fault) -> None:
    scope = watched(fault.plant)
    assert len(scope.findings) == 1, [f.headline() for f in scope.findings]
    assert scope.step_number == 3
    finding = scope.findings[0]
    fault.check(finding)
    last = finding.frames[-1]
    assert any(line.numbers is not None and line.numbers.num_nonfinite for line in last.lines)
    assert (last.module, last.cls, last.phase) == (finding.site.module, finding.site.cls, finding.site.phase)
    assert finding.site.slot in [line.slot for line in last.lines]
    assert finding.numbers is not None and finding.numbers.num_nonfinite


@pytest.mark.parametrize("fault", SENTINEL, ids=lambda f: f.name)
def test_sentinel_names_the_same_culprit(fault: Fault) -> None:
    fault.check(found(fault.plant, level="sentinel"))


@pytest.mark.parametrize("fault", CHECKPOINTED, ids=lambda f: f.name)
def test_checkpointed_model_names_the_same_culprit(fault: Fault) -> None:
    fault.check(found(fault.plant, checkpointed=True))


def test_every_reason_is_planted() -> None:
    # the last two in tests/probe/test_compile_orders.py and tests/scope/test_before_training.py
    elsewhere = {Reason.BAD_INPUT, Reason.BAD_PARAMETER, Reason.COMPILED, Reason.UNINITIALIZED}
    assert {f.reason for f in CATALOG} >= set(Reason) - elsewhere


def test_site_is_the_first_tensor_that_went_bad() -> None:
    finding = found(next(f for f in CATALOG if f.name == "log_of_relu").plant)
    assert (finding.site.module, finding.site.cls, finding.site.slot) == (BODY, "Body", "output")


def test_line_that_wrote_an_infinity_is_told_beside_the_line_that_made_a_nan_of_it() -> None:
    culprit = found(next(f for f in CATALOG if f.name == "product_of_masked_scores").plant).culprit
    assert culprit is not None
    assert culprit.detail.endswith(
        f"The infinity was written at {culprit.file}:{culprit.line - 1} `scores = (x @ x.t()).masked_fill(hidden, -INF)`."
    )
