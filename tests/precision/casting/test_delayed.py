"""Delayed scaling against Transformer Engine's rule written once more, and many histories advancing together over ranks."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from numscope.precision import History, advance_all
from numscope.precision.casting.cast import cast
from numscope.precision.casting.scaling import PER_TENSOR, How
from numscope.records.errors import UsageError
from numscope.records.formats import FORMATS
from tests.distributed.ranks import RankPool


class Theirs:
    """Transformer Engine's amax history: row 0 is the current step; after a step all rows roll by one and row 0 is cleared."""

    def __init__(self, top: float, length: int, algo: str, margin: int) -> None:
        self.top, self.algo, self.margin = np.float32(top), algo, margin
        self.rows = [np.float32(0)] * length
        self.scale = np.float32(1)

    def step(self, amax: float) -> np.float32:
        self.rows[0] = np.float32(amax)
        with np.errstate(all="ignore"):
            counts = np.max(self.rows) if self.algo == "max" else self.rows[0]
            scale = (self.top / counts) / np.float32(2.0**self.margin)
        if counts > 0 and np.isfinite(counts):
            self.scale = np.finfo(np.float32).max if np.isinf(scale) else scale
        self.rows = self.rows[1:] + self.rows[:1]
        self.rows[0] = np.float32(0)
        return self.scale


def run(history: History, amaxes: list[float]) -> list[float]:
    scales = []
    for amax in amaxes:
        history.amax.fill_(amax)
        history.advance()
        scales.append(history.scale.item())
    return scales


AMAXES = st.lists(
    st.floats(2.0**-30, 2.0**30, width=32) | st.sampled_from([0.0, math.inf, math.nan, 2.0**-140]), min_size=1, max_size=25
)  # fmt: skip


@given(AMAXES, st.integers(1, 6), st.sampled_from(["max", "most_recent"]), st.integers(-3, 5), st.sampled_from(["e4m3fn", "e5m2"]))
def test_scales_are_transformer_engines(amaxes: list[float], length: int, algo: Any, margin: int, name: str) -> None:
    theirs = Theirs(FORMATS[name].max, length, algo, margin)
    assert run(History(name, length, algo, margin), amaxes) == [theirs.step(amax) for amax in amaxes]


def test_scale_is_one_until_the_first_step_is_over() -> None:
    history = History("e4m3")
    assert history.scale == 1 and history.num_steps == 0
    made = cast(torch.tensor([100.0, -7.0]), How(FORMATS["e4m3fn"], PER_TENSOR, delayed=True), scale=history.scale, amax=history.amax)
    assert made.scale_inv == 1
    assert history.scale == 1 and history.amax == 100
    history.advance()
    assert history.scale == np.float32(448) / np.float32(100)
    assert history.amax == 0 and history.num_steps == 1


def test_an_old_amax_counts_until_it_leaves_the_history() -> None:
    assert run(History("e4m3", 3), [8.0, 1.0, 2.0, 1.0, 1.0, 1.0]) == [56, 56, 56, 224, 224, 448]
    assert run(History("e4m3", 3, "most_recent"), [8.0, 1.0, 2.0]) == [56, 448, 224]


def test_zero_infinite_and_nan_amaxes_keep_the_scale() -> None:
    assert run(History("e4m3", 1), [4.0, 0.0, math.inf, math.nan, 2.0]) == [112, 112, 112, 112, 224]
    # an infinity counts as the largest as long as the history has it
    assert run(History("e4m3", 2), [4.0, math.inf, 2.0, 2.0]) == [112, 112, 112, 224]


def test_an_infinite_scale_is_float32s_maximum() -> None:
    assert run(History("e5m2", 1), [1e-42]) == [torch.finfo(torch.float32).max]


def test_margin_leaves_powers_of_two_free() -> None:
    assert run(History("e4m3", 1, margin=2), [1.0]) == [112]


def test_interval_makes_a_new_scale_every_so_many_steps_and_forgets_no_amax() -> None:
    assert run(History("e4m3", 8, interval=3), [1.0, 8.0, 2.0, 16.0, 1.0, 1.0]) == [1, 1, 56, 56, 56, 28]


def test_amaxes_are_the_latest_first() -> None:
    history = History("e4m3", 3)
    run(history, [1.0, 2.0])
    assert history.amaxes.tolist() == [2, 1, 0]
    run(history, [3.0, 4.0])
    assert history.amaxes.tolist() == [4, 3, 2]


@given(AMAXES, AMAXES, st.integers(1, 5), st.integers(1, 3))
def test_a_restored_or_copied_history_goes_on_as_the_first_would(
    before: list[float], after: list[float], length: int, interval: int
) -> None:
    first = History("e4m3", length, interval=interval)
    run(first, before)
    first.amax.fill_(0.25)
    restored = History("e4m3", length, interval=interval)
    restored.load_state_dict(first.state_dict())
    copies = [restored, copy.deepcopy(first), pickle.loads(pickle.dumps(first))]
    expected = run(first, after)
    for other in copies:
        assert other.amax == 0.25
        assert run(other, after) == expected


def test_a_shorter_history_takes_over_the_latest_amaxes_and_a_longer_one_all() -> None:
    first, short, long = History("e4m3", 4), History("e4m3", 2), History("e4m3", 6)
    run(first, [1.0, 2.0, 3.0, 4.0, 5.0])
    short.load_state_dict(first.state_dict())
    long.load_state_dict(first.state_dict())
    assert short.amaxes.tolist() == [5, 4]
    assert long.amaxes.tolist() == [5, 4, 3, 2, 0, 0]
    assert run(long, [0.5])[0] == np.float32(448) / np.float32(5)


def test_moving_to_a_device_keeps_everything() -> None:
    history = History("e4m3", 3)
    run(history, [2.0])
    assert history.to("cpu") is history and history.scale == 224
    assert history.to("meta").scale.device.type == "meta"


# ---- together


def histories() -> list[History]:
    """Of several settings: two formats under one, and others."""
    return [
        *(History(name, 4) for name in ("e4m3", "e5m2", "e4m3")),
        History("e4m3", 2, "most_recent", margin=1, interval=2),
        History("e5m2", 4),
    ]


@given(st.lists(st.lists(st.floats(0, 1000, width=32), min_size=5, max_size=5), min_size=1, max_size=10))
def test_together_they_advance_as_each_would_alone(steps: list[list[float]]) -> None:
    together, alone = histories(), histories()
    for amaxes in steps:
        for group in (together, alone):
            for history, amax in zip(group, amaxes, strict=True):
                history.amax.fill_(amax)
        advance_all(together)
        for history in alone:
            history.advance()
        for mine, theirs in zip(together, alone, strict=True):
            assert mine.scale == theirs.scale
            assert mine.amaxes.tolist() == theirs.amaxes.tolist()
            assert mine.amax == 0


def test_other_companies_and_orders_may_follow() -> None:
    mine = histories()
    for history in mine:
        history.amax.fill_(2.0)
    advance_all(mine)
    advance_all(mine[:2])
    advance_all(mine[::-1])
    assert [history.num_steps for history in mine] == [3, 3, 2, 2, 2]
    assert mine[0].amaxes.tolist() == [0, 0, 2, 0]
    assert mine[2].amaxes.tolist() == [0, 2, 0, 0]
    advance_all([])
    with pytest.raises(UsageError, match=r"^advance_all: got a history twice, expected each once\.$"):
        advance_all([mine[0], mine[0]])


def test_a_history_that_leaves_takes_its_numbers_along() -> None:
    mine = histories()
    for history in mine:
        history.amax.fill_(2.0)
    advance_all(mine)
    mine[0].load_state_dict(mine[0].state_dict())
    mine[0].amax.fill_(7.0)
    assert [history.amax.item() for history in mine] == [7, 0, 0, 0, 0]
    advance_all(mine)
    assert mine[0].amaxes.tolist() == [7, 2, 0, 0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algo": "min"}, r"^amax_compute_algo: got 'min', expected one of max, most_recent\.$"),
        ({"length": 0}, r"^amax_history_len: got 0, expected a whole number of at least 1\.$"),
        ({"interval": 1.5}, r"^interval: got 1\.5, expected a whole number of at least 1\.$"),
        ({"margin": 0.5}, r"^margin: got 0\.5, expected a whole number\.$"),
    ],
)
def test_wrong_settings_say_what_is_right(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        History("e4m3", **settings)


# ---- over ranks


def reduced_together(rank: int) -> tuple[list[float], int]:
    import torch.distributed as dist

    mine, calls = histories(), []
    true_all_reduce = dist.all_reduce
    dist.all_reduce = lambda tensor, *args, **kwargs: (calls.append(tensor.numel()), true_all_reduce(tensor, *args, **kwargs))[1]
    try:
        for step in range(4):
            if rank and step == 2:
                mine[1].load_state_dict(mine[1].state_dict())  # a rank whose histories lie otherwise in memory
            for i, history in enumerate(mine):
                history.amax.fill_(float(1 + (i + step * 3 + rank * 5) % 7))
            advance_all(mine, dist.group.WORLD)
    finally:
        dist.all_reduce = true_all_reduce
    assert calls == [5] * 4, "one packed all-reduce a step"
    return [history.scale.item() for history in mine], mine[0].num_steps


def test_ranks_share_the_largest_amaxes_by_one_all_reduce(ranks: RankPool) -> None:
    expected = histories()
    for step in range(4):
        for i, history in enumerate(expected):
            history.amax.fill_(max(float(1 + (i + step * 3 + rank * 5) % 7) for rank in range(2)))
        advance_all(expected)
    for told in ranks.run(reduced_together):
        assert told.value == ([history.scale.item() for history in expected], 4)


def scaled_together(rank: int) -> list[Any]:
    import torch.distributed as dist

    x = torch.tensor([[1.0, 2.0, -3.0]]) * (10.0 if rank else 1.0)
    seen = []
    for name in ("tensor", "tensor int8", "nvfp4"):
        from tests.precision.casting.test_scaling import WAYS

        made = cast(x, WAYS[name], group=dist.group.WORLD)
        assert made.values is not None
        seen.append((made.values.tolist(), made.scale_inv.tolist()))
    empty = cast(x[:0] if rank else x, WAYS["tensor"], group=dist.group.WORLD)
    seen.append(empty.scale_inv.item())
    return seen


def test_ranks_share_the_scale_of_a_tensor_at_hand(ranks: RankPool) -> None:
    first, second = (told.value for told in ranks.run(scaled_together))
    for mine, theirs in zip(first[:2], second[:2], strict=True):
        assert mine[1] == theirs[1]
    assert first[0][1] == np.float32(1) / (np.float32(448) / np.float32(30))
    # NVFP4 shares the outer scale: the first rank's block is then measured against the largest of both
    outer = np.float32(6 * 448) / np.float32(30)
    assert first[2][1] == [[float(np.float32(np.float32(44.0)) * (np.float32(1) / outer))]]
    assert second[2][1] == [[float(np.float32(448) * (np.float32(1) / outer))]]
    assert first[3] == second[3] == np.float32(1) / (np.float32(448) / np.float32(3))
