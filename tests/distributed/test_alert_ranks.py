"""Alerts of several ranks: told once for all that have them, raised by all together, and free where there are none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import numscope
from numscope.alerts.engine import Engine as OwnEngine
from numscope.config.alert_plan import AlertPlan
from numscope.detect.journal import Journal
from numscope.detect.skips import Skips
from numscope.distributed.bell import Host
from numscope.probe.optimizers import Optimizers
from numscope.records.alert import Alert
from tests.distributed.ranks import RankPool
from tests.distributed.test_ddp import Net, batches, digest


class Engine(OwnEngine):
    def __init__(self, post: Any, rank: int, posts: dict[int, dict[int, str]]) -> None:
        super().__init__(AlertPlan(), post, Optimizers(nn.Identity()), Skips())
        self.rank, self.posts = rank, posts

    def of_step(self, number: int, journal: Journal) -> Iterable[Alert]:
        layer = self.posts.get(number, {}).get(self.rank)
        return [] if layer is None else [Alert(number, "loss spike", layer, "output", 2.0 + self.rank, 1.0, f"It is {2 + self.rank}.")]

    def of_skip(self, number: int, scale: float | None) -> Iterable[Alert]:
        return []


class Counted:
    """Notes what is asked of the job's store by the meetings of a watch."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._store: Any = None

    def wrap(self, name: str, function: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            self.calls.append(name)
            return function(*args, **more)

        return call

    def follow(self, scope: numscope.Scope) -> None:
        meetings = scope._watch._detection.ranks._meetings  # type: ignore[union-attr]
        assert meetings is not None and meetings.is_open
        self._store, meetings._host.store = meetings._host.store, self

    def __getattr__(self, name: str) -> Any:
        return self.wrap(name, getattr(self._store, name))


def train(rank: int, posts: dict[int, dict[int, str]], mode: tuple[str, ...]) -> dict[str, Any]:
    net = Net()
    model = DDP(net)
    torch.manual_seed(rank)  # of dropout
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    error, counted = None, Counted()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Host, "ring", counted.wrap("ring", Host.ring))
        scope = numscope.watch(model, alerts=mode[rank])
        judge = None if scope._watch._detection is None else scope._watch._detection.judge
        if judge is not None and judge.onlooker is not None:
            judge.onlooker = Engine(scope._watch.alerting.desk.post, rank, posts)
        try:
            for step, x in enumerate(batches(rank) * 2):
                if step == 1:
                    counted.follow(scope)
                model(x).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        except numscope.AlertError as stopped:
            error = (stopped.alert.step, stopped.alert.rank)
        asked = [*counted.calls]
        if rank == 0 and error is None:  # alone: nobody answers
            with torch.no_grad():
                model.module(batches(0)[0])
            scope._watch.alerting.desk.post([Alert(scope.step_number, "eval mode", "", "", None, None, "At the end.")])
        scope.close()
    dist.barrier()
    return {"alerts": [(a.step, a.layer, a.rank) for a in scope.alerts], "error": error, "asked": asked, "weights": digest(model)}


Values = list[dict[str, Any]]


def run(four_ranks: RankPool, posts: dict[int, dict[int, str]], *modes: str) -> tuple[Values, list[list[str]]]:
    """``modes``: of each rank, or of all."""
    told = four_ranks.run(train, posts, (modes or ("note",)) * (1 if len(modes) == 4 else 4))
    assert len({one.value["weights"] for one in told}) == 1
    return [one.value for one in told], [one.said for one in told]


END = "numscope: alert: step 8, rank 0 of 4: eval mode: At the end."


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


def test_all_ranks_stop_at_the_same_place(four_ranks: RankPool) -> None:
    values, said = run(four_ranks, {2: {1: "first"}}, "raise")
    assert [value["error"] for value in values] == [(2, 1)] * 4
    assert said == [["numscope: alert: step 2, rank 1 of 4: loss spike: first output: It is 3."], [], [], []]


def test_rank_whose_alerts_are_off_answers_the_others(four_ranks: RankPool) -> None:
    values, said = run(four_ranks, {1: {2: "last"}, 3: {3: "first"}}, "note", "off", "note", "note")
    assert said[0] == [
        "numscope: alert: step 1, rank 2 of 4: loss spike: last output: It is 4.",
        "numscope: alert: step 3, rank 3 of 4: loss spike: first output: It is 5.",
        END,
    ]
    assert values[1]["alerts"] == []


def test_healthy_steps_ask_nothing(four_ranks: RankPool) -> None:
    assert [value["asked"] for value in run(four_ranks, {})[0]] == [[]] * 4
    loud = [value["asked"] for value in run(four_ranks, {2: {1: "first"}})[0]]
    assert [asked.count("ring") for asked in loud] == [0, 1, 0, 0] and all(len(asked) < 40 for asked in loud)
