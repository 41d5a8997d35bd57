"""Steps in columns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from numscope.page.axis import AFTER, NEAR, make_axis


def test_few_steps_have_a_column_each() -> None:
    axis = make_axis([0, 10, 20], 48)
    assert (axis.first, axis.last, axis.is_binned) == ((0, 10, 20), (0, 10, 20), False)
    assert axis.columns() == [0, 1, 2]


def test_steps_near_a_finding_and_the_end_have_their_own() -> None:
    axis = make_axis(range(10_000), 200, [5000])
    assert axis.is_binned
    assert len(axis) <= 210
    single = {first for first, last in zip(axis.first, axis.last, strict=True) if first == last}
    assert set(range(5000 - NEAR + 1, 5000 + AFTER + 1)) <= single
    assert set(range(10_000 - NEAR, 10_000)) <= single


@given(st.sets(st.integers(0, 5000), min_size=1, max_size=400), st.integers(1, 120), st.lists(st.integers(0, 5000), max_size=9))
def test_each_step_is_in_one_column(steps: set[int], num_columns: int, findings: list[int]) -> None:
    recorded = sorted(steps)
    axis = make_axis(recorded, num_columns, findings)
    columns = axis.columns()
    assert all(axis.first[c] <= step <= axis.last[c] for step, c in zip(recorded, columns, strict=True))
    assert sorted(set(columns)) == list(range(len(axis)))
    assert columns == sorted(columns)
