"""Suggestions for mistyped words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numscope.records.words import closest, escape, nearest, one_of


@pytest.mark.parametrize(
    ("word", "most", "text"),
    [
        ("kurtosi", 1, " Did you mean 'kurtosis'?"),
        ("KURTOSIS", 1, " Did you mean 'kurtosis'?"),
        ("l2norm", 3, " Did you mean 'l2_norm' or 'l1_norm'?"),
        ("xyzzy", 3, ""),
        (7, 1, ""),
    ],
)
def test_nearest_names_the_known_words_that_are_like_the_word(word: object, most: int, text: str) -> None:
    assert nearest(word, ["l1_norm", "kurtosis", "l2_norm"], most) == text


def test_closest_word_is_written_as_it_is_known() -> None:
    assert closest("linear", {"Linear": 1, "Conv2d": 2}) == ["Linear"]


def test_long_list_is_cut_short_more_so_beside_a_guess() -> None:
    names = [f"name{number}" for number in range(30)]
    assert one_of("nam7", names[:10]) == f"one of {', '.join(names[:10])}. Did you mean 'name7'?"
    assert one_of("nam7", names) == f"one of {', '.join(names[:8])}, …. Did you mean 'name7'?"
    assert one_of("xyzzy", names) == f"one of {', '.join(names[:24])}, …."


@given(st.text())
def test_escaped_text_never_ends_a_line_and_keeps_what_prints(text: str) -> None:
    shown = escape(text)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    if text.isprintable():
        assert shown == text
