"""Which steps a schedule has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from numscope.config.plan import Schedule

STEPS = st.integers(0, 60)
SPANS = st.lists(st.tuples(STEPS, STEPS | st.none()), min_size=1, max_size=4)


@given(st.integers(1, 12), SPANS, STEPS)
def test_schedule_is_every_freqth_step_within_inclusive_bounds(freq: int, pairs: list[tuple[int, int | None]], step: int) -> None:
    wanted: set[int] = set()
    for first, last in pairs:
        for candidate in range(first, (60 if last is None else last) + 1):
            if candidate % freq == 0:
                wanted.add(candidate)
    assert Schedule(freq, tuple(pairs)).active(step) == (step in wanted)


def test_end_step_is_included() -> None:
    assert [step for step in range(10) if Schedule(2, ((3, 8),)).active(step)] == [4, 6, 8]
