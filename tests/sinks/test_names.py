"""Names in lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from numscope.sinks.names import one_line


@given(st.text())
def test_one_line_never_ends_a_line_and_keeps_what_prints(text: str) -> None:
    shown = one_line(text)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    if text.isprintable():
        assert shown == text
