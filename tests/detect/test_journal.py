"""A step's journal: events in order, weights' rows over steps, what was bad and where."""

from __future__ import annotations

import gc
import math

import pytest
import torch
from torch import nn

from numscope.detect.journal import Journal
from numscope.detect.parameters import parameters_of
from numscope.probe.entry import Entry
from numscope.probe.naming import qualified_names
from numscope.records.site import Phase, Site
from numscope.summary import dispatch
from numscope.summary.ledger import UNOBSERVED
from numscope.summary.parameter_rows import Weights

NAN = torch.tensor([math.nan])


def journal_of(*values: float) -> Journal:
    journal = Journal()
    for i, value in enumerate(values):
        journal.add(Entry(f"layer{i}", "Linear"), Phase.FORWARD, {}, [("input[0]", torch.ones(2)), ("output", torch.tensor([value]))])
    return journal


@pytest.mark.parametrize("in_c", [True, False])
def test_gradients_stand_where_they_were_seen_whenever_somebody_asks(in_c: bool, request: pytest.FixtureRequest) -> None:
    if not in_c:
        request.getfixturevalue("in_python")
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.tensor([1.0, math.nan])
    one, other, entry = journal_of(1.0), Journal(), Entry("layer1", "Linear")
    one.add_gradients([(entry, "weight", weight)])
    other.add(entry, Phase.FORWARD, {}, [("output", torch.ones(1))])
    one.add(entry, Phase.FORWARD, {}, [("output", torch.ones(1))])
    assert [(event.phase, event.items[-1][0]) for event in one.events] == [
        (Phase.FORWARD, "output"), (Phase.BACKWARD, "grad weight"), (Phase.FORWARD, "output"),
    ]  # fmt: skip
    before, gradient, after = (event.order for event in one.events)
    assert before < gradient < other.event(0).order < after
    one.read()
    assert one.bad() == [(1, "grad weight")]


def test_bad_leaves_come_in_order_with_their_slots() -> None:
    journal = journal_of(1.0, math.nan, 2.0, math.inf)
    journal.read()
    assert journal.bad() == [(1, "output"), (3, "output")] and journal.any_bad()
    assert journal.site(1, "output") == Site("layer1", "Linear", Phase.FORWARD, "output")
    numbers = journal.numbers(3, "output")
    assert numbers is not None and numbers.num_pos_inf == 1
    assert journal.numbers(3, "no such slot") is None


def test_frames_end_with_the_event_asked_for() -> None:
    journal = journal_of(*range(10))
    journal.read()
    assert [f.module for f in journal.frames(7, 3)] == ["layer5", "layer6", "layer7"]
    assert [f.module for f in journal.frames(1, 21)] == ["layer0", "layer1"]
    assert [line.slot for line in journal.frames(0, 1)[0].lines] == ["input[0]", "output"]


def test_leaves_that_are_no_tensors_are_noted_in_words() -> None:
    journal = Journal()
    leaves = [("input[0]", None), ("input[1]", "text"), ("output", torch.empty(2, device="meta"))]
    journal.add(Entry("a", "A"), Phase.FORWARD, {"weight": None}, leaves)
    assert journal.event(0).items == [
        ("input[0]", None, "None"),
        ("input[1]", None, "not a tensor"),
        ("output", None, "meta tensor float32[2]"),
    ]
    journal.read()
    assert journal.bad() == []


def test_order_of_events_is_one_over_all_journals() -> None:
    first, second = Journal(), Journal()
    for journal in (first, second, first):
        journal.add(Entry("", ""), Phase.FORWARD, {}, [])
    assert first.event(0).order < second.event(0).order < first.event(1).order


def test_reset_forgets_the_step_and_keeps_the_weights() -> None:
    journal = Journal()
    weight = nn.Parameter(torch.tensor([math.nan]))
    entry = Entry("a", "A")
    journal.add(entry, Phase.FORWARD, {"weight": weight}, [("output", NAN)])
    journal.reset()
    assert journal.events == [] and len(journal.ledger) == 0
    journal.add(entry, Phase.FORWARD, {"weight": weight}, [])
    journal.read()
    assert journal.bad() == [(0, "weight")]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch, in_python: None) -> list[int]:
    gc.collect()  # a dropped watch reads what is left
    count: list[int] = []
    original, many = dispatch.observe, dispatch.observe_many
    monkeypatch.setattr(dispatch, "observe", lambda *args: count.append(1) or original(*args))
    monkeypatch.setattr(dispatch, "observe_many", lambda tensors, *args: count.append(len(tensors)) or many(tensors, *args))
    return count


def test_unchanged_weight_is_not_read_again(reads: list[int]) -> None:
    weights, weight = Weights(), nn.Parameter(torch.ones(3))
    handle = weights.observe(weight)
    assert [weights.observe(weight) for _ in range(3)] == [handle] * 3 and sum(reads) == 1
    with torch.no_grad():
        weight.mul_(2)
    assert weights.observe(weight) == handle and sum(reads) == 2
    assert weights.ledger.numbers(handle).max == 2.0


def test_weight_changed_through_data_is_read_after_a_recheck() -> None:
    weights, weight = Weights(), nn.Parameter(torch.ones(3))
    handle = weights.observe(weight)
    weight.data.fill_(math.inf)
    weights.recheck()
    weights.observe(weight)
    assert weights.ledger.bad() == [handle]


def test_weight_with_another_memory_is_read_again() -> None:
    weights, weight = Weights(), nn.Parameter(torch.ones(3))
    handle = weights.observe(weight)
    weight.data = torch.full((3,), math.inf)
    weights.observe(weight)
    assert weights.ledger.bad() == [handle]


def test_weights_all_at_once_after_a_step() -> None:
    weights = Weights()
    parameters = [nn.Parameter(torch.full((2,), float(i))) for i in range(5)]
    first = weights.observe_many(parameters[:3])
    with torch.no_grad():
        parameters[1].fill_(math.nan)
    again = weights.observe_many(parameters)
    assert again[:3] == first and weights.ledger.bad() == [first[1]]
    assert [weights.ledger.numbers(h).max for h in again[3:]] == [3.0, 4.0]


def test_parameter_that_takes_a_dead_ones_place_is_read() -> None:
    """Stand-ins of functional_call live for one call: the next has the same id, version and address."""
    weights = Weights()
    for i in range(50):
        stand_in = torch.full((8,), float(i))
        handle = weights.observe(stand_in)
        assert weights.ledger.numbers(handle).max == float(i)
        del stand_in
    handle = weights.observe(torch.full((8,), math.nan))
    assert weights.ledger.bad() == [handle]


def test_rows_of_dead_parameters_are_used_again() -> None:
    weights = Weights()
    for _ in range(30):
        stand_ins = [torch.full((8,), math.nan) for _ in range(4)]
        for stand_in in stand_ins:
            weights.observe(stand_in)
        assert weights.ledger.bad()
        del stand_ins, stand_in
        weights.forget_gone()
        assert not weights.ledger.bad(), "a parameter that is gone is bad no more"
    assert len(weights.ledger) <= 8


def test_lazy_parameter_is_seen_once_it_is_made() -> None:
    weights = Weights()
    weight = nn.parameter.UninitializedParameter()
    assert weights.observe(weight) == UNOBSERVED
    assert weights.observe_many([weight]) == [UNOBSERVED]
    weight.materialize((2,))
    with torch.no_grad():
        weight.fill_(math.inf)
    handle = weights.observe(weight)
    assert handle != UNOBSERVED and weights.ledger.bad() == [handle]


def test_shared_parameter_is_listed_once() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    found = parameters_of(qualified_names(model))
    assert [(module, slot) for module, slot, _ in found] == [("0", "weight"), ("0", "bias"), ("1", "bias")]
