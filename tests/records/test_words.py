"""Suggestions for mistyped words."""

from __future__ import annotations

import pytest

from numscope.records.words import closest, nearest


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
