"""What C derives from a row equals what Python does, to the last bit."""

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from numscope.inspect.sites import KNOWN, Derived
from numscope.records.observation import FIELDS
from numscope.summary import native
from numscope.summary.dispatch import summarize
from numscope.summary.state import DERIVED, EMPTY_ROW, Summary

pytestmark = pytest.mark.skipif(native.module is None, reason="the native kernel was not built")

NAMES = ("num_nan", "min", "max", "abs_min", *DERIVED)


def same(found: Any, expected: Any) -> bool:
    return type(found) is type(expected) and (found == expected or (found != found and expected != expected))


def check(row: list[float]) -> None:
    summary = Summary.from_row(row)
    for name in KNOWN:
        try:
            expected = getattr(summary, name)
        except (ValueError, OverflowError):  # of a row that no tensor has
            continue
        fields, values = Derived({"it": name}).of(row)
        assert values.keys() == {"it"} and same(value := values["it"], expected), f"{name} of {row}: C has {value!r}, Python {expected!r}"
        assert tuple(fields) == FIELDS
        assert all(map(same, fields.values(), (getattr(summary, name) for name in FIELDS)))


def test_c_knows_all_that_need_no_higher_powers() -> None:
    assert {*NAMES} - {*KNOWN} == {"skewness", "kurtosis"}
    assert {*KNOWN} <= {*NAMES}


finite = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 1 << 53).map(float) | st.integers(0, 40).map(float)


@given(st.lists(st.floats(width=32) | st.sampled_from([1000.0, 1000.5, 1e-39, -0.0]), max_size=50))
def test_of_rows_of_tensors(xs: list[float]) -> None:
    check(summarize(torch.tensor(xs, dtype=torch.float32)).to_row())


@given(st.lists(finite, max_size=50), finite)
def test_of_rows_of_float64_far_from_zero(xs: list[float], base: float) -> None:
    check(summarize(torch.tensor([base + x for x in xs], dtype=torch.float64)).to_row())


@given(st.tuples(*[counts] * 6), st.tuples(*[st.floats()] * 10))
@example((4.0, 0.0, 0.0, 0.0, 0.0, 0.0), (1.0, 2.0, 1.0, 2.0, 6.0, 6.0, 10.0, 0.0, 0.0, 0.0))
@example((2.0, 0.0, 0.0, 0.0, 0.0, 0.0), (1.0, 1.0 + 2**-52, 1.0, 1.0, 2.0, 2.0, 2.0, 0.0, 0.0, 0.0))
def test_of_rows_that_no_tensor_has(numbers: tuple[float, ...], others: tuple[float, ...]) -> None:
    row = [*numbers, *others]
    if sum(numbers[1:4]) <= numbers[0]:
        check(row)


@given(st.lists(st.integers(-8, 8).map(lambda k: k / 8), min_size=1, max_size=30), st.sampled_from([0.0, 1.0, 2.0**-30, 1e30, 3.0]))
def test_where_the_result_is_a_number_in_the_middle_of_two_doubles_or_nearly_so(xs: list[float], center: float) -> None:
    devs = [x - center for x in xs]
    sums = [sum(x**k for x in devs) for k in range(1, 5)]
    extrema = min(xs), max(xs), min((abs(x) for x in xs if x), default=math.inf), max(map(abs, xs))
    check([float(len(xs)), *[0.0] * 5, *extrema, sums[0], sum(map(abs, xs)), *sums[1:], center])


def test_of_several_names_in_order_and_of_others_in_python() -> None:
    row = summarize(torch.arange(8.0)).to_row()
    summary = Summary.from_row(row)
    for names in itertools.permutations(["std", "kurtosis", "max", "num_nan"], 3):
        wanted = {f"my {name}": name for name in names}
        assert [*Derived(wanted).of(row)[1].items()] == [(label, getattr(summary, name)) for label, name in wanted.items()]


def test_of_a_row_that_is_none_c_leaves_all_to_python() -> None:
    assert native.module is not None
    assert native.module.derive([1.0], FIELDS, (), b"") is None
    assert native.module.derive([*EMPTY_ROW[:-1], 0], FIELDS, (), b"") is None  # an int
    assert native.module.derive([*EMPTY_ROW], FIELDS, ("x",), b"") is None
    assert native.module.derive([*EMPTY_ROW], FIELDS, ("x",), bytes([250])) is None
    for wrong in ([*EMPTY_ROW],), ([*EMPTY_ROW], FIELDS[1:], (), b""), ([*EMPTY_ROW], FIELDS, [], b""):
        with pytest.raises(TypeError, match="two tuples and bytes"):
            native.module.derive(*wrong)
