from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numscope.alerts import desk as desks
from numscope.alerts.desk import CALM_STEPS, Desk
from numscope.config.alert_plan import AlertPlan
from numscope.records.alert import Alert
from numscope.records.errors import AlertError


class Taken:
    """An outlet that remembers."""

    def __init__(self) -> None:
        self.kept: list[Alert] = []
        self.told: list[tuple[Alert, tuple[int, ...], bool]] = []
        self.overflows = 0

    def keep(self, alert: Alert) -> None:
        self.kept.append(alert)

    def tell(self, alert: Alert, ranks: Sequence[int], *, is_own: bool) -> None:
        self.told.append((alert, tuple(ranks), is_own))

    def overflow(self, most: int) -> None:
        self.overflows += 1


def alert(step: int, rule: str = "loss spike", layer: str = "head", *, rank: int = 0, asks: bool = False) -> Alert:
    return Alert(step, rule, layer, "output", 2.0, 1.0, "It is high.", rank=rank, asks=asks)


POSTED = st.lists(st.tuples(st.integers(0, 4 * CALM_STEPS), st.sampled_from("ab"), st.sampled_from("xy")), max_size=60).map(sorted)


@given(POSTED)
def test_an_alert_is_news_exactly_after_its_rule_was_calm_at_its_layer(posted: list[tuple[int, str, str]]) -> None:
    desk = Desk(Taken())
    expected = []
    for at, (step, rule, layer) in enumerate(posted):
        before = [s for s, r, where in posted[:at] if (r, where) == (rule, layer)]
        if not before or step - before[-1] > CALM_STEPS:
            expected.append((step, rule, layer))
        desk.post([alert(step, rule, layer)])
    assert [(one.step, one.rule, one.layer) for one in desk.alerts] == expected


@given(POSTED)
def test_calm_rules_are_forgotten_without_a_difference(posted: list[tuple[int, str, str]]) -> None:
    forgetful, other = Desk(Taken()), Desk(Taken())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(desks, "_MANY", 1)
        forgetful._own._most = 1
        for step, rule, layer in posted:
            forgetful.post([alert(step, rule, layer)])
            other.post([alert(step, rule, layer)])
    assert forgetful.alerts == other.alerts


def test_memory_stays_bounded_over_very_many_alerts() -> None:
    taken = Taken()
    desk = Desk(taken)
    desk.post(alert(step, layer=f"layer {step % 20_000}") for step in range(100_000))
    assert len(desk.alerts) == len(taken.kept) == desks.MOST_KEPT
    assert desk.num_left_out == 100_000 - desks.MOST_KEPT
    assert taken.overflows == 1
    assert len(desk._own._last) <= 2 * desks._MANY


def test_a_run_that_goes_back_to_an_earlier_step_hears_its_alerts_again() -> None:
    desk = Desk(Taken())
    desk.post([alert(1000), alert(10), alert(11)])
    assert [one.step for one in desk.alerts] == [1000, 10]


def test_a_question_is_asked_once() -> None:
    desk = Desk(Taken())
    desk.post(alert(step, asks=True) for step in (0, 1, 10 * CALM_STEPS))
    assert len(desk.alerts) == 1


def test_that_it_is_over_is_news_while_the_rule_is_not_calm() -> None:
    desk = Desk(Taken())
    over = replace(alert(3), evidence={"over": True})
    desk.post([alert(0), alert(1), over, over, alert(4)])
    assert [(one.step, "over" in one.evidence) for one in desk.alerts] == [(0, False), (3, True)]


def test_a_rule_that_is_off_does_not_speak() -> None:
    desk = Desk(Taken(), AlertPlan(rules={"loss spike": False, "eval mode": {}}))
    desk.post([alert(0), alert(0, "eval mode")])
    assert [one.rule for one in desk.alerts] == ["eval mode"]


def test_alone_alerts_are_told_at_once() -> None:
    taken = Taken()
    desk = Desk(taken)
    desk.post([alert(3)])
    assert taken.told == [(alert(3), (), True)]
    assert not desk.has_news


def test_with_mode_raise_the_next_judgment_raises_the_first_that_does_not_ask() -> None:
    desk = Desk(Taken(), AlertPlan("raise"))
    desk.post([alert(1, "eval mode", asks=True)])
    assert not desk.has_news
    desk.post([alert(2, layer="first"), alert(2, layer="second")])
    assert desk.has_news
    with pytest.raises(AlertError) as caught:
        desk.hear({0: desk.news()}, stops=True)
    assert caught.value.alert == alert(2, layer="first")
    assert not desk.has_news


def test_error_goes_through_pickle_with_its_alert() -> None:
    error = AlertError(alert(4))
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.alert, str(copy), copy.exit_status) == (error.alert, str(error), 4)
    assert str(AlertError(alert(1, layer="a\nb\x1b[31m"))) == "step 1: loss spike: a\\nb\\x1b[31m output: It is high."


# ---- with other ranks


def spread_desks(monkeypatch: pytest.MonkeyPatch, num: int, mode: str = "note") -> tuple[list[Desk], list[Taken]]:
    monkeypatch.setattr(desks, "spread", lambda: True)
    taken = [Taken() for _ in range(num)]
    return [Desk(one, AlertPlan(mode), rank) for rank, one in enumerate(taken)], taken  # type: ignore[arg-type]


def test_ranks_tell_the_same_alert_once_and_a_single_ranks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    all_desks, taken = spread_desks(monkeypatch, 200)
    for rank, desk in enumerate(all_desks):
        desk.post([alert(1)])
        if rank == 5:
            desk.post([alert(1, layer="only here")])
        assert not taken[rank].told
    told = {rank: desk.news() for rank, desk in enumerate(all_desks)}
    for desk in all_desks:
        desk.hear(told, stops=True)
    assert [(one.layer, ranks, is_own) for one, ranks, is_own in taken[0].told] == [
        ("head", tuple(range(200)), True),
        ("only here", (5,), False),
    ]
    assert not any(one.told for one in taken[1:])
    assert [one.layer for one in all_desks[5].alerts] == ["head", "only here"]
    assert {one.rank for one in all_desks[5].alerts} == {5}


def test_all_ranks_raise_the_same_alert_together(monkeypatch: pytest.MonkeyPatch) -> None:
    all_desks, _ = spread_desks(monkeypatch, 3, "raise")
    all_desks[2].post([alert(9)])
    told = {rank: desk.news() for rank, desk in enumerate(all_desks)}
    for desk in all_desks:
        with pytest.raises(AlertError) as caught:
            desk.hear(told, stops=True)
        assert caught.value.alert.rank == 2


def test_ranks_that_come_to_the_same_one_after_the_other_are_one_line_until_all_are_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    all_desks, taken = spread_desks(monkeypatch, 100)
    for step, rank in enumerate([*range(100), 3]):
        step += 10 * CALM_STEPS * (step == 100)
        all_desks[rank].post([alert(step), alert(step, "eval mode", asks=True)])
        told = {rank: desk.news() for rank, desk in enumerate(all_desks)}
        for desk in all_desks:
            desk.hear(told, stops=True)
    assert [(one.rule, one.step, ranks) for one, ranks, _ in taken[0].told] == [
        ("loss spike", 0, (0,)),
        ("eval mode", 0, (0,)),
        ("loss spike", 100 + 10 * CALM_STEPS, (3,)),
    ]
    assert all(len(desk.alerts) >= 2 for desk in all_desks)


def test_what_no_other_rank_was_asked_about_is_told_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed: set[str] = set()
    monkeypatch.setattr(desks, "is_first", lambda what: what not in claimed and not claimed.add(what))  # type: ignore[func-returns-value]
    all_desks, taken = spread_desks(monkeypatch, 3)
    for desk in all_desks[1:]:
        desk.post([alert(9)])
    all_desks[2].post([alert(9, layer="only here")])
    for desk in all_desks[1:] * 2:
        desk.flush()
    assert [[(one.layer, ranks) for one, ranks, _ in outlet.told] for outlet in taken] == [[], [("head", (1,))], [("only here", (2,))]]


def test_place_in_the_script_is_said_once_whichever_model_finds_it() -> None:
    taken, line = Taken(), {"line": "train.py:12", "code": "loss.backward()"}
    first, second = Desk(taken), Desk(taken)
    for desk in (first, second, first):
        desk.post([replace(alert(4), layer="", evidence=line), replace(alert(4, "loss runs away"), layer="", tensor="loss", value=8.0)])
    assert [len(desk.alerts) for desk in (first, second)] == [2, 0]
    second.post(
        [replace(alert(80), layer="", evidence={"line": "train.py:13"}), replace(alert(4), evidence={**line, "parameters": ["a.weight"]})]
    )
    assert len(second.alerts) == 2, "another line, and this model's own parameters"
    first.close()
    second.close()
    third = Desk(taken)
    third.post([replace(alert(4), layer="", evidence=line)])
    assert len(third.alerts) == 1, "another run in the same process"
    third.close()
