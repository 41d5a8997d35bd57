"""Recipes and plans: what they say of each operand, by which names, and what they refuse."""

from __future__ import annotations

import copy
import pickle

import pytest

from numscope.precision import LayerPlan, recipe_of
from numscope.precision.gemm.plan import OPERANDS
from numscope.precision.gemm.recipes import (
    E4M3,
    E5M2,
    HYBRID,
    MXFP4,
    MXFP8,
    NVFP4,
    RECIPES,
    BlockScaling,
    CurrentScaling,
    Custom,
    DelayedScaling,
    HighPrecision,
    RowwiseScaling,
)
from numscope.records.errors import UsageError
from numscope.records.layer import GEMMS

NAMES = [name for name in RECIPES if name != "custom"]


def formats(plan: LayerPlan) -> dict[str, str | None]:
    return {operand: how and how.format.name for (_, operand), how in plan.items()}


@pytest.mark.parametrize(
    ("fp8_format", "forward", "backward"), [(HYBRID, "e4m3fn", "e5m2"), (E4M3, "e4m3fn", "e4m3fn"), (E5M2, "e5m2", "e5m2")]
)
@pytest.mark.parametrize("kind", [DelayedScaling, CurrentScaling, RowwiseScaling, BlockScaling, MXFP8])
def test_fp8_format_decides_for_gradients_and_the_rest(kind: type, fp8_format: str, forward: str, backward: str) -> None:
    assert formats(kind(fp8_format=fp8_format).plan()) == {"activation": forward, "weight": forward, "gradient": backward}


def test_defaults_of_delayed_scaling_are_transformer_engines() -> None:
    recipe = DelayedScaling()
    said = (recipe.fp8_format, recipe.margin, recipe.amax_history_len, recipe.amax_compute_algo, recipe.interval, recipe.reduce_amax)
    assert said == ("hybrid", 0, 1024, "max", 1, True)


def test_blocks_of_each_recipe() -> None:
    def blocks(recipe: BlockScaling | MXFP8 | MXFP4 | NVFP4) -> dict[str, tuple[int, int]]:
        return {operand: how.scaling.block for (_, operand), how in recipe.plan().items() if how is not None}

    assert blocks(BlockScaling()) == {"activation": (1, 128), "weight": (128, 128), "gradient": (1, 128)}
    assert blocks(MXFP8()) == {"activation": (1, 32), "weight": (1, 32), "gradient": (1, 32)}
    assert blocks(MXFP4()) == {"activation": (1, 32), "weight": (1, 32), "gradient": (1, 32)}
    assert blocks(NVFP4()) == {"activation": (1, 16), "weight": (16, 16), "gradient": (1, 16)}
    assert blocks(NVFP4(two_dimensional_weights=False))["weight"] == (1, 16)


@pytest.mark.parametrize("kind", [NVFP4, MXFP4])
def test_stochastic_rounding_of_fp4_is_the_gradients_alone(kind: type[NVFP4 | MXFP4]) -> None:
    plan = kind(stochastic_rounding=True).plan()
    assert {operand for (_, operand), how in plan.items() if how is not None and how.rounding == "stochastic"} == {"gradient"}


@pytest.mark.parametrize("kind", [NVFP4, MXFP4])
def test_a_rotation_of_fp4_is_wgrads_alone(kind: type[NVFP4 | MXFP4]) -> None:
    plan = kind(rotation="hadamard").plan()
    assert {gemm for (gemm, _), how in plan.items() if how is not None and how.rotation == "hadamard"} == {"wgrad"}
    assert plan.with_high(["wgrad"]) == kind().plan().with_high(["wgrad"])


@pytest.mark.parametrize("name", NAMES)
def test_recipe_of_its_name_is_the_recipe(name: str) -> None:
    recipe = recipe_of(name)
    assert recipe == RECIPES[name]()
    assert recipe.name == name
    assert recipe_of(recipe) is recipe


def test_no_recipe_is_delayed_scaling_and_a_plan_is_a_recipe() -> None:
    assert recipe_of(None) == DelayedScaling()
    plan = CurrentScaling().plan().with_high(["dgrad"])
    assert recipe_of(plan) == Custom(plan)
    assert recipe_of(plan).plan() is plan


def test_enumeration_members_of_other_libraries_are_known_by_name() -> None:
    class Member:
        name = "HYBRID"

    assert DelayedScaling(fp8_format=Member()) == DelayedScaling()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: recipe_of("delaid"), r"recipe: got 'delaid', expected a recipe, or one of delayed, .* Did you mean 'delayed'\?"),
        (lambda: recipe_of(DelayedScaling), r"recipe: got the class DelayedScaling, expected a recipe, such as DelayedScaling\(\)\."),
        (lambda: recipe_of(3), r"recipe: got 3, expected a recipe, or one of"),  # type: ignore[arg-type]
        (lambda: CurrentScaling("hybird"), r"CurrentScaling: fp8_format: got 'hybird', .* Did you mean 'hybrid'\?"),
        (lambda: DelayedScaling(amax_history_len=0), r"amax_history_len: got 0, expected a whole number of at least 1\."),
        (lambda: DelayedScaling(amax_compute_algo="mean"), r"amax_compute_algo: got 'mean', expected one of max, most_recent\."),
        (lambda: DelayedScaling(margin=0.5), r"margin: got 0\.5, expected a whole number"),  # type: ignore[arg-type]
        (lambda: LayerPlan({("fprop", "gradient"): None}), r"LayerPlan: got \('fprop', 'gradient'\), expected one of"),
        (lambda: LayerPlan({("fprop", "weight"): "e4m3"}), r"LayerPlan: fprop weight: got 'e4m3', expected a How, or None"),  # type: ignore[dict-item]
        (lambda: LayerPlan().with_high(["fpop"]), r"gemms: got 'fpop', expected one of fprop, dgrad, wgrad\. Did you mean 'fprop'\?"),
        (lambda: LayerPlan().with_high("fprop"), r"gemms: got 'fprop', expected a list of fprop, dgrad, wgrad, such as \['fprop'\]\."),
    ],
)
def test_wrong_arguments_say_what_is_right(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=f"^{message}"):
        make()


@pytest.mark.parametrize("name", NAMES)
def test_plans_and_recipes_are_values(name: str) -> None:
    recipe = recipe_of(name)
    plan = recipe.plan()
    assert plan == recipe_of(name).plan() and hash(plan) == hash(recipe_of(name).plan())
    for copied in (copy.deepcopy((recipe, plan)), pickle.loads(pickle.dumps((recipe, plan)))):
        assert copied == (recipe, plan)
    with pytest.raises(AttributeError, match="a plan is immutable"):
        plan.high = True


@pytest.mark.parametrize("gemm", GEMMS)
def test_high_gemm_has_no_quantized_operand_and_the_others_keep_theirs(gemm: str) -> None:
    before = DelayedScaling().plan()
    after = before.with_high([gemm])
    assert [g for g in GEMMS if after.is_high(g)] == [gemm]
    assert {key: after[key] for key in OPERANDS if key[0] != gemm} == {key: before[key] for key in OPERANDS if key[0] != gemm}
    assert not after.high and before.with_high().high and before.with_high() == LayerPlan() == HighPrecision().plan()


def test_changes_move_to_another_recipes_plan() -> None:
    delayed, current = DelayedScaling().plan(), CurrentScaling().plan()
    assert delayed.with_high(["wgrad"]).moved_to(delayed, current) == current.with_high(["wgrad"])


def test_plan_in_words() -> None:
    plan = DelayedScaling().plan().with_high(["dgrad"])
    assert plan.text() == "fprop e4m3fn delayed × e4m3fn delayed, dgrad high precision, wgrad e5m2 delayed × e4m3fn delayed"
    assert plan.rows()[2:4] == [("dgrad", "gradient", "high"), ("dgrad", "weight", "high")]
    assert len(plan) == 6 and list(plan) == list(OPERANDS)
    with pytest.raises(KeyError):
        plan["fprop", "gradient"]
