"""The search over planted oracles: what it finds, how often it asks, what it says when it can't know."""

from __future__ import annotations

from itertools import combinations
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numscope.precision.search.bisect import OutOfBudget, SmallestSet, Unit, search

GEMMS = ("fprop", "dgrad", "wgrad")


def layers_of(number: int) -> dict[str, tuple[str, ...]]:
    return {f"layers.{i}": GEMMS for i in range(number)}


class Planted:
    """Cures when one of some sets is kept whole; counts, and may run out."""

    def __init__(self, *cures: frozenset[Unit], budget: int = 10**9) -> None:
        self.ways = cures
        self.asked: list[frozenset[Unit]] = []
        self.budget = budget

    def __call__(self, kept: frozenset[Unit]) -> bool:
        if len(self.asked) >= self.budget:
            raise OutOfBudget
        self.asked.append(kept)
        return any(way <= kept for way in self.ways)


def most_asked(num_layers: int, num_culprit_layers: int, num_culprits: int) -> int:
    """How often the search asks at most, as its docstring says."""

    def log2(number: int) -> int:
        return max(number - 1, 0).bit_length()

    of_gemms = log2(len(GEMMS) * num_culprit_layers)
    return 2 + num_culprit_layers * (log2(num_layers) + 2) + num_culprits * (of_gemms + 2)


@st.composite
def planted(draw: st.DrawFn) -> tuple[dict[str, tuple[str, ...]], frozenset[Unit]]:
    layers = layers_of(draw(st.integers(1, 40)))
    units = [(layer, gemm) for layer in layers for gemm in GEMMS]
    return layers, frozenset(draw(st.lists(st.sampled_from(units), min_size=1, max_size=6)))


@given(planted())
def test_planted_culprits_are_found_within_the_bound(case: tuple[dict[str, tuple[str, ...]], frozenset[Unit]]) -> None:
    layers, culprits = case
    oracle = Planted(culprits)
    found = search(layers, oracle)
    assert found.outcome == "found" and found.minimal
    assert frozenset(found.units) == culprits
    assert len(oracle.asked) <= most_asked(len(layers), len({layer for layer, _ in culprits}), len(culprits))


@given(planted())
def test_no_set_is_asked_about_twice(case: tuple[dict[str, tuple[str, ...]], frozenset[Unit]]) -> None:
    oracle = Planted(case[1])
    search(case[0], oracle)
    assert len(set(oracle.asked)) == len(oracle.asked)


@given(planted(), st.randoms(use_true_random=False))
def test_suspects_change_how_often_it_asks_and_not_what_it_finds(
    case: tuple[dict[str, tuple[str, ...]], frozenset[Unit]], random: object
) -> None:
    layers, culprits = case
    order = list(layers)
    random.shuffle(order)  # type: ignore[attr-defined]
    assert search(layers, Planted(culprits), suspects=[*order, "no such layer"]).units == search(layers, Planted(culprits)).units


def test_right_suspects_make_it_short() -> None:
    layers, culprit = layers_of(1000), ("layers.777", "wgrad")
    oracle = Planted(frozenset({culprit}))
    found = search(layers, oracle, suspects=["layers.777", "layers.3"])
    assert found.units == (culprit,)
    assert len(oracle.asked) <= 6


@settings(max_examples=60)
@given(st.integers(0, 2**60), st.integers(1, 3))
def test_oracle_that_is_not_monotone_gives_a_set_that_cures_and_of_which_none_is_spare(seed: int, number: int) -> None:
    layers = layers_of(number)
    everything = frozenset((layer, gemm) for layer in layers for gemm in GEMMS)

    def cures(kept: frozenset[Unit]) -> bool:
        if kept in (frozenset(), everything):
            return bool(kept)
        return crc32(repr((seed, sorted(kept))).encode()) % 3 == 0

    found = search(layers, cures)
    kept = frozenset(found.units)
    assert found.outcome == "found" and cures(kept)
    assert not any(cures(kept - {unit}) for unit in kept)


@given(planted(), planted())
def test_one_of_several_cures_is_found(
    case: tuple[dict[str, tuple[str, ...]], frozenset[Unit]], other: tuple[dict[str, tuple[str, ...]], frozenset[Unit]]
) -> None:
    layers = max(case[0], other[0], key=len)
    oracle = Planted(case[1], other[1])
    kept = frozenset(search(layers, oracle).units)
    assert any(way <= kept for way in oracle.ways)
    assert all(not any(way <= kept - {unit} for way in oracle.ways) for unit in kept)


def test_run_that_is_good_as_it_is_needs_nothing() -> None:
    oracle = Planted(frozenset())
    assert search(layers_of(5), oracle) == SmallestSet("within", (), True)


def test_run_that_nothing_cures_is_said_to_be_incurable() -> None:
    assert search(layers_of(5), Planted()) == SmallestSet("incurable", (), False)
    assert search({}, Planted()) == SmallestSet("incurable", (), False)


@given(planted(), st.integers(0, 60))
def test_search_out_of_budget_keeps_the_smallest_set_that_was_seen_to_cure(
    case: tuple[dict[str, tuple[str, ...]], frozenset[Unit]], budget: int
) -> None:
    layers, culprits = case
    oracle = Planted(culprits, budget=budget)
    found = search(layers, oracle)
    if found.outcome == "found":
        assert frozenset(found.units) == culprits
        return
    assert found.outcome == "budget" and not found.minimal and len(oracle.asked) == budget
    good = [kept for kept in oracle.asked if culprits <= kept]
    assert len(found.units) == min(map(len, good), default=0)
    assert not good or frozenset(found.units) in good


@given(planted(), st.integers(0, 60))
def test_search_killed_at_any_point_resumes_to_the_same_answer_with_no_set_asked_again(
    case: tuple[dict[str, tuple[str, ...]], frozenset[Unit]], after: int
) -> None:
    layers, culprits = case
    whole = Planted(culprits)
    expected = search(layers, whole)
    killed = Planted(culprits, budget=after)
    search(layers, killed)
    kept = {one: culprits <= one for one in killed.asked}
    again = Planted(culprits)
    resumed = search(layers, lambda one: kept[one] if one in kept else again(one))
    assert resumed == expected
    assert [*killed.asked, *again.asked] == whole.asked


def test_layers_without_gemms_and_with_different_ones_are_searched_as_they_are() -> None:
    layers = {"a": (), "b": ("",), "c": ("dgrad",), "d": ("",)}
    for size in (1, 2, 3):
        for culprits in combinations([("b", ""), ("c", "dgrad"), ("d", "")], size):
            assert search(layers, Planted(frozenset(culprits))).units == culprits


def test_stages_are_told_in_order() -> None:
    told: list[str] = []
    search(layers_of(9), Planted(frozenset({("layers.2", "dgrad"), ("layers.7", "fprop")})), stage=told.append)
    assert told == ["the run as it is", "everything in high precision", "layers", "GEMMs of 2 layers"]


@pytest.mark.parametrize("number", [1, 200])
def test_one_culprit_costs_at_most_what_the_documentation_says(number: int) -> None:
    worst = 0
    for place in range(0, number, 37):
        oracle = Planted(frozenset({(f"layers.{place}", "wgrad")}))
        search(layers_of(number), oracle)
        worst = max(worst, len(oracle.asked))
    assert worst <= {1: 2 + 2 + 4, 200: 2 + 10 + 4}[number]  # and two runs of the reference: 18
