import pytest
from hypothesis import given
from hypothesis import strategies as st

from numscope.records.errors import UsageError
from numscope.summary.extras import ATTENTION, DYNAMICS, EXPONENTS, SIGNS, SPECTRAL, Layout, blockwise
from numscope.summary.operand_casts import PAPER_EXTRAS

ALL = (EXPONENTS, *PAPER_EXTRAS.values(), blockwise(), blockwise(16, 2), blockwise(8, 1, False), DYNAMICS)
layouts = st.lists(st.sampled_from(ALL), max_size=6).map(Layout)


@st.composite
def cells_of(draw: st.DrawFn, num: int) -> tuple[Layout, list[list[float]]]:
    layout = draw(layouts)
    random = draw(st.randoms(use_true_random=False))
    return layout, [[float(random.randrange(2**40)) for _ in range(layout.width)] for _ in range(num)]


@given(cells_of(2))
def test_merge_is_commutative_and_empty_is_its_unit(drawn: tuple[Layout, list[list[float]]]) -> None:
    layout, (a, b) = drawn
    assert layout.merge(a, b) == layout.merge(b, a)
    assert layout.merge(a, layout.empty()) == a


@given(cells_of(3))
def test_merge_is_associative(drawn: tuple[Layout, list[list[float]]]) -> None:
    layout, (a, b, c) = drawn
    assert layout.merge(layout.merge(a, b), c) == layout.merge(a, layout.merge(b, c))


@given(cells_of(1))
def test_from_named_undoes_named(drawn: tuple[Layout, list[list[float]]]) -> None:
    layout, (cells,) = drawn
    assert layout.from_named(layout.named(cells)) == cells


def test_an_absent_column_is_an_empty_one() -> None:
    layout = Layout([PAPER_EXTRAS["e4m3"], EXPONENTS])
    assert layout.from_named({"e4m3_num_overflow": 2, "exponents": None}) == [0.0, 2.0, 0.0] + [0.0] * 256


def test_what_is_asked_for_twice_counts_once() -> None:
    layout = Layout([EXPONENTS, blockwise(), EXPONENTS, blockwise(32, 1, True)])
    assert layout.columns == ("exponents", "block32_dynamic_range")
    assert layout.width == 257 == len(layout.is_max)
    assert layout.offsets == {"exponents": 0, "block32": 256}
    assert layout == Layout([EXPONENTS, blockwise()])


def test_a_histogram_is_named_as_a_list_and_a_number_as_a_number() -> None:
    named = Layout([blockwise(), EXPONENTS]).named([3.5, *range(256)])
    assert named == {"block32_dynamic_range": 3.5, "exponents": list(range(256))}


def test_ranges_merge_to_the_larger_and_counts_add() -> None:
    layout = Layout([blockwise(), PAPER_EXTRAS["fp16"]])
    assert layout.merge([5.0, 1.0, 2.0, 0.5], [3.0, 1.0, 0.0, 0.25]) == [5.0, 2.0, 2.0, 0.75]


def test_what_is_a_largest_value_and_nothing_else_merges_to_the_larger() -> None:
    layout = Layout([EXPONENTS, DYNAMICS, SPECTRAL, ATTENTION, SIGNS, blockwise(), PAPER_EXTRAS["mxfp8"], PAPER_EXTRAS["fp16"]])
    larger = {"largest_singular_value", "attention_largest", "block32_dynamic_range", "mxfp8_max_scale", "mxfp8_max_scale_inv"}
    named = layout.named(layout.is_max)
    assert {column for column, is_max in named.items() if is_max is True} == larger
    assert named["exponents"] == [False] * 256


def test_each_block_shape_has_a_column_of_its_own() -> None:
    shapes = [blockwise(size, dims, both) for size in (16, 32) for dims in (1, 2) for both in (True, False)]
    assert len({extra.columns for extra in shapes}) == 6  # squares have no orientation


def test_updates_are_not_what_the_tensor_kernel_is_given() -> None:
    assert len(Layout([DYNAMICS]).packed) == 0
    assert list(Layout([DYNAMICS, PAPER_EXTRAS["bf16"], blockwise(16, 2)]).packed) == [1, 11, 16, 4]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: blockwise(0), "block_size: got 0, expected a whole number from 1 to 1024."),
        (lambda: blockwise(True), "block_size: got True, expected a whole number from 1 to 1024."),
        (lambda: blockwise(32.0), "block_size: got 32.0, expected a whole number from 1 to 1024."),  # type: ignore[arg-type]
        (lambda: blockwise(32, 3), "dims: got 3, expected 1 or 2."),
        (lambda: blockwise(32, 1, "yes"), "max_over_orientations: got 'yes', expected true or false."),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_setting_is_named(call: object, message: str) -> None:
    with pytest.raises(UsageError) as error:
        call()  # type: ignore[operator]
    assert str(error.value) == message
