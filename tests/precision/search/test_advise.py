"""Which format each operand could take, and which GEMMs to keep high."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from numscope.precision.casting.cast import cast
from numscope.precision.gemm.recipes import MXFP8, CurrentScaling, DelayedScaling, HighPrecision, Recipe
from numscope.precision.search.advise import HIGH, Limits, Price, advice_of, cells_of, merged, rows
from numscope.precision.search.measuring import WhatIf, candidates
from numscope.records.errors import UsageError


def counts(numel: float = 1000, underflow: float = 0, overflow: float = 0, noise: float = 1e-4, num_casts: float = 1) -> dict[str, float]:
    return {"numel": numel, "num_underflow": underflow, "num_overflow": overflow, "noise": noise, "num_casts": num_casts}


def test_price_is_the_mean_noise_of_casts_and_shares_of_all_elements() -> None:
    assert Price.of(counts(underflow=20, overflow=5, noise=0.004, num_casts=4)) == Price(30.0, 0.5, 2.0)
    assert Price.of(counts(noise=0.0)).sqnr_db == math.inf
    assert Price.of(counts(noise=math.inf)).sqnr_db == -math.inf
    assert Price.of(counts(numel=0)).sqnr_db is None


def test_limits_are_what_may_just_be() -> None:
    limits = Limits(20.0, 1.0, 5.0)
    assert Price(20.0, 1.0, 5.0).exceeds(limits) == ()
    assert Price(19.9, 1.1, 5.1).exceeds(limits) == ("SQNR", "saturated", "flushed")
    assert Price(None, 0.0, 0.0).exceeds(limits) == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_saturated_pct": 101.0}, "max_saturated_pct: got 101.0, expected a percentage from 0 to 100."),
        ({"max_flushed_pct": -1.0}, "max_flushed_pct: got -1.0, expected a percentage from 0 to 100."),
        ({"min_sqnr_db": math.nan}, "min_sqnr_db: got nan, expected a number of decibels, such as 20."),
    ],
)
def test_limits_out_of_range_are_refused(given: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Limits(**given)
    assert str(caught.value) == message


@pytest.mark.parametrize(("price", "text"), [
    (Price(31.49, 0.0, 0.004), ("31.5", "0", "<0.01")),
    (Price(math.inf, 12.345, 100.0), ("exact", "12.3", "100")),
    (Price(None, 0.0, 0.0), ("-", "-", "-")),
])  # fmt: skip
def test_what_is_not_zero_never_reads_as_zero(price: Price, text: tuple[str, str, str]) -> None:
    assert cells_of(price) == text


PLAN = {
    "fprop": {"activation": "d", "weight": "d"},
    "dgrad": {"gradient": "d", "weight": "d"},
    "wgrad": {"gradient": "d", "activation": "d"},
}


def measured(**bad: dict[str, dict[str, float]]) -> dict[str, Any]:
    good = {key: counts() for key in ("e4m3", "e5m2", "block", "mxfp8", "bf16", "fp16", "d")}
    operands = {
        operand: {"numel": 1000, "num_nan": 0, "num_inf": 0, "amax": 1.0, "casts": {**good, **bad.get(operand, {})}}
        for operand in ("activation", "weight", "gradient")
    }
    return {"num_steps": 3, "plan": PLAN, "layers": {"fc": {"class": "Linear", "operands": operands}}}


@pytest.mark.parametrize(
    ("operand", "gemms"), [("activation", ("fprop", "wgrad")), ("weight", ("fprop", "dgrad")), ("gradient", ("dgrad", "wgrad"))]
)
def test_bad_operand_keeps_the_gemms_that_take_it_high(operand: str, gemms: tuple[str, ...]) -> None:
    advice = advice_of(measured(**{operand: {"d": counts(overflow=500)}}), Limits())
    assert advice.high == tuple(("fc", gemm) for gemm in gemms)
    assert {one.operand: one.exceeds for one in advice.operands if one.exceeds} == {operand: ("saturated",)}


def test_first_format_in_order_that_is_within_the_limits_is_the_one_it_could_take() -> None:
    few = {"e4m3": counts(underflow=100), "e5m2": counts(noise=0.1), "block": counts(overflow=60)}
    advice = advice_of(measured(activation=few), Limits())
    assert [one.takes for one in advice.operands] == ["mxfp8", "e4m3", "e4m3"]
    assert advice.high == ()


def test_operand_that_no_format_suits_is_high() -> None:
    all_bad = {key: counts(noise=1.0) for key in ("e4m3", "e5m2", "block", "mxfp8", "bf16", "fp16")}
    first = advice_of(measured(activation=all_bad), Limits()).operands[0]
    assert (first.takes, first.price) == (HIGH, None)


def test_operand_with_nan_takes_no_format_and_is_kept_high() -> None:
    numbers = measured()
    numbers["layers"]["fc"]["operands"]["weight"]["num_nan"] = 1
    advice = advice_of(numbers, Limits())
    assert advice.high == (("fc", "fprop"), ("fc", "dgrad"))
    assert next(one for one in advice.operands if one.operand == "weight").exceeds == ("nan or inf",)


def test_gemm_that_the_recipe_leaves_high_is_not_counted() -> None:
    numbers = measured(activation={"d": counts(noise=1e5)})
    numbers["plan"] = {**PLAN, "fprop": {"activation": None, "weight": None}}
    advice = advice_of(numbers, Limits())
    assert advice.num_gemms == 2
    assert advice.high == (("fc", "wgrad"),)


def test_ranks_numbers_add_up() -> None:
    one, two = measured(), measured(activation={"d": counts(overflow=500)})
    two["layers"]["fc"]["operands"]["activation"]["amax"] = 7.0
    whole = merged([one, two])
    seen = whole["layers"]["fc"]["operands"]["activation"]
    assert (seen["numel"], seen["amax"]) == (2000, 7.0)
    assert seen["casts"]["d"] == counts(numel=2000, overflow=500, noise=2e-4, num_casts=2)


def test_rows_have_a_cell_for_each_column() -> None:
    assert {len(row) for row in rows(advice_of(measured(), Limits()))} == {11}


# ---------------------------------------------------------------------------------------------------- measured on a model


def measure(model: nn.Module, recipe: Recipe, inputs: list[torch.Tensor]) -> dict[str, Any]:
    delayed = recipe if isinstance(recipe, DelayedScaling) else DelayedScaling()
    what_if = WhatIf(recipe.plan(), delayed.history)
    what_if.add(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for x in inputs:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    what_if.close()
    return {**what_if.numbers(), "num_steps": len(inputs)}


def test_measured_casts_are_those_of_the_operands() -> None:
    torch.manual_seed(1)
    model, x = nn.Linear(64, 40), torch.randn(33, 64) * 3
    weight = model.weight.detach().clone()
    seen = measure(model, CurrentScaling(), [x])["layers"]["Layer_1"]["operands"]
    for operand, tensor in (("activation", x), ("weight", weight)):
        for key, (how, scale) in candidates(operand).items():
            values = cast(tensor, how, scale=scale).values
            assert values is not None
            noise = (values.double() - tensor.double()).square().sum() / tensor.double().square().sum()
            assert seen[operand]["casts"][key]["noise"] == pytest.approx(noise.item(), rel=1e-6), key
    assert seen["gradient"]["numel"] == 33 * 40


def test_block_formats_are_measured_along_both_directions() -> None:
    seen = measure(nn.Linear(64, 32), MXFP8(), [torch.randn(32, 64)])
    assert set(seen["plan"]["fprop"].values()) != set(seen["plan"]["wgrad"].values())
    casts = seen["layers"]["Layer_1"]["operands"]["activation"]["casts"]
    assert {seen["plan"]["fprop"]["activation"], seen["plan"]["wgrad"]["activation"]} < set(casts)


def test_conv1ds_weight_is_measured_in_the_directions_of_the_linear_layer_that_it_stands_for() -> None:
    from transformers.pytorch_utils import Conv1D

    torch.manual_seed(0)
    conv, linear, x = Conv1D(64, 32), nn.Linear(32, 64), torch.randn(32, 32)
    with torch.no_grad():
        conv.weight *= torch.linspace(-9, 9, 64).exp2()  # one direction is another thing than the other
        linear.weight.copy_(conv.weight.T)
        linear.bias.zero_()
    one, other = (measure(model, MXFP8(), [x])["layers"]["Layer_1"]["operands"]["weight"]["casts"] for model in (conv, linear))
    planned = [key for key in one if "e8m0" in key]
    assert len(planned) == 2
    for key in planned:
        assert one[key]["noise"] == pytest.approx(other[key]["noise"], rel=1e-9)
    assert one[planned[0]]["noise"] != pytest.approx(one[planned[1]]["noise"], rel=1e-3)


def test_activation_that_outgrows_delayed_scaling_is_marked_and_would_take_current_scaling() -> None:
    torch.manual_seed(0)
    numbers = measure(nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 8)), DelayedScaling(), [
        torch.randn(64, 32) * 8.0**step for step in range(5)
    ])  # fmt: skip
    advice = advice_of(numbers, Limits())
    assert {layer for layer, _ in advice.high} == {"0"}
    first = advice.operands[0]
    assert (first.layer, first.operand, first.takes) == ("0", "activation", "e4m3")
    assert "saturated" in first.exceeds and "SQNR" in first.exceeds


def test_first_step_of_delayed_scaling_does_not_count() -> None:
    x = torch.randn(64, 32) * 1000  # beyond e4m3 at the first step's scale of 1
    numbers = measure(nn.Linear(32, 8, bias=False), DelayedScaling(), [x, x, x])
    casts = numbers["layers"]["Layer_1"]["operands"]["activation"]["casts"]
    key = numbers["plan"]["fprop"]["activation"]
    assert casts[key]["num_overflow"] == 0
    assert casts[key]["numel"] == 2 * x.numel()


def test_outlier_that_flushes_all_others_is_marked_though_square_sums_hide_it() -> None:
    x = torch.randn(64, 32)
    x[0, 0] = 1e9
    advice = advice_of(measure(nn.Linear(32, 8), CurrentScaling(), [x]), Limits())
    first = advice.operands[0]
    assert first.exceeds == ("flushed",)
    assert first.prices["e4m3"].sqnr_db is not None and first.prices["e4m3"].sqnr_db > 20
    assert first.takes == "block"


def test_measuring_changes_nothing_of_the_training() -> None:
    def train(watched: bool) -> list[torch.Tensor]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        inputs = [torch.randn(4, 8) for _ in range(3)]
        if watched:
            measure(model, DelayedScaling(), inputs)
        else:
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
            for x in inputs:
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
        return [p.detach() for p in model.parameters()]

    assert all(map(torch.equal, train(True), train(False)))


def test_recipe_in_high_precision_measures_formats_and_keeps_nothing() -> None:
    advice = advice_of(measure(nn.Linear(8, 8), HighPrecision(), [torch.randn(4, 8)]), Limits())
    assert advice.high == () and advice.num_gemms == 0
    assert all(one.planned is None and one.takes != HIGH for one in advice.operands)


def test_parts_of_fused_modules_are_measured_with_the_weights_that_their_parents_hold() -> None:
    from numscope.precision.modules import LayerNormMLP

    layers = measure(LayerNormMLP(16, 32), DelayedScaling(), [torch.randn(4, 3, 16)])["layers"]
    assert [sorted(told["operands"]) for told in layers.values()] == [["activation", "gradient", "weight"]] * 2
