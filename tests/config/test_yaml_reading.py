"""Whatever a file holds, it is a plan or a UsageError."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from numscope import UsageError
from numscope.config import load
from numscope.config.features import ALIASES
from numscope.config.plan import Plan
from numscope.config.schema import Layers, Statistics
from numscope.summary.statistics import STATISTICS

WORDS = [
    *ALIASES, *Layers.model_fields, *Statistics.model_fields, *STATISTICS,
    "type", "layers", "transformer_engine", "tensors_struct", "gemms_struct", "gemms", "tensor", "gemm", "weight", "fprop", "all", "1-3",
]  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(max_size=8) | st.dates()
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=4), inner, max_size=4),
    max_leaves=30,
)


def outcome(source: Any) -> Plan | str:
    try:
        return load(source)
    except UsageError as error:
        return str(error)


@given(TREES)
def test_any_tree_is_a_plan_or_a_usage_error(tree: object) -> None:
    source = tree if isinstance(tree, dict) else {"s": tree}
    assert outcome(source)


@given(st.dictionaries(st.sampled_from(["enabled", "layers", "statistics", "LogFp8TensorStats", "transformer_engine"]), TREES, max_size=4))
def test_any_section_is_a_plan_or_a_usage_error(section: dict[str, object]) -> None:
    assert outcome({"s": section})


@given(st.text() | st.binary() | TREES.map(lambda tree: yaml.safe_dump(tree, allow_unicode=True)))
def test_any_file_is_a_plan_or_a_usage_error(tmp_path_factory: pytest.TempPathFactory, content: str | bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    assert outcome(path)


def test_merge_keys_and_aliases_are_written_out(tmp_path: Any) -> None:
    path = tmp_path / "stats.yaml"
    path.write_text(
        """
        a: &a
          enabled: yes
          layers: {layer_types: all}
          statistics: &s {enabled: on, stats: [max], tensors: [weight], freq: 3}
        b:
          <<: *a
          statistics: {<<: *s, freq: 5}
        """
    )
    assert [(collect.section, collect.schedule.freq) for collect in load(path).collects] == [("a", 3), ("b", 5)]


def test_dict_may_hold_tuples_and_numpy_numbers() -> None:
    settings = {"enabled": True, "stats": ("max",), "tensors": ("weight",), "freq": numpy.int64(7)}
    [collect] = load({"s": {"enabled": True, "layers": {"layer_numbers": (1, numpy.int32(2))}, "statistics": settings}}).collects
    assert collect.schedule.freq == 7
    assert collect.selection.numbers == {1, 2}


def test_plan_keeps_the_text_and_a_dict_as_yaml(tmp_path: Any) -> None:
    tree = {"s": {"enabled": False, "layers": {"layer_types": "all"}, "statistics": {"enabled": True}}}
    path = tmp_path / "stats.yaml"
    path.write_text("# why\n" + yaml.safe_dump(tree))
    assert load(path).text == path.read_text()
    assert yaml.safe_load(load(tree).text) == tree
