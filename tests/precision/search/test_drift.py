"""How far one run's loss is from another's."""

from __future__ import annotations

import math

import pytest

from numscope.precision.search.trials import drift, noise


def test_drift_is_of_the_last_half_relative_to_the_reference() -> None:
    assert drift([9.0, 9.0, 2.2, 2.2], [4.0, 3.0, 2.0, 2.0]) == pytest.approx(0.1)
    assert drift([0.0, 0.0, 1.8, 1.8], [4.0, 3.0, 2.0, 2.0]) == pytest.approx(-0.1)


def test_of_an_odd_number_of_steps_the_middle_one_counts() -> None:
    assert drift([1.0, 3.0, 2.0], [1.0, 2.0, 2.0]) == pytest.approx(0.25)


def test_the_same_losses_do_not_drift() -> None:
    assert drift([3.0, 0.0], [3.0, 0.0]) == 0.0


def test_reference_of_zero_makes_any_other_loss_infinitely_far() -> None:
    assert drift([1.0], [0.0]) == math.inf


@pytest.mark.parametrize("losses", [[], [2.0], [2.0, math.nan], [math.inf, 2.0]])
def test_run_that_ended_early_or_is_not_finite_anywhere_is_infinitely_far(losses: list[float]) -> None:
    assert drift(losses, [2.0, 2.0]) == math.inf


def test_negative_losses_are_compared_by_their_magnitude() -> None:
    assert drift([-1.9], [-2.0]) == pytest.approx(0.05)


def test_steps_beyond_the_references_do_not_count() -> None:
    assert drift([2.0, 2.0, 99.0], [2.0, 2.0]) == 0.0


def test_noise_is_the_largest_drift_from_the_first_run() -> None:
    assert noise([[2.0]]) == 0.0
    assert noise([[2.0], [2.0]]) == 0.0
    assert noise([[2.0], [2.1], [1.8]]) == pytest.approx(0.1)
