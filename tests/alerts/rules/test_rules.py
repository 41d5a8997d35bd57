"""Rules on boards that are filled by formula: what they must see, and what they must not."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numscope.alerts.board import Board, SiteKind, SitePlace
from numscope.alerts.engine import Scales
from numscope.alerts.rules.gradients import gradients_through_depth, gradients_underflow
from numscope.alerts.rules.growth import divergence_ahead
from numscope.alerts.rules.loss import loss_runs_away, loss_spike
from numscope.alerts.rules.overflow import overflow_ahead
from numscope.config.rule_table import RULES
from numscope.detect.skips import Skips
from numscope.probe import loop_calls
from numscope.records.alert import Alert


def alerts(rule: Any, name: str, steps: int, places: list[SitePlace], level: Callable[[int, int], float], loss: Any = None) -> list[Alert]:
    """What a rule says over steps, from the level of each site in each step."""
    board, found = Board(), []
    at = board.indexes(places)
    for number in range(steps):
        amax = np.array([2.0 ** level(number, site) for site in range(len(places))])  # -inf: zero
        board.add(number, at, amax, math.nan if loss is None else loss(number))
        if loss is not None or board.ticks:
            found += rule(board, dict(RULES[name].settings))
    return found


def layers(count: int, kind: SiteKind, tensor: str, dtype: str = "float32") -> list[SitePlace]:
    return [SitePlace(f"layers.{i}", "Linear", tensor, dtype, kind) for i in range(count)]


# ---- overflow


@settings(max_examples=30)
@given(st.floats(0.02, 0.2), st.floats(0, 0.1), st.integers(0, 2**31))
def test_overflow_is_foretold_and_its_step_is_about_right(slope: float, noise: float, seed: int) -> None:
    draw = random.Random(seed)
    end = int((16 - 4) / slope)  # steps from 2^4 to float16's end
    found = alerts(
        overflow_ahead,
        "overflow ahead",
        end,
        layers(1, SiteKind.OUTPUT, "output", "float16"),
        lambda step, site: min(4 + slope * step + draw.gauss(0, noise), 15.999),
    )
    assert found
    ahead = end - found[0].step
    assert ahead >= 5
    assert found[0].layer == "layers.0"
    assert 0.4 * ahead - 5 <= found[0].evidence["steps_left"] <= 2.5 * ahead + 5


@pytest.mark.parametrize(
    "level",
    [
        pytest.param(lambda step, site: 15.99, id="stands at the end, as a mask's value"),
        pytest.param(lambda step, site: 13 + math.sin(step), id="swings"),
        pytest.param(lambda step, site: min(10.5, step / 10), id="has grown and stands still"),
        pytest.param(lambda step, site: 13.0 - step / 100, id="sinks"),
        pytest.param(lambda step, site: 4 + step / 100, id="grows far from the end"),
        pytest.param(lambda step, site: 10 + 5 * (step % 50 == 0), id="jumps now and then"),
    ],
)
def test_no_overflow_is_foretold(level: Callable[[int, int], float]) -> None:
    assert alerts(overflow_ahead, "overflow ahead", 300, layers(1, SiteKind.OUTPUT, "output", "float16"), level) == []


def test_gradients_and_wide_dtypes_do_not_overflow() -> None:
    scaled = layers(1, SiteKind.GRADIENT, "gradient", "float16") + layers(1, SiteKind.OUTPUT, "output", "float32")
    assert alerts(overflow_ahead, "overflow ahead", 250, scaled, lambda step, site: min(4 + step / 20, 15.9)) == []


# ---- divergence


def growing(power: Callable[[int], float]) -> Callable[[int, int], float]:
    """Levels of weights and outputs, each layer with some noise of its own."""
    draw = random.Random(0)
    offset = [draw.uniform(-1, 1) for _ in range(64)]
    return lambda step, site: offset[site] + power(step) * math.log2(step + 1) + draw.gauss(0, 0.02)


MODEL = layers(16, SiteKind.MATRIX, "weight") + layers(16, SiteKind.OUTPUT, "output")


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_weights_that_grow_as_steps_of_one_size_make_them_are_healthy(power: float) -> None:
    assert alerts(divergence_ahead, "divergence ahead", 1000, MODEL, growing(lambda step: power)) == []


def test_weights_that_grow_ever_faster_are_told_of_with_the_layer_that_leads() -> None:
    def level(step: int, site: int) -> float:
        lead = 1.5 if site == 16 + 5 else 1.0
        return 0.5 * math.log2(step + 1) if step < 250 else 4 + lead * (step - 250) / 60

    found = alerts(divergence_ahead, "divergence ahead", 360, MODEL, level)
    assert found and found[0].step < 340
    assert {alert.layer for alert in found} == {"layers.5"}
    assert found[0].value is not None and found[0].limit is not None and found[0].value >= found[0].limit


def faster(step: int, site: int) -> float:
    return 0.5 * math.log2(step + 1) if step < 250 else 4 + (step - 250) / 60


@pytest.mark.parametrize(("falls", "told"), [(0.0, True), (0.002, True), (0.02, False)])
def test_weights_whose_growth_lowers_the_loss_are_healthy(falls: float, told: bool) -> None:
    """By how much the loss falls in a step, as a share of itself: to less than half in 64 steps, or not."""
    found = alerts(divergence_ahead, "divergence ahead", 330, MODEL, faster, lambda step: math.exp(-falls * step))
    assert bool(found) == told


@pytest.mark.parametrize(
    ("rate", "grows", "text", "advice"),
    [
        (lambda step: 0.001 * 1.01**step, 0.0, "The learning rate rose from", "Let the learning rate rise no further than"),
        (lambda step: 0.001, 0.0, "The learning rate is 0.001.", "Lower the learning rate from 0.001"),
        (lambda step: 0.001, 0.02, "The largest element of input[0] went from", "Look at the data of these steps"),
    ],
    ids=["rate rises", "rate stays", "inputs grow"],
)
def test_growth_is_told_with_what_was_measured_beside_it(rate: Callable[[int], float], grows: float, text: str, advice: str) -> None:
    board, found = Board(), list[Alert]()
    at = board.indexes([*MODEL, SitePlace("", "Net", "input[0]", "float32", SiteKind.DATA)])
    for number in range(360):
        board.add(number, at, np.array([2.0 ** (faster(number, site) if site < 32 else grows * number) for site in range(33)]))
        if board.ticks:
            board.rates.append(rate(number))
            found += divergence_ahead(board, dict(RULES["divergence ahead"].settings))
    assert text in found[0].text and found[0].advice.startswith(advice)
    assert found[0].evidence["learning_rate"] == pytest.approx([rate(found[0].step - 128), rate(found[0].step)])


def test_layers_that_are_unfrozen_begin_anew() -> None:
    start = [random.Random(site).uniform(-6, -4) for site in range(32)]

    def level(step: int, site: int) -> float:
        return start[site] if step < 300 else math.log2(2 ** start[site] + 0.001 * (step - 299))

    assert alerts(divergence_ahead, "divergence ahead", 700, MODEL, level) == []


@pytest.mark.parametrize("clips", [False, True])
def test_frozen_matrices_hide_no_divergence(clips: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_calls, "_clips", clips)
    places = layers(48, SiteKind.MATRIX, "weight") + [
        place._replace(layer=f"out.{i}") for i, place in enumerate(layers(16, SiteKind.OUTPUT, "output"))
    ]

    def level(step: int, site: int) -> float:
        if site < 32:
            return 0.0  # frozen
        return 0.5 * math.log2(step + 1) if step < 250 else 4 + (step - 250) / 60

    (first, *_) = alerts(divergence_ahead, "divergence ahead", 360, places, level)
    assert ("clip gradients" in first.advice) != clips


@pytest.mark.parametrize("zeros", [4, 8, 16])
def test_matrices_that_begin_at_zero_grow_up_to_the_others(zeros: int) -> None:
    """Residual branches that begin at zero under a long warm-up: first like steps^2, faster when the layers behind them wake."""

    def level(step: int, site: int) -> float:
        if site >= 16:
            return 0.5 * math.log2(step + 1)
        rising = -12 + 3 * math.log2(step / 60 + 1)
        return -2.5 + step / 2000 if site >= zeros else min(rising, top) if step else -math.inf

    places = [place._replace(usual=-2.5) for place in MODEL[:16]] + MODEL[16:]
    for top in (-2.8, 0.0):
        assert (zeros == 16 and top == 0) or alerts(divergence_ahead, "divergence ahead", 600, places, level) == []


def test_one_matrix_that_grows_is_not_the_model() -> None:
    assert alerts(divergence_ahead, "divergence ahead", 400, MODEL, lambda step, site: step / 40 if site == 3 else 0.0) == []


# ---- loss


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.5, 10), st.floats(0.001, 0.2))
def test_noise_is_no_spike(seed: int, level: float, noise: float) -> None:
    draw = random.Random(seed)
    assert alerts(loss_spike, "loss spike", 400, [], lambda step, site: 0.0, lambda step: level * (1 + draw.gauss(0, noise))) == []


def test_spike_is_told_though_nan_came_before_and_names_what_jumped() -> None:
    places = [*layers(3, SiteKind.WEIGHT_GRADIENT, "wgrad"), SitePlace("", "Model", "activation", "float32", SiteKind.DATA)]
    places.append(SitePlace("layers.1", "Linear", "bias gradient", "float32", SiteKind.WEIGHT_GRADIENT))
    draw = random.Random(1)

    def loss(step: int) -> float:
        if step % 10 == 3:
            return math.nan
        return (6.0 if step in (200, 201) else 2.0) + draw.gauss(0, 0.05)

    def level(step: int, site: int) -> float:
        return 5.0 if step in (200, 201) and site in (1, 3, 4) else 0.0

    found = alerts(loss_spike, "loss spike", 260, places, level, loss)
    assert [alert.step for alert in found] == [200, 201, 202]
    assert found[2].text == "It came down by itself after 2 steps, highest 2.99 times the median."
    assert found[2].value is not None and found[2].limit is not None and found[2].value <= found[2].limit
    assert found[0].evidence["gradients"] == ["layers.1"], "a layer once"
    assert found[0].evidence["odd_inputs"] == ["activation"]
    assert "batch is odd" in found[0].text


@pytest.mark.parametrize(("back", "said"), [(206, ["It came down by itself after 6 steps, highest 2.99 times the median."]), (230, [])])
def test_a_spike_that_stays_for_long_has_not_come_down_by_itself(back: int, said: list[str]) -> None:
    found = alerts(
        loss_spike, "loss spike", 260, [], lambda step, site: 0.0, lambda step: 6.0 if 200 <= step < back else 2.0 + step % 2 / 100
    )
    assert [alert.text for alert in found if "over" in alert.evidence] == said


@pytest.mark.parametrize(("height", "told"), [(6.0, []), (30.0, [(40, True)])])
def test_a_rise_before_the_window_is_full_is_told_where_it_leaves_all_that_was(height: float, told: list[tuple[int, bool]]) -> None:
    draw = random.Random(3)
    rises = alerts(
        loss_spike, "loss spike", 60, [], lambda step, site: 0.0, lambda step: (height if step == 40 else 2.0) + draw.gauss(0, 0.01)
    )
    assert [(alert.step, alert.asks) for alert in rises] == told


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("period", "most"), [(2, 0), (3, 0), (5, 0), (40, 1), (90, 2)])
def test_losses_of_tasks_in_turn_and_of_renewed_targets_are_no_spikes(period: int, most: int, seed: int) -> None:
    """Three tasks whose losses are 1, 2 and 370; a target that is renewed every 40 or 90 steps."""
    draw = random.Random(seed)

    def loss(step: int) -> float:
        if period < 10:
            return 370 + draw.gauss(0, 35) if step % period == period - 1 else 1 + step % period + draw.gauss(0, 0.2)
        return 0.05 + 0.8 * 0.6 ** (step % period) * (1 + draw.gauss(0, 0.15))

    found = alerts(loss_spike, "loss spike", 450, [], lambda step, site: 0.0, loss)
    assert len({alert.step // period for alert in found}) <= most


def test_a_loss_near_zero_has_no_spikes_of_a_thousandth() -> None:
    draw = random.Random(2)
    assert (
        alerts(
            loss_spike,
            "loss spike",
            600,
            [],
            lambda step, site: 0.0,
            lambda step: 2.3 if step < 20 else abs(draw.gauss(0, 1e-3)) + 0.02 * (step % 97 == 0),
        )
        == []
    )


@pytest.mark.parametrize(("height", "told"), [(0.2, False), (1.5, True)])
def test_a_loss_that_has_all_but_gone_may_come_back_to_where_it_began(height: float, told: bool) -> None:
    """Rare rewards: the error is 1e-5 for long, and then of the reward's size."""
    found = alerts(
        loss_spike, "loss spike", 500, [], lambda step, site: 0.0, lambda step: height if 400 <= step < 403 else 1e-5 + 0.98**step
    )
    assert [(alert.step, alert.asks) for alert in found] == ([(401, True), (402, True)] if told else [])


@pytest.mark.parametrize(("spread", "asks"), [(8.0, True), (1.0, False)])
def test_a_spike_of_losses_that_deviate_by_more_than_half_of_their_median_is_a_question(spread: float, asks: bool) -> None:
    losses = 1 + spread * np.random.default_rng(0).uniform(size=210)
    losses[200:203] += 200
    found = alerts(loss_spike, "loss spike", 210, [], lambda step, site: 0.0, lambda step: losses[step])
    assert (found[0].step, found[0].asks) == (200, asks)
    assert any("over" in alert.evidence for alert in found) is not asks


def test_a_loss_that_rises_now_and_then_and_comes_back_has_no_spikes() -> None:
    draw = random.Random(3)

    def loss(step: int) -> float:
        easy = 0.01 + abs(draw.gauss(0, 0.01))
        return 2.3 if step < 10 else draw.uniform(5, 9) if draw.random() < 0.05 else easy  # batch size 1: some samples are hard

    found = alerts(loss_spike, "loss spike", 1000, [], lambda step, site: 0.0, loss)
    assert len(found) <= 2
    jump = alerts(loss_spike, "loss spike", 800, [], lambda step, site: 0.0, lambda step: 30.0 if step >= 700 else loss(step))
    assert any(alert.step == 700 for alert in jump), "what rises further than usual is news"


def test_what_the_window_has_seen_before_is_no_spike() -> None:
    draw = random.Random(4)

    def loss(step: int) -> float:
        return draw.gauss(1, 0.02) + (0 if step % 40 else 3.0 if step < 600 else 2.5)  # the first batch of each epoch

    assert [alert.step for alert in alerts(loss_spike, "loss spike", 1000, [], lambda step, site: 0.0, loss) if alert.step > 200] == []


@pytest.mark.parametrize("seed", range(4))
def test_a_loss_that_slowly_loses_all_it_had_learned_is_asked_about_once(seed: int) -> None:
    draw = random.Random(seed)
    losses = [2.0 * 0.98**step if step < 100 else 0.27 * 1.015 ** (step - 100) for step in range(600)]
    found = alerts(loss_runs_away, "loss runs away", 600, [], lambda step, site: 0.0, lambda step: losses[step] * (1 + draw.gauss(0, 0.1)))
    assert found and all(alert.asks for alert in found)  # the desk lets one pass
    assert losses[found[0].step - 24] < 3.0 < losses[found[0].step + 24]  # 1.5 times the first
    assert "it began at 1." in found[0].text and "switch it off" in found[0].advice


def test_a_loss_that_falls_without_bound_is_asked_about() -> None:
    found = alerts(loss_runs_away, "loss runs away", 600, [], lambda step, site: 0.0, lambda step: 2.0 - 0.1 * 1.02**step)
    assert found and all(alert.asks for alert in found)
    assert found[0].step < 260 and "faster and faster" in found[0].text and "sign" in found[0].advice


@pytest.mark.parametrize(
    "loss",
    [
        lambda step: 2.0 + 1.5 * math.sin(step / 10),  # a period
        lambda step: 2.0 * 0.99**step if step % 150 else 40.0,  # spikes
        lambda step: 0.5 + min(step, 200) / 500,  # to less than 1.5 times
        lambda step: 0.01 if step < 8 else 1.0 + 0.001 * (step % 100),  # a small beginning, then level
        lambda step: -1.0 - step,  # it falls as fast as before
        lambda step: 2.0 - 3 * math.log(1 + step),  # a likelihood
        lambda step: -1.0 - 1e-6 * 1.02 ** min(step, 400),  # all but level
        lambda step: math.nan if step % 2 else float(step),
    ],
)
def test_losses_that_swing_or_stay_do_not_rise(loss: Callable[[int], float]) -> None:
    assert alerts(loss_runs_away, "loss runs away", 600, [], lambda step, site: 0.0, loss) == []


def test_losses_of_zero_have_no_band() -> None:
    found = alerts(loss_spike, "loss spike", 400, [], lambda step, site: 0.0, lambda step: 0.3 * (step > 200 and step % 50 == 0))
    found += alerts(loss_spike, "loss spike", 400, [], lambda step, site: 0.0, lambda step: 0.3 * (step > 200))
    assert found == [], "a hinge that is met, until a sample comes that does not meet it"


# ---- gradients


def depth(count: int = 12) -> list[SitePlace]:
    return layers(count, SiteKind.MATRIX, "weight") + layers(count, SiteKind.WEIGHT_GRADIENT, "wgrad")


def test_gradients_that_sink_through_depth() -> None:
    found = alerts(gradients_through_depth, "gradients vanish", 80, depth(), lambda step, site: 0.0 if site < 12 else -3.0 * (23 - site))
    assert found and found[0].layer == "layers.0" and found[0].tensor == "wgrad"
    healthy = alerts(gradients_through_depth, "gradients vanish", 80, depth(), lambda step, site: 0.0 if site < 12 else -0.5 * (23 - site))
    assert healthy == []


@pytest.mark.parametrize(
    ("dtype", "level", "named"),
    [
        ("float16", lambda step, site: -20.0 - site, "layers.3"),
        ("float16", lambda step, site: -10.0 if site < 2 else -24.0, ""),  # half of them
        ("float16", lambda step, site: -20.0 if step % 8 == 0 else -10.0, ""),
        ("float16", lambda step, site: -math.inf, ""),  # zero from the beginning: dead, not small
        ("bfloat16", lambda step, site: -20.0, ""),
        ("float32", lambda step, site: -40.0, ""),
    ],
)
def test_gradients_below_the_normal_numbers_of_float16(dtype: str, level: Callable[[int, int], float], named: str) -> None:
    found = alerts(gradients_underflow, "gradients underflow", 64, layers(4, SiteKind.GRADIENT, "gradient", dtype), level)
    assert {alert.layer for alert in found} == ({named} if named else set())
    assert all(alert.asks and alert.limit == 2.0**-14 and alert.value == 2.0**-23 for alert in found)


# ---- scale


def test_a_scale_that_falls_and_falls_is_told_and_a_search_for_it_is_not() -> None:
    scales, plan = Scales(skips := Skips()), dict(RULES["scale falls"].settings)
    scale = 65536.0
    for step in range(16):  # the search: no step yet
        assert [*scales.skipped(step, scale, plan)] == []
        scale /= 2
    skips.has_stepped = True
    told = []
    for step in range(16, 40, 3):
        told += scales.skipped(step, 1024.0 / 2 ** (step - 16), plan)
        skips.has_stepped = True
    assert told and told[0].step == 25 and told[0].evidence["skipped"] == 4
    assert [*Scales(Skips()).skipped(0, 0.5, plan)], "a scale below 1 is told of at once"


def test_a_scale_that_falls_from_far_above_the_usual_one_is_left_alone() -> None:
    scales, plan = Scales(skips := Skips()), dict(RULES["scale falls"].settings)
    skips.has_stepped = True
    assert [alert for step in range(8) for alert in scales.skipped(10 * step, 2.0 ** (28 - step), plan)] == []


def test_a_step_left_out_now_and_then_is_how_a_scaler_works() -> None:
    scales, plan = Scales(skips := Skips()), dict(RULES["scale falls"].settings)
    skips.has_stepped = True
    assert [alert for step in range(0, 20000, 2000) for alert in scales.skipped(step, 65536.0, plan)] == []


def test_a_loss_that_a_scaler_doubles_is_no_spike() -> None:
    draw = random.Random(4)
    board, found = Board(), []
    board.is_scaled = True
    for step in range(600):
        board.add(
            step, np.zeros(0, np.int64), np.zeros(0), (2.0 + draw.gauss(0, 0.05)) * 2.0 ** (10 + step // 100) * (20 if step == 570 else 1)
        )
        found += loss_spike(board, dict(RULES["loss spike"].settings))
    assert [alert.step for alert in found] == [570, 571]
