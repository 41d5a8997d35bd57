"""What is to be kept in high precision, as a configuration that means just that."""

from __future__ import annotations

import re

import yaml
from hypothesis import given
from hypothesis import strategies as st

from numscope.config import load
from numscope.precision.search.sections import WHOLE, pattern_of, sections, text_of
from numscope.records.layer import GEMMS


def meant(tree: dict[str, object], layers: list[str]) -> set[tuple[str, str]]:
    """(layer, GEMM) that a configuration keeps high, by the loader's own reading of it."""
    found = set()
    for switch in load(tree).switches if tree else ():
        gemms = GEMMS if switch.feature == "disable_fp8_layer" else switch.settings["gemms"] or GEMMS
        pattern = switch.selection.pattern
        assert pattern is not None
        found |= {(layer, gemm) for layer in layers if re.search(pattern, layer) for gemm in gemms}
    return found


NAMES = ["fc", "fc1", "fc10", "h.1.fc1", "h.11.fc1", "h1.fc1", "a b", "x-y_z", "q(k)+", "Ü.*"]


@given(st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(GEMMS))))
def test_sections_mean_the_units_that_they_were_made_of_and_no_others(kept: set[tuple[str, str]]) -> None:
    tree = yaml.safe_load(text_of(sections(sorted(kept))))
    assert meant(tree, NAMES) == kept


def test_layers_with_the_same_gemms_share_a_section() -> None:
    tree = sections([("a", "fprop"), ("a", "wgrad"), ("b", "wgrad"), ("b", "fprop"), ("c", "fprop"), ("c", "dgrad"), ("c", "wgrad")])
    assert list(tree) == ["high_precision_fprop_wgrad", "high_precision"]
    assert tree["high_precision"]["transformer_engine"] == {"disable_fp8_layer": {"enabled": True}}
    assert tree["high_precision_fprop_wgrad"]["layers"] == {"layer_name_regex_pattern": "^(a|b)$"}


def test_layer_as_a_whole_is_all_its_gemms() -> None:
    assert sections([("a", WHOLE)]) == sections([("a", gemm) for gemm in GEMMS])


def test_section_names_that_are_taken_are_left_alone() -> None:
    assert list(sections([("a", WHOLE)], ["high_precision", "high_precision_2"])) == ["high_precision_3"]


def test_pattern_reads_as_the_name_does() -> None:
    assert pattern_of(["decoder.layers.4.self_attention.linear_proj"]) == r"^decoder\.layers\.4\.self_attention\.linear_proj$"
    assert pattern_of(["x-y", "a b"]) == "^(x-y|a b)$"


def test_head_stands_as_comments_before_the_yaml() -> None:
    text = text_of({"a": {"enabled": True}}, ["one", "two"])
    assert text.startswith("# one\n# two\na:\n")
    assert yaml.safe_load(text) == {"a": {"enabled": True}}


def test_name_with_line_ends_stays_in_the_head() -> None:
    assert yaml.safe_load(text_of({"a": 1}, ["steps of x\nb: 2\rc: 3\u2028d: 4.py"])) == {"a": 1}
