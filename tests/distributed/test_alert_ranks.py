"""Alerts of several ranks: told once for all that have them, raised by all together, and free where there are none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import numscope
from numscope.alerts.engine import Engine as OwnEngine
from numscope.config.alert_plan import AlertPlan
from numscope.detect.journal import Journal
from numscope.distributed.channel import Channel
from numscope.records.alert import Alert
from tests.distributed.ranks import RankPool
from tests.distributed.test_ddp import Net, batches, digest


class Engine(OwnEngine):
    def __init__(self, post: Any, rank: int, posts: dict[int, dict[int, str]]) -> None:
        super().__init__(AlertPlan(), post)
        self.rank, self.posts = rank, posts

    def of_step(self, number: int, journal: Journal) -> Iterable[Alert]:
        layer = self.posts.get(number, {}).get(self.rank)
        return [] if layer is None else [Alert(number, "loss spike", layer, "output", 2.0 + self.rank, 1.0, f"It is {2 + self.rank}.")]

    def of_skip(self, number: int, scale: float | None) -> Iterable[Alert]:
        return []


def train(rank: int, posts: dict[int, dict[int, str]], mode: tuple[str, ...]) -> dict[str, Any]:
    net = Net()
    model = DDP(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    questions = []
    meet = Channel.meet

    def counted(self: Channel, purpose: str, step: int, *rest: Any) -> list[float]:
        questions.append((purpose, step))
        return meet(self, purpose, step, *rest)

    error, weights = None, ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Channel, "meet", counted)
        scope = numscope.watch(model, alerts=mode[rank])
        judge = None if scope._watch._detection is None else scope._watch._detection.judge
        if judge is not None and judge.onlooker is not None:
            judge.onlooker = Engine(scope._watch.alerting.desk.post, rank, posts)
        try:
            for x in batches(rank):
                weights = digest(model)
                model(x).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        except numscope.AlertError as stopped:
            error = (stopped.alert.step, stopped.alert.rank, digest(model) == weights)
        if rank == 0 and error is None:  # alone: nobody answers
            with torch.no_grad():
                model.module(batches(0)[0])
            scope._watch.alerting.desk.post([Alert(scope.step_number, "eval mode", "", "", None, None, "At the end.")])
        scope.close()
    dist.barrier()
    return {"alerts": [(a.step, a.layer, a.rank) for a in scope.alerts], "error": error, "questions": questions, "weights": digest(model)}


Values = list[dict[str, Any]]


def run(four_ranks: RankPool, posts: dict[int, dict[int, str]], *modes: str) -> tuple[Values, list[list[str]]]:
    """``modes``: of each rank, or of all."""
    told = four_ranks.run(train, posts, (modes or ("note",)) * (1 if len(modes) == 4 else 4))
    assert len({one.value["weights"] for one in told}) == 1
    return [one.value for one in told], [one.said for one in told]


END = "numscope: alert: step 4, rank 0 of 4: eval mode: At the end."


def test_what_all_ranks_have_is_one_line(four_ranks: RankPool) -> None:
    values, said = run(four_ranks, {2: dict.fromkeys(range(4), "first")})
    assert said == [["numscope: alert: step 2, all 4 ranks: loss spike: first output: It is 2.", END], [], [], []]
    assert [value["alerts"][0] for value in values] == [(2, "first", rank) for rank in range(4)]


def test_alert_of_one_rank_is_seen_and_so_are_those_of_some(four_ranks: RankPool) -> None:
    values, said = run(four_ranks, {1: {3: "last"}, 3: {1: "first", 2: "first", 3: "first"}})
    assert said[0] == [
        "numscope: alert: step 1, rank 3 of 4: loss spike: last output: It is 5.",
        "numscope: alert: step 3, ranks 1-3 of 4: loss spike: first output: It is 3.",
        END,
    ]
    assert said[1:] == [[], [], []]
    assert [value["alerts"] for value in values[1:]] == [[(3, "first", 1)], [(3, "first", 2)], [(1, "last", 3), (3, "first", 3)]]


def test_all_ranks_stop_together_before_the_weights_are_touched(four_ranks: RankPool) -> None:
    values, said = run(four_ranks, {2: {1: "first"}}, "raise")
    assert [value["error"] for value in values] == [(2, 1, True)] * 4
    assert said == [["numscope: alert: step 2, rank 1 of 4: loss spike: first output: It is 3."], [], [], []]


def test_rank_whose_alerts_are_off_answers_the_others(four_ranks: RankPool) -> None:
    values, said = run(four_ranks, {1: {2: "last"}, 3: {3: "first"}}, "note", "off", "note", "note")
    assert said[0] == [
        "numscope: alert: step 1, rank 2 of 4: loss spike: last output: It is 4.",
        "numscope: alert: step 3, rank 3 of 4: loss spike: first output: It is 5.",
        END,
    ]
    assert values[1]["alerts"] == []


def test_healthy_steps_ask_nothing_more(four_ranks: RankPool) -> None:
    quiet, off = run(four_ranks, {})[0], run(four_ranks, {}, "off")[0]
    assert [value["questions"] for value in quiet] == [value["questions"] for value in off]
    loud = run(four_ranks, {2: {1: "first"}})[0]
    assert [[one for one in value["questions"] if one not in quiet[0]["questions"]] for value in loud] == [[("news", 2)]] * 4
