"""What switches make of a plan, as data: precedence, lists left out, schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numscope.config import load
from numscope.config.plan import Switch
from numscope.precision.casting.scaling import PER_TENSOR, How
from numscope.precision.gemm.plan import OPERANDS, LayerPlan
from numscope.precision.gemm.recipes import recipe_of
from numscope.precision.gemm.switching import fake_how, fake_results, phases, switched
from numscope.records.layer import GEMMS

DELAYED = recipe_of("delayed").plan()


def switches(**features: Any) -> tuple[Switch, ...]:
    tree = {name: {"enabled": True, **settings} for name, settings in features.items()}
    return load({"transformer_engine": tree}).switches if tree else ()


def layer_plan(default: LayerPlan, found: Sequence[Switch], step: int) -> LayerPlan:
    return switched(default, [switch for switch in found if switch.schedule.active(step)])


def high_in(plan: LayerPlan) -> set[str]:
    return {gemm for gemm in GEMMS if plan.is_high(gemm)}


def test_disabled_gemms_are_in_high_precision_and_the_others_as_they_were() -> None:
    plan = layer_plan(DELAYED, switches(disable_fp8_gemm={"gemms": ["dgrad"]}), 0)
    assert high_in(plan) == {"dgrad"}
    assert all(plan[key] is DELAYED[key] for key in OPERANDS if key[0] != "dgrad")


@pytest.mark.parametrize(
    "feature", ["disable_fp8_gemm", "DisableFP8GEMM", "DisableQuantizationGEMM", "disable_fp8_layer", "DisableFP8Layer"]
)
def test_no_list_of_gemms_means_all(feature: str) -> None:
    assert layer_plan(DELAYED, switches(**{feature: {}}), 0).high


def test_per_tensor_scaling_takes_the_tensors_own_amax_and_keeps_formats() -> None:
    plan = layer_plan(DELAYED, switches(per_tensor_scaling={"gemms": ["wgrad"], "margin": 2}), 0)
    assert plan["wgrad", "gradient"] == How("e5m2", PER_TENSOR, margin=2)
    assert plan["wgrad", "activation"] == How("e4m3", PER_TENSOR, margin=2)
    assert all(plan[key] == DELAYED[key] for key in OPERANDS if key[0] != "wgrad")
    one = layer_plan(DELAYED, switches(per_tensor_scaling={"tensors": ["weight"]}), 0)
    assert {key for key in OPERANDS if one[key] != DELAYED[key]} == {("fprop", "weight"), ("dgrad", "weight")}


def test_per_tensor_scaling_leaves_high_precision_as_it_is() -> None:
    assert layer_plan(LayerPlan(), switches(per_tensor_scaling={}), 0).high


def test_fake_quant_takes_the_chosen_operands_and_leaves_the_gemms_others_in_high_precision() -> None:
    found = switches(fake_quant={"gemms": ["fprop"], "tensors": ["weight", "output"], "quant_format": "MXFP8E5M2"})
    for default in (LayerPlan(), DELAYED):
        plan = layer_plan(default, found, 0)
        weight = plan["fprop", "weight"]
        assert weight is not None and (weight.format.name, weight.scaling.block, weight.scaling.scale_format) == ("e5m2", (1, 32), "e8m0")
        assert plan["fprop", "activation"] is None
        assert all(plan[key] == default[key] for key in OPERANDS if key[0] != "fprop")
    assert fake_results(found) == {"output": fake_how("MXFP8E5M2")}


def test_the_entries_of_a_struct_act_together() -> None:
    gemms = [
        {"gemm": "fprop", "tensors_struct": [{"tensor": "activation"}, {"tensor": "weight", "quant_format": "FP8E5M2"}]},
        {"gemm": "dgrad", "tensors": ["gradient"]},
    ]
    plan = layer_plan(LayerPlan(), switches(FakeQuant={"quant_format": "FP8E4M3", "gemms_struct": gemms}), 0)
    assert {key: how.format.name for key, how in plan.items() if how is not None} == {
        ("fprop", "activation"): "e4m3fn",
        ("fprop", "weight"): "e5m2",
        ("dgrad", "gradient"): "e4m3fn",
    }


FEATURE = st.sampled_from(["disable_fp8_layer", "disable_fp8_gemm", "fake_quant", "per_tensor_scaling"])
SOME = st.lists(st.sampled_from(GEMMS), min_size=1, unique=True)


@given(
    given=st.dictionaries(
        FEATURE, st.tuples(SOME, st.lists(st.sampled_from(["activation", "weight", "gradient"]), min_size=1, unique=True))
    ),
    recipe=st.sampled_from(["delayed", "current", "mxfp8", "high_precision"]),
)
def test_the_stronger_switch_has_the_word(given: dict[str, tuple[list[str], list[str]]], recipe: str) -> None:
    """disable_fp8_layer, disable_fp8_gemm, fake_quant, per_tensor_scaling, in this order, whatever the order in the file."""
    settings: dict[str, Any] = {
        "disable_fp8_layer": lambda gemms, tensors: {},
        "disable_fp8_gemm": lambda gemms, tensors: {"gemms": gemms},
        "fake_quant": lambda gemms, tensors: {"gemms": gemms, "tensors": tensors, "quant_format": "FP8E5M2"},
        "per_tensor_scaling": lambda gemms, tensors: {"gemms": gemms, "tensors": tensors, "margin": 3},
    }
    default = recipe_of(recipe).plan()
    plan = switched(default, switches(**{name: settings[name](*of) for name, of in given.items()}))
    for gemm, operand in OPERANDS:
        old, new = default[gemm, operand], plan[gemm, operand]
        fake, scaling = given.get("fake_quant"), given.get("per_tensor_scaling")
        if "disable_fp8_layer" in given or gemm in given.get("disable_fp8_gemm", [[]])[0]:
            assert new is None
        elif fake and gemm in fake[0]:
            assert new == (How("e5m2") if operand in fake[1] else None)
        elif scaling and gemm in scaling[0] and operand in scaling[1]:
            assert new == (None if old is None else How(old.format, margin=3))
        else:
            assert new == old


def test_switches_act_at_the_steps_of_their_schedule() -> None:
    found = switches(disable_fp8_layer={"freq": 2, "start_step": 1, "end_step": 5})
    assert [step for step in range(10) if layer_plan(DELAYED, found, step).high] == [2, 4]
    assert layer_plan(DELAYED, found, 3) is DELAYED


def test_phases_are_the_plans_with_their_steps() -> None:
    found = switches(disable_fp8_layer={"start_end_list": [[2, 3], [6, -1]]})
    assert phases(DELAYED, found, range(9)) == [((DELAYED, ()), [(0, 1), (4, 5)]), ((LayerPlan(), ()), [(2, 3), (6, 8)])]
    assert phases(DELAYED, (), range(9)) == [((DELAYED, ()), [(0, 8)])]


def test_phases_tell_casts_of_results_too() -> None:
    found = switches(fake_quant={"tensors": ["output"], "quant_format": "FP8E5M2", "end_step": 1})
    (faked, spans), (after, _) = phases(LayerPlan(), found, range(4))
    assert (faked, spans) == ((LayerPlan(), (("output", fake_how("FP8E5M2")),)), [(0, 1)])
    assert after == (LayerPlan(), ())


@pytest.mark.parametrize(
    ("word", "form", "kind"), [("FP8E4M3", "e4m3fn", "tensor"), ("FP8E5M2", "e5m2", "tensor"), ("MXFP8E4M3", "e4m3fn", "block")]
)
def test_quant_format_is_a_format_and_a_scaling(word: str, form: str, kind: str) -> None:
    how = fake_how(word)
    assert (how.format.name, how.scaling.kind, how.delayed) == (form, kind, False)
