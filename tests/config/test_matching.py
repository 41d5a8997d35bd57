"""Regexes are searched for as ``re`` does it, in bounded time."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numscope.config import load, matching
from numscope.config.matching import Regex, compiled
from numscope.config.resolving import resolve
from numscope.records.errors import UsageError
from numscope.records.layer import Layer

NAMES = (
    "decoder.layers.3.self_attn.q_proj", "fc1", "model.fc2", "layers.12.mlp.fc1", "lm_head", "transformer.h.11.attn.c_attn",
    "abababc", "", "xxxxxxxxxx", "blocks.4", "a\nfc1", "ababc", "b", "aab.c", "FC1", "größe.1", "a{e}", "abd",
)  # fmt: skip
PATTERNS = (
    ".*(fc1|fc2)", r"^(?!.*lm_head).*$", r"layers\.(\d+)\..*(q|k)_proj", "(?i)fc1", "(?i:FC)1", r"(?<=layers\.)\d+", r"(?<!\.)fc",
    r"h\.\d{1,2}\.", "(a|b)*?c", "^$", "", r"\bfc\b", r"(?:layers|blocks)\.(?P<n>[0-9]+)", r".*?\.(\w+)$", r"[^.]+\.weight|fc", "(?!)",
    "(?s:.)(?-i:a)", "a{0}b", "(ab){2,3}c", "(?=(a+))a*b", "(?m)^fc1$", r"(\w+)(?:\.|$)", "(?x) f c 1", r"\Z", r"\W", r"(a)\1",
    "(a)?(?(1)b|c)", "(a*)*", "(abc){e}", "(?:abc){e<=1}", r"a\{e}", "[{]e", "a{}", "a{,}b", "x{,2}", "[a||b]",
)  # fmt: skip


def by_re(pattern: str, text: str) -> tuple[str | None, ...] | None:
    match = re.search(pattern, text)
    return None if match is None else (match.group(), *match.groups())


@pytest.mark.filterwarnings("ignore:Possible set")
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
        lambda part: (
            st.builds("{}{}".format, part, part)
            | st.builds("(?:{}|{})".format, part, part)
            | st.builds("({})".format, part)
            | st.builds("({0}{1})".format, st.sampled_from(["?=", "?!", "?i:"]), part)
        ),
        max_leaves=8,
    ),
    st.text("abB.", max_size=8),
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
        assert "parts" in str(error)
        return
    assert (found is None) == (expected is None)
    assert found is None or found[0] == expected[0] or "*" in pattern


BACKTRACKING = (
    r"^(\w+\.?)+[.]fc9$", "(x+x+)+y", r"(\w*)*!", r"(?:(?!\w*\w*y)\w)*!", r"\w*\w*\w*\w*\w*\w*!", "(a|b|ab)*!",
    r"(?:(?:\w{0,60}){0,60}){0,60}!|\d{9}", r"(\w|\w\w|\w\w\w)*(?=\1\1\1!)", r"(.*)(.*)(.*)(.*)(.*)(.*)\1\2\3\4!|\6{99}",
)  # fmt: skip
NAME = "decoder.layers.31.block_sparse_moe.experts.7.down_proj_" + "ab" * 30


@pytest.mark.parametrize("pattern", BACKTRACKING)
def test_regex_that_backtracks_ends(pattern: str) -> None:
    begun = time.process_time()
    for number in range(100):
        try:
            assert compiled(pattern).search(f"{NAME}{number}") is None
        except UsageError as error:
            assert "takes more than 1 s" in str(error)
    assert time.process_time() - begun < 20


@pytest.mark.parametrize("where", ["layers", "merge"])
def test_configuration_that_backtracks_ends_with_its_place(where: str) -> None:
    pattern = r"(?:(?:\w{0,60}){0,60}){0,60}!|(\d{9})"
    section = {"enabled": True, "layers": {"layer_name_regex_pattern": pattern if where == "layers" else "."}}
    statistics = {"enabled": True, "stats": ["max"], "tensors": ["weight"], **({"merge": pattern} if where == "merge" else {})}
    begun = time.process_time()
    place = "s.layers.layer_name_regex_pattern" if where == "layers" else "s.statistics.merge"
    with pytest.raises(UsageError, match=rf"^config: {place}: .* takes more than 1 s, expected less\. Write it without") as raised:
        resolve(load({"s": {**section, "statistics": statistics}}), [Layer(NAME, "Linear", NAME, ("weight",))])
    assert "{0,60}" in str(raised.value)
    assert time.process_time() - begun < 20


def test_search_that_waits_for_its_turn_is_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine, in a process that searches for one regex all day."""
    waits = iter([True, False] * 3)

    class Waiting:
        def search(self, text: str, timeout: float) -> Any:
            time.sleep(0.02)
            if next(waits, False):
                raise TimeoutError
            return re.search("b", text)

    search = Regex(".*")
    monkeypatch.setattr(search, "_regex", Waiting())
    monkeypatch.setattr(matching, "MAX_S", 0.1)
    search._left_s = 0.1
    assert [search.search("abc") for _ in range(20)] == [("b",)] * 20


def test_one_slow_regex_of_ordinary_ones_is_found_in_no_time() -> None:
    begun = time.process_time()
    for number in range(1000):
        assert compiled(r"^(\w+\.?)+[.]fc9$").search(f"{NAME}.{number}") is None
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("((a{1000}){1000}){1000}", "it has more than 100000 parts with its repeats written out"),
        ("(?x)((a{1000}) {1000} # )\n) {1000}", "it has more than 100000 parts with its repeats written out"),
        ("((a{1000})(?#)){1000}){1000}".replace("((a", "(((a"), "it has more than 100000 parts with its repeats written out"),
        ("(?:" * 90 + "a" + "+)" * 90, "it has more than 100000 parts with its repeats written out"),
        ("a" * 200_000, "it has more than 100000 parts with its repeats written out"),
        ("(" * 5000 + ")" * 5000, ""),
        ("a{" + "9" * 5000 + "}", ""),
    ],
)
def test_what_can_not_be_bounded_is_refused(pattern: str, why: str) -> None:
    layers = {"layer_name_regex_pattern": pattern}
    with pytest.raises(UsageError, match="is not a regular expression: .*" + re.escape(why)):
        load({"s": {"enabled": True, "layers": layers, "statistics": {"enabled": True, "stats": ["max"], "tensors": ["weight"]}}})
