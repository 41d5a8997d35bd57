"""Regexes are searched for as ``re`` does it, in bounded time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numscope.config import load
from numscope.config.matching import Regex, compiled
from numscope.config.resolving import resolve
from numscope.records.errors import UsageError
from numscope.records.layer import Layer

NAMES = (
    "decoder.layers.3.self_attn.q_proj", "fc1", "model.fc2", "layers.12.mlp.fc1", "lm_head", "transformer.h.11.attn.c_attn",
    "abababc", "", "xxxxxxxxxx", "blocks.4", "a\nfc1", "ababc", "b", "aab.c", "FC1", "größe.1",
)  # fmt: skip
PATTERNS = (
    ".*(fc1|fc2)", r"^(?!.*lm_head).*$", r"layers\.(\d+)\..*(q|k)_proj", "(?i)fc1", "(?i:FC)1", r"(?<=layers\.)\d+", r"(?<!\.)fc",
    r"h\.\d{1,2}\.", "(a|b)*?c", "^$", "", r"\bfc\b", r"(?:layers|blocks)\.(?P<n>[0-9]+)", r".*?\.(\w+)$", r"[^.]+\.weight|fc", "(?!)",
    "(?s:.)(?-i:a)", "a{0}b", "(ab){2,3}c", "(?=(a+))a*b", "(?m)^fc1$", r"(\w+)(?:\.|$)", "(?x) f c 1", r"\Z", r"\W",
)  # fmt: skip

BACKTRACKING = (
    r"^(\w+\.?)+[.]fc9$", "(x+x+)+y", r"(\w*)*!", r"(?:(?!\w*\w*y)\w)*!", r"\w*\w*\w*\w*\w*\w*!", "(a|b|ab)*!",
)  # fmt: skip


def by_re(pattern: str, text: str) -> tuple[str | None, ...] | None:
    match = re.search(pattern, text)
    return None if match is None else (match.group(), *match.groups())


@pytest.mark.parametrize("pattern", PATTERNS)
def test_matches_and_groups_are_those_of_re(pattern: str) -> None:
    for name in NAMES:
        assert compiled(pattern).search(name) == by_re(pattern, name)


_CHARS = st.sampled_from(["a", "b", ".", r"\.", r"\w", "[ab]", "[^a]", "^", "$", r"\b"])
_REPEATED = st.builds(lambda part, times: f"(?:{part}){times}", _CHARS.filter(lambda c: c not in ("^", "$", r"\b")), st.sampled_from(
    ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{0,2}?"]
))  # fmt: skip


@given(
    st.recursive(
        _CHARS | _REPEATED,
        lambda part: st.builds("{}{}".format, part, part) | st.builds("(?:{}|{})".format, part, part) | st.builds("({})".format, part),
        max_leaves=8,
    ),
    st.text("ab.", max_size=8),
)
def test_any_pattern_matches_as_re_does(pattern: str, text: str) -> None:
    assert Regex(pattern).search(text) == by_re(pattern, text)


@given(st.text("ab.*+?|()[]{}\\^$-<!=:P1,", max_size=12), st.text("ab.", max_size=8))
def test_any_text_is_a_regex_or_an_error_as_in_re(pattern: str, text: str) -> None:
    try:
        expected = by_re(pattern, text)
    except (re.error, OverflowError):
        with pytest.raises(re.error):
            Regex(pattern)
        return
    try:
        found = Regex(pattern).search(text)
    except re.error as error:
        assert "not supported" in str(error) or "points" in str(error)
        return
    assert (found is None) == (expected is None)
    assert found is None or found[0] == expected[0] or "*" in pattern


@pytest.mark.parametrize(
    "pattern", [r"^(\w+\.?)+[.]fc9$", "(x+x+)+y", r"(\w*)*!", r"(?:(?!\w*\w*y)\w)*!", r"\w*\w*\w*\w*\w*\w*!", "(a|b|ab)*!"]
)
def test_regex_that_backtracks_ends(pattern: str) -> None:
    begun = time.process_time()
    assert compiled(pattern).search("decoder.layers.31.block_sparse_moe.experts.7.down_proj_" + "ab" * 30) is None
    assert time.process_time() - begun < 20


@pytest.mark.parametrize("where", ["layers", "merge"])
def test_configuration_that_backtracks_starts(where: str) -> None:
    pattern = r"^(\w+\.?)+[.]fc9$"
    section = {"enabled": True, "layers": {"layer_name_regex_pattern": pattern if where == "layers" else "."}}
    statistics = {"enabled": True, "stats": ["max"], "tensors": ["weight"], **({"merge": pattern} if where == "merge" else {})}
    name = "model.decoder.layers_and_more.self_attention.linear_projection"
    begun = time.process_time()
    with pytest.raises(UsageError, match=re.escape("matches none of the")):
        resolve(load({"s": {**section, "statistics": statistics}}), [Layer(name, "Linear", name, ("weight",))])
    assert time.process_time() - begun < 20


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(a)\1", "references to groups are not supported"),
        ("(a)?(?(1)b|c)", "conditions on groups are not supported"),
        ("((a{1000}){1000}){1000}", "it has more than 5000 points with its repeats written out"),
        ("(" * 5000 + ")" * 5000, ""),
    ],
)
def test_what_can_not_be_bounded_is_refused(pattern: str, why: str) -> None:
    layers = {"layer_name_regex_pattern": pattern}
    with pytest.raises(UsageError, match="is not a regular expression: .*" + re.escape(why)):
        load({"s": {"enabled": True, "layers": layers, "statistics": {"enabled": True, "stats": ["max"], "tensors": ["weight"]}}})
