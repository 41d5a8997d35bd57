from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numscope.alerts.board import PAST, RECENT, TICK, Board, SiteKind, SitePlace

OUTPUT = SitePlace("a", "Linear", "output", "float32", SiteKind.OUTPUT)
WEIGHT = SitePlace("a", "Linear", "weight", "float32", SiteKind.MATRIX)

magnitudes = st.floats(1e-30, 1e30) | st.just(math.nan) | st.just(0.0)


def fill(board: Board, values: list[list[float]], places: list[SitePlace] | None = None) -> None:
    """Steps × sites of largest magnitudes."""
    at = board.indexes(places or [WEIGHT._replace(layer=str(i)) for i in range(len(values[0]))])
    for number, row in enumerate(values):
        board.add(number, at, np.array(row))


@given(st.lists(st.tuples(magnitudes, magnitudes), min_size=1, max_size=60))
def test_levels_are_medians_of_eight_steps_and_nan_and_zero_keep_the_last(values: list[tuple[float, float]]) -> None:
    board = Board()
    fill(board, [list(row) for row in values])
    kept = np.full((len(values), 2), math.nan)
    for number, row in enumerate(values):
        for site, value in enumerate(row):
            before = kept[number - 1, site] if number else math.nan
            kept[number, site] = before if math.isnan(value) or value == 0 else math.log2(value)
    np.testing.assert_allclose(board.level, kept[-1])
    last = len(values) // TICK * TICK
    if last >= RECENT and not np.isnan(kept[last - RECENT : last]).any():
        np.testing.assert_allclose(board.smooth(), np.median(kept[last - RECENT : last], 0))


@given(st.floats(0.1, 4), st.floats(-20, 20), st.integers(100, 400))
def test_exponent_of_a_power_of_the_step_is_that_power(power: float, level: float, steps: int) -> None:
    board = Board()
    fill(board, [[2.0**level * (number + 1) ** power] for number in range(steps)])
    window = board.window(64)
    assert window == 64
    bits, exponent = board.growth(window)
    assert exponent[0] == pytest.approx(power, rel=0.02)
    assert bits[0] > 0


def test_what_swings_does_not_grow_above_its_record() -> None:
    board = Board()
    fill(board, [[2.0 ** math.sin(number / 20)] for number in range(400)])
    bits, _ = board.growth(64)
    swung, _ = board.growth(64, record=False)
    assert bits[0] <= 0.01
    assert abs(swung[0]) > 0.1


def test_a_site_that_comes_later_has_an_age_of_its_own_and_no_growth_before_its_window() -> None:
    board = Board()
    fill(board, [[1.0]] * 100)
    later = board.indexes([WEIGHT._replace(layer="0"), WEIGHT._replace(layer="new")])
    for number in range(40):
        board.add(100 + number, later, np.array([1.0, 2.0**number]))
    _, exponent = board.growth(64)
    assert board.ages.tolist() == [140, 40]
    assert np.isfinite(exponent[0]) and np.isnan(exponent[1])


def test_past_is_bounded() -> None:
    board = Board()
    fill(board, [[float(number + 1)] for number in range(10 * PAST * TICK)])
    assert board.window(10**6) >= 0
    assert np.isfinite(board.smooth((PAST - 1) * TICK)).all()
    assert np.isnan(board.smooth(PAST * TICK)).all()
    assert len(board.losses) <= 128


def test_matrices_are_paired_with_their_gradients_in_order() -> None:
    board = Board()
    places = [
        WEIGHT,
        SitePlace("a", "Linear", "weight[bias]", "float32", SiteKind.VECTOR),
        SitePlace("a", "Linear", "wgrad", "float32", SiteKind.WEIGHT_GRADIENT),
        SitePlace("a", "Linear", "wgrad[bias]", "float32", SiteKind.WEIGHT_GRADIENT),
        OUTPUT,
    ]
    fill(board, [[1.0] * 5], places)
    assert board.matrices_with_gradients().tolist() == [[2, 0]]
