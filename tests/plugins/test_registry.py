"""Decorators: what they take in, what they refuse and in which words."""

from __future__ import annotations

import re
from typing import Any

import pytest

import numscope
from numscope.plugins.custom_parts import CustomFeature, CustomPart, CustomStatistic, Setting
from numscope.plugins.registry import PROCESS, Registry, filling
from numscope.records.errors import UsageError


def half(summary: Any) -> float:
    """Half of the mean.

    More words.
    """
    return float(summary.mean) / 2


def added(kind: str, name: str, function: Any, **options: Any) -> CustomPart:
    """What a decorator adds."""
    with filling(Registry()) as registry:
        getattr(numscope, kind)(name, **options)(function)
    return next(iter(registry))


def see(layer: str, tensor_name: str, tensor: Any, step: int, settings: dict[str, Any]) -> None: ...


def test_decorator_gives_the_function_back_as_it_is() -> None:
    with filling(Registry()):
        assert numscope.statistic("half")(half) is half
        assert numscope.feature("See")(see) is see
        assert numscope.rule("quiet")(half) is half


def test_decorators_add_to_the_registry_that_is_being_filled_and_to_no_other() -> None:
    before = len(PROCESS.entries)
    with filling(Registry()) as outer:
        numscope.statistic("a")(half)
        with filling(Registry()) as inner:
            numscope.statistic("b")(half)
        numscope.statistic("c")(half)
    assert list(outer.entries) == [("statistic", "a"), ("statistic", "c")]
    assert list(inner.entries) == [("statistic", "b")]
    assert len(PROCESS.entries) == before


def test_statistic_knows_where_it_was_written_and_what_it_says_of_itself() -> None:
    entry = added("statistic", "half", half)
    assert isinstance(entry, CustomStatistic)
    assert entry.place == f"{__file__}:{half.__code__.co_firstlineno}"
    assert entry.summary == "Half of the mean."
    assert (entry.of, entry.merge) == ("summary", None)


def test_settings_are_types_where_they_must_be_given_and_defaults_where_they_may() -> None:
    entry = added("feature", "See", see, tensors=["weight"], settings={"threshold": 0.5, "mode": str, "on": True})
    assert isinstance(entry, CustomFeature)
    assert entry.tensors == ("weight",)
    assert entry.settings == {"threshold": Setting(float, 0.5, False), "mode": Setting(str), "on": Setting(bool, True, False)}


@pytest.mark.parametrize(
    ("kind", "value", "accepted"),
    [(float, 1, True), (float, 1.5, True), (float, True, False), (int, 1.5, False), (bool, True, True), (bool, 1, False), (str, "x", True)],
)
def test_setting_accepts_its_own_type(kind: type, value: object, accepted: bool) -> None:
    assert Setting(kind).accepts(value) is accepted


def test_feature_without_tensors_may_be_given_all() -> None:
    entry = added("feature", "See", see)
    assert isinstance(entry, CustomFeature)
    assert entry.tensors == ("activation", "weight", "gradient", "output", "wgrad", "dgrad")


def test_second_of_a_name_is_refused_with_both_places() -> None:
    def other(summary: Any) -> float:
        return 0.0

    text = (
        f"statistic 'half': got a second one at {__file__}:{other.__code__.co_firstlineno}, expected each name once: "
        f"it is taken at {__file__}:{half.__code__.co_firstlineno}. Rename one."
    )
    with filling(Registry()) as registry:
        numscope.statistic("half")(half)
        with pytest.raises(UsageError, match=f"^{re.escape(text)}$"):
            numscope.statistic("half")(other)
    assert registry.entries["statistic", "half"].function is half


def test_two_kinds_may_share_a_name() -> None:
    with filling(Registry()) as registry:
        numscope.statistic("half")(half)
        numscope.rule("half")(half)
    assert len(registry.entries) == 2


def test_function_run_again_takes_its_own_old_place() -> None:
    with filling(Registry()) as registry:
        for _ in range(2):

            def again(summary: Any) -> float:
                return 0.0

            numscope.statistic("again")(again)
    assert registry.entries["statistic", "again"].function is again


def test_notebook_cell_changed_and_run_again_takes_its_own_old_place() -> None:
    with filling(Registry()) as registry:
        for cell, source in enumerate(["def f(s): return 1.0", "\ndef f(s): return 2.0"]):
            space: dict[str, Any] = {"__name__": "__main__"}
            exec(compile(source, f"<cell {cell}>", "exec"), space)
            numscope.statistic("f")(space["f"])
    assert registry.entries["statistic", "f"].function(None) == 2.0


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda r: r.statistic(half), 'statistic: got a function, expected a name first: @numscope.statistic("name").'),
        (lambda r: r.rule("two words"), "rule: got the name 'two words', expected a word without spaces."),
        (lambda r: r.logger(""), "logger: got the name '', expected a word without spaces."),
        (
            lambda r: r.statistic("x", of="tensr"),
            "statistic 'x': of: got 'tensr', expected one of 'summary', 'tensor'. Did you mean 'tensor'?",
        ),
        (
            lambda r: r.statistic("x", of="tensor"),
            "statistic 'x': merge: got nothing, expected one of 'sum', 'max', 'min', 'mean': how the numbers of two tensors become one.",
        ),
        (
            lambda r: r.statistic("x", of="tensor", merge="average"),
            "statistic 'x': merge: got 'average', expected one of 'sum', 'max', 'min', 'mean'.",
        ),
        (
            lambda r: r.statistic("x", merge="sum"),
            "statistic 'x': merge: got 'sum', expected nothing: a summary merges by itself. Leave merge out.",
        ),
        (
            lambda r: r.feature("X", tensors="weight"),
            "feature 'X': tensors: got 'weight', expected a list of some of "
            "'activation', 'weight', 'gradient', 'output', 'wgrad', 'dgrad'.",
        ),
        (
            lambda r: r.feature("X", tensors=["weigth"]),
            "feature 'X': tensors: got 'weigth', expected one of 'activation', 'weight', 'gradient', 'output', 'wgrad', 'dgrad'. "
            "Did you mean 'weight'?",
        ),
        (
            lambda r: r.feature("X", settings={"when": object}),
            "feature 'X': settings.when: got <class 'object'>, expected one of the types bool, int, float, str, list, dict, "
            "or a default of one of these.",
        ),
        (
            lambda r: r.logger("x")(dict),
            "logger 'x': got dict, expected a class with log_scalar(self, name, value, iteration, **kwargs).",
        ),
        (lambda r: r.rule("x")(3), "rule 'x': got int, expected something to call."),
    ],
)
def test_wrong_use_of_a_decorator_is_refused_in_words(make: Any, text: str) -> None:
    with pytest.raises(UsageError) as caught, filling(Registry()):
        make(numscope)
    assert str(caught.value) == text
