"""Features and statistics of plug-ins in a configuration."""

from __future__ import annotations

from typing import Any

import pytest

import numscope
from numscope import UsageError
from numscope.config import load
from numscope.config.plan import Schedule
from numscope.plugins.discovery import Plugins
from numscope.plugins.registry import Registry, filling


@pytest.fixture
def customs() -> Plugins:
    with filling(Registry()) as registry:

        @numscope.feature("share_above", tensors=["weight", "gradient"], settings={"threshold": float, "mode": "abs"})
        def share_above(layer: str, tensor_name: str, tensor: Any, step: int, settings: Any) -> None: ...

    found = Plugins()
    for entry in registry:
        found.add(entry)
    return found


def section(**settings: Any) -> dict[str, Any]:
    return {"s": {"enabled": True, "layers": {"layer_types": "all"}, "share_above": {"enabled": True, **settings}}}


def test_feature_gets_its_settings_with_defaults_and_its_tensors(customs: Plugins) -> None:
    [custom] = load(section(threshold=1, freq=3), customs).customs
    assert (custom.feature, custom.tensors, custom.schedule) == ("share_above", ("weight", "gradient"), Schedule(3))
    assert custom.settings == {"threshold": 1, "mode": "abs"}


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({}, "threshold: missing, expected a number."),
        ({"threshold": "high"}, 'threshold: got "high", expected a number.'),
        ({"threshold": 1, "tensors": ["output"]}, 'tensors[0]: got "output", expected one of weight, gradient.'),
        (
            {"threshold": 1, "mod": "x"},
            'mod: got the unknown key "mod", expected one of threshold, mode, enabled, freq, start_step, end_step, start_end_list, '
            'tensors. Did you mean "mode"?',
        ),
    ],
)
def test_feature_with_wrong_settings_is_refused(customs: Plugins, settings: dict[str, Any], error: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(section(**settings), customs)
    assert str(caught.value) == f"config: s.share_above.{error}"


def test_unknown_feature_suggests_a_plugged_one(customs: Plugins) -> None:
    with pytest.raises(UsageError, match=r'Did you mean "share_above"\?'):
        load({"s": {**section()["s"], "share_abov": {"enabled": True}}}, customs)


def test_plugged_statistic_may_be_asked_for_by_name() -> None:
    tree = {"statistics": {"enabled": True, "stats": ["p99", "max"], "tensors": ["weight"]}}
    with pytest.raises(UsageError, match='got "p99"'):
        load(tree)
    with filling(Registry()) as registry:
        numscope.statistic("p99")(lambda summary: summary.max)
    found = Plugins()
    found.add(next(iter(registry)))
    assert [asked.statistic for asked in load(tree, found).collects[0].stats] == ["p99", "max"]
