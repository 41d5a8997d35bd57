"""Comparison with a report of better days."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from numscope.cli.doctor import _report
from numscope.cli.values import Expected
from numscope.doctor.diagnose import baseline, diagnose
from numscope.doctor.diagnose.blame import Blame
from numscope.doctor.rendering import print_verdict, to_json
from tests.doctor.examples import examination


def test_report_compared_with_itself_is_no_slower() -> None:
    examined = examination(3)
    assert diagnose(examined, to_json(diagnose(examined), examined)).findings == ()


def test_all_ranks_slower_than_before_show_only_by_the_baseline() -> None:
    before, now = examination(3), examination(3, compute=dict.fromkeys(range(3), 2.0))
    assert diagnose(now).findings == ()
    verdict = diagnose(now, to_json(diagnose(before), before))
    assert [each.id for each in verdict.findings] == ["slower-than-baseline"] * 2
    assert {each.ranks for each in verdict.findings} == {(0, 1, 2)}
    assert any("2.0 × slower" in line for line in verdict.findings[0].evidence)


def test_a_third_slower_is_told_a_fifth_is_not() -> None:
    before = examination(2)
    then = to_json(diagnose(before), before)
    assert diagnose(examination(2, compute=dict.fromkeys(range(2), 1.2)), then).findings == ()
    assert diagnose(examination(2, compute=dict.fromkeys(range(2), 1.35)), then).findings != ()


def test_baseline_of_another_job_says_nothing_of_what_it_has_not() -> None:
    before = examination(2, phases=(0, 1))
    assert diagnose(examination(3, compute={1: 1.1}), to_json(diagnose(before), before)).findings == ()


def test_odd_values_in_a_baseline_are_left_out() -> None:
    examined = examination(2)
    names = baseline.measured(examined)
    odd = json.loads(json.dumps({"measured": {name: [None, "x", -1, 0][at % 4] for at, name in enumerate(names)}}))
    assert list(baseline.slower(examined, odd, Blame({}))) == []


_NAMES = sorted(baseline.measured(examination(2)))
_NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -(10**400), 5e-324, 1e308])
_ODD = st.recursive(
    st.none() | st.booleans() | st.text(max_size=4) | _NUMBERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=3),
    max_leaves=6,
)


@given(st.fixed_dictionaries({"measured": st.dictionaries(st.sampled_from(_NAMES), _NUMBERS | _ODD) | _ODD}) | _ODD)
def test_any_report_is_compared_with_or_refused(report: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "before.json"
        path.write_text(json.dumps(report))
        try:
            then = _report(str(path))
        except Expected:
            return
    examined = examination(2)
    verdict = diagnose(examined, then)
    print_verdict(verdict, examined, io.StringIO())
    assert json.dumps(to_json(verdict, examined), allow_nan=False)
