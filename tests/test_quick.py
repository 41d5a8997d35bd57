"""The choice that ``./dev test --quick`` makes."""

from __future__ import annotations

from pathlib import Path

from tests.quick import SLOW_S, quickest

A, B = Path("a"), Path("b")


def test_each_file_has_its_turn_before_one_has_a_second() -> None:
    tests = [(f"a{i}", A, 0.1) for i in range(9)] + [("b0", B, 0.9), ("b1", B, 0.2), ("b2", B, SLOW_S + 1)]
    assert quickest(tests, 0.35) == {"a0", "b1"}
    assert quickest(tests, 0.45) == {"a0", "b1", "a1"}
    assert quickest(tests, 100.0) == {name for name, _, _ in tests} - {"b2"}
