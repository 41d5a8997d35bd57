"""Statistics of the casts that GEMMs make: exact, of each operand, merged over micro-batches, written like any other statistic."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.precision.casting.cast import cast
from numscope.precision.casting.scaling import How, Scaling
from numscope.precision.gemm.autocasting import autocast
from numscope.precision.gemm.conversion import convert
from numscope.precision.gemm.recipes import MXFP8, NVFP4, CurrentScaling, DelayedScaling
from tests.precision.oracle import cast_number

STATS = ["underflows", "overflows%", "mse", "scale_inv_min", "scale_inv_max"]
OPERANDS = ["activation", "weight", "gradient"]
LINE = re.compile(r"INFO - (\S+)\s+iteration=(\d{6})\s+value=(\S+)")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(16, 24)
        self.fc2 = nn.Linear(24, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


def config(stats: Sequence[str] = STATS, layers: str = ".*", name: str = "collect_fp8_tensor_stats", **more: Any) -> dict[str, Any]:
    feature = {"enabled": True, "type" if name.islower() else "stats": list(stats), "tensors": OPERANDS} | more
    return {"section": {"enabled": True, "layers": {"layer_name_regex_pattern": layers}, "transformer_engine": {name: feature}}}


class Kept:
    def __init__(self) -> None:
        self.lines: dict[tuple[int, str], float] = {}

    def log_scalar(self, name: str, value: float, iteration: int, **_: Any) -> None:
        assert (iteration, name) not in self.lines
        self.lines[iteration, name] = value


class Operands:
    """What one layer's GEMMs take, seen by hooks of its own."""

    def __init__(self, layer: nn.Linear) -> None:
        self.seen: dict[str, list[Tensor]] = {operand: [] for operand in OPERANDS}
        self.layer = layer
        layer.register_forward_hook(self._after)

    def _after(self, layer: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        self.seen["activation"].append(args[0].detach().clone())
        output.register_hook(lambda gradient: self.seen["gradient"].append(gradient.clone()))

    def step(self) -> dict[str, Tensor]:
        found = {name: torch.cat(seen) for name, seen in self.seen.items() if seen}
        self.seen = {operand: [] for operand in OPERANDS}
        return {**found, "weight": self.layer.weight.detach().clone()}


def train(model: nn.Module, steps: int) -> None:
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 16)).square().mean().backward()
        optimizer.step()


def by_brute_force(x: Tensor, form: str, scale: float) -> dict[str, float]:
    """Each element alone, in exact fractions, against every code of the format."""
    num_under = num_over = 0
    error = 0.0
    factor, inverse = np.float32(scale), np.float32(1) / np.float32(scale)
    for element in x.flatten().numpy():
        value, overflowed = cast_number(form, float(np.float32(element) * factor))
        num_over += overflowed
        num_under += element != 0 and value == 0
        error += (float(np.float32(value) * inverse) - float(element)) ** 2
    numel = x.numel()
    return {
        "underflows": 100 * num_under / numel,
        "overflows%": 100 * num_over / numel,
        "mse": error / numel,
        "scale_inv_min": float(inverse),
        "scale_inv_max": float(inverse),
    }


FORMS = {"activation": ("e4m3fn", 448.0), "weight": ("e4m3fn", 448.0), "gradient": ("e5m2", 57344.0)}


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_counts_are_those_of_each_element_by_itself(micro_batches: int) -> None:
    torch.manual_seed(0)
    model = convert(Net(), "delayed")
    operands, kept = Operands(model.fc2), Kept()
    seen: list[dict[str, Tensor]] = []
    with numscope.watch(model, config=config(), on_nonfinite=None, loggers=[kept]):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        handle = optimizer.register_step_pre_hook(lambda *_: seen.append(operands.step()))
        generator = torch.Generator().manual_seed(5)
        for step in range(3):
            optimizer.zero_grad()
            for _ in range(micro_batches):
                loss = model(torch.randn(4, 16, generator=generator) * 40.0**step).square().mean()
                (loss * (1.0 if step else 1e-3)).backward()  # gradients that e5m2 loses while the scale is still 1
            optimizer.step()
        handle.remove()
    amax = dict.fromkeys(OPERANDS, 0.0)
    for step, tensors in enumerate(seen):
        for operand, tensor in tensors.items():
            form, top = FORMS[operand]
            scale = 1.0 if step == 0 else float(np.float32(top) / np.float32(amax[operand]))
            expected = by_brute_force(tensor, form, scale)
            found = {stat: kept.lines[step, f"fc2_{operand}_{stat}"] for stat in STATS}
            assert found == pytest.approx(expected, rel=1e-12), (step, operand)
            amax[operand] = max(amax[operand], tensor.abs().max().item())
    assert any(kept.lines[step, f"fc2_{operand}_overflows%"] for step in (1, 2) for operand in OPERANDS)
    assert 0 < kept.lines[0, "fc2_gradient_underflows"] < 100


def test_zeros_of_either_sign_are_no_underflow() -> None:
    layer = convert(nn.Sequential(nn.Linear(4, 2)), "current")
    kept = Kept()
    with numscope.watch(layer, config=config(["underflows", "underflows%"]), on_nonfinite=None, loggers=[kept]):
        layer(torch.tensor([[0.0, -0.0, 1e-20, 1.0]])).sum().backward()
    assert kept.lines[0, "0_activation_underflows"] == kept.lines[0, "0_activation_underflows%"] == 25.0


@pytest.mark.parametrize("recipe", ["mxfp8", "block", "rowwise"])
def test_columnwise_statistics_are_those_of_the_gemm_that_takes_the_operand_transposed(recipe: str) -> None:
    torch.manual_seed(0)
    model = convert(nn.Sequential(nn.Linear(48, 40), nn.Linear(40, 8)), recipe)
    state = vars(model[1])["_numscope_fp8"]
    x, kept = torch.randn(6, 48), Kept()
    weight = model[1].weight.detach().clone()
    hidden: list[Tensor] = []
    model[1].register_forward_pre_hook(lambda _, args: hidden.append(args[0].detach()))
    with numscope.watch(model, config=config(["mse", "mse_columnwise"]), on_nonfinite=None, loggers=[kept]):
        model(x).sum().backward()
    for operand, tensor, gemm in (("activation", hidden[0], "wgrad"), ("weight", weight, "dgrad")):
        for label, columnwise in (("mse", False), ("mse_columnwise", True)):
            values = cast(tensor, state.plan[gemm, operand], columnwise=columnwise).values
            error = ((values.double() - tensor.double()) ** 2).mean().item()
            assert kept.lines[0, f"1_{operand}_{label}"] == pytest.approx(error, rel=1e-12)


def test_a_layer_without_dgrad_has_its_gradients_statistics_from_wgrad() -> None:
    model = convert(Net(), "delayed")
    kept = Kept()
    with numscope.watch(model, config=config(["mse"], "fc1"), on_nonfinite=None, loggers=[kept]):
        train(model, 1)
    assert kept.lines[0, "fc1_gradient_mse"] > 0


def test_an_operand_of_a_disabled_gemm_is_counted_where_the_other_gemm_takes_it() -> None:
    model = convert(Net(), "delayed")
    kept, tree = Kept(), config(["mse"], "fc2")
    tree["section"]["transformer_engine"]["disable_fp8_gemm"] = {"enabled": True, "gemms": ["fprop"]}
    with numscope.watch(model, config=tree, on_nonfinite=None, loggers=[kept]):
        train(model, 1)
    assert {name for _, name in kept.lines} == {f"fc2_{operand}_mse" for operand in OPERANDS}


def test_evaluation_and_a_checkpoints_second_pass_are_not_counted() -> None:
    from torch.utils.checkpoint import checkpoint

    model = convert(Net(), "delayed")
    with numscope.watch(model, config=config(["mse"], "fc1"), on_nonfinite=None, loggers=[Kept()]) as scope:
        checkpoint(model, torch.randn(4, 16), use_reentrant=False).sum().backward()
        model.eval()
        model(torch.randn(100, 16))
        scope.step()
        found = {o.tensor: o.extras["operand_numel"] for o in scope._watch.inspector.last}
    assert found["activation"] == 4 * 16


def test_statistics_follow_their_schedule_and_leave_the_casts_alone_between() -> None:
    model = convert(Net(), "delayed")
    kept, counted = Kept(), []
    with numscope.watch(model, config=config(["mse"], freq=2, start_step=2, end_step=4), on_nonfinite=None, loggers=[kept]):
        for _ in range(6):
            counted.append(vars(model.fc1)["_numscope_fp8"].cells is not None)
            train(model, 1)
    assert counted == [False, False, True, False, True, False]
    assert {step for step, _ in kept.lines} == {2, 4}


def test_a_weight_that_does_not_change_is_counted_at_each_scheduled_step() -> None:
    model = convert(Net(), "delayed")
    model.fc2.weight.requires_grad_(False)
    kept = Kept()
    with numscope.watch(model, config=config(["mse"], "fc2", tensors=["weight"]), on_nonfinite=None, loggers=[kept]):
        train(model, 3)
    assert [step for step, _ in kept.lines] == [0, 1, 2]


def test_the_text_log_and_the_run_have_them_under_the_names_as_written(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    model = convert(Net(), "mxfp8")
    stats = ["underflows%", "mse_columnwise", "scale_inv_max"]
    with numscope.watch(model, config=config(stats, name="LogFp8TensorStats"), on_nonfinite=None, log_dir=str(tmp_path)):
        train(model, 2)
    text = (tmp_path / "debug_statistics_logs" / "globalrank-0.log").read_text()
    logged = {(m[1], int(m[2])): float(m[3]) for m in LINE.finditer(text)}
    assert {name for name, _ in logged} == {f"{fc}_{operand}_{stat}" for fc in ("fc1", "fc2") for operand in OPERANDS for stat in stats} - {
        "fc1_weight_mse_columnwise"  # no dgrad there: its input takes no gradient
    }
    sql = (
        "SELECT operand_columnwise_square_error / operand_columnwise_numel FROM read_parquet($1) WHERE layer = 'fc2' AND tensor = 'weight'"
    )
    found = duckdb.execute(f"{sql} ORDER BY step", [str(tmp_path / "statistics" / "*.parquet")]).fetchall()
    assert [row[0] for row in found] == pytest.approx([logged["fc2_weight_mse_columnwise", step] for step in (0, 1)], rel=1e-8)


def test_tensorboard_has_them(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    model = convert(Net(), "delayed")
    with SummaryWriter(str(tmp_path)) as writer, numscope.watch(model, config=config(["overflows%"]), on_nonfinite=None, loggers=writer):
        train(model, 2)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    (tag,) = [tag for tag in events.Tags()["scalars"] if tag.startswith("gradient.") and tag.endswith("/fc2")]
    assert [event.step for event in events.Scalars(tag)] == [0, 1]


# ---- casts on paper


def test_statistics_of_a_recipe_are_of_any_layer() -> None:
    torch.manual_seed(0)
    model, kept = Net(), Kept()
    weight = model.fc1.weight.detach().clone()
    with numscope.watch(model, config=config(["mxfp8_mse", "fp8_current_scaling_underflows%"], "fc1"), on_nonfinite=None, loggers=[kept]):
        train(model, 1)
    assert type(model.fc1) is nn.Linear
    values = cast(weight, How("e4m3", Scaling("block", (1, 32), power_of_two=True, scale_format="e8m0"))).values
    assert values is not None
    assert kept.lines[0, "fc1_weight_mxfp8_mse"] == pytest.approx(((values.double() - weight.double()) ** 2).mean().item(), rel=1e-12)
    assert {name for _, name in kept.lines} == {
        f"fc1_{operand}_{stat}" for operand in OPERANDS for stat in ("mxfp8_mse", "fp8_current_scaling_underflows%")
    }


def test_statistics_of_a_recipe_along_the_columns_are_of_the_operand_transposed() -> None:
    torch.manual_seed(0)
    model, kept = nn.Sequential(nn.Linear(48, 40)), Kept()
    weight = model[0].weight.detach().clone()
    stats = ["mxfp8_mse", "mxfp8_mse_columnwise", "fp8_current_scaling_mse_columnwise", "nvfp4_scale_inv_max_columnwise"]
    with numscope.watch(model, config=config(stats, tensors=["weight"]), on_nonfinite=None, loggers=[kept]) as scope:
        model(torch.randn(4, 48)).sum().backward()
        scope.step()
    how = How("e4m3", Scaling("block", (1, 32), power_of_two=True, scale_format="e8m0"))
    for columnwise, stat in ((False, "mxfp8_mse"), (True, "mxfp8_mse_columnwise")):
        values = cast(weight, how, columnwise=columnwise).values
        assert values is not None
        assert kept.lines[0, f"0_weight_{stat}"] == pytest.approx(((values.double() - weight.double()) ** 2).mean().item(), rel=1e-12)
    assert kept.lines[0, "0_weight_mxfp8_mse"] != kept.lines[0, "0_weight_mxfp8_mse_columnwise"]
    assert {name for _, name in kept.lines} == {f"0_weight_{stat}" for stat in stats}
    (seen,) = scope._watch.inspector.last
    assert "mxfp8_columnwise_square_error" in seen.extras


def test_delayed_scalings_statistics_are_those_of_layers_that_use_it(tmp_path: Path) -> None:
    model, kept = Net(), Kept()
    convert(model, "delayed", layers=["fc1"])
    convert(model, "mxfp8", layers=["fc2"])
    given = config(["mse", "fp8_delayed_scaling_mse"])
    with numscope.watch(model, config=given, on_nonfinite=None, loggers=[kept], log_dir=str(tmp_path)):
        train(model, 1)
    assert kept.lines[0, "fc1_weight_fp8_delayed_scaling_mse"] == kept.lines[0, "fc1_weight_mse"]
    assert (0, "fc2_weight_fp8_delayed_scaling_mse") not in kept.lines
    text = (tmp_path / "debug_logs" / "globalrank-0.log").read_text()
    assert text.count("nothing to do on fc2: there is no delayed scaling there") == 1


# ---- as Transformer Engine means it


def test_gradients_of_a_hybrid_layer_are_cast_to_e5m2_on_paper_too() -> None:
    torch.manual_seed(0)
    model, kept = convert(Net(), DelayedScaling()), Kept()
    operands = Operands(model.fc2)
    stats = ["fp8_current_scaling_mse", "mxfp8_mse"]
    with numscope.watch(model, config=config(stats, "fc2", tensors=["gradient", "activation"]), on_nonfinite=None, loggers=[kept]):
        train(model, 1)
    seen = operands.step()
    for operand, form in (("gradient", "e5m2"), ("activation", "e4m3")):
        x = seen[operand]
        for label, scaling in zip(stats, (Scaling(), MXFP8().plan()["fprop", "activation"].scaling), strict=True):
            expected = ((cast(x, How(form, scaling)).values.double() - x.double()) ** 2).mean().item()
            assert kept.lines[0, f"fc2_{operand}_{label}"] == pytest.approx(expected, rel=1e-12), (operand, label)


def test_an_e4m3_layers_gradients_are_cast_to_e4m3_on_paper() -> None:
    torch.manual_seed(0)
    model, kept = convert(Net(), CurrentScaling(fp8_format="e4m3")), Kept()
    with numscope.watch(model, config=config(["fp8_current_scaling_mse", "mse"], "fc2"), on_nonfinite=None, loggers=[kept]):
        train(model, 1)
    assert kept.lines[0, "fc2_gradient_fp8_current_scaling_mse"] == kept.lines[0, "fc2_gradient_mse"]


@pytest.mark.parametrize(("recipe", "asked", "other"), [("delayed", "nvfp4", "fp8"), ("nvfp4", "fp8", "nvfp4")])
@pytest.mark.parametrize("by_autocast", [False, True])
def test_statistics_of_another_kind_of_cast_are_skipped_with_a_warning(
    recipe: str, asked: str, other: str, by_autocast: bool, tmp_path: Path
) -> None:
    features = {"fp8": "collect_fp8_tensor_stats", "nvfp4": "collect_nvfp4_tensor_stats"}
    model, kept = convert(Net(), "high_precision" if by_autocast else recipe), Kept()
    tree = config(["mse", "underflows%"], name=features[asked])
    with numscope.watch(model, config=tree, on_nonfinite=None, loggers=[kept], log_dir=str(tmp_path)):
        with autocast(recipe=recipe) if by_autocast else nullcontext():
            train(model, 1)
    assert kept.lines == {}
    text = (tmp_path / "debug_logs" / "globalrank-0.log").read_text()
    kind = {"fp8": "fp8", "nvfp4": "NVFP4"}[asked]
    warning = (
        f"nothing to do on fc1, fc2: nothing there is cast to {kind}; its statistics are skipped. Use {features[other]} for these layers"
    )
    assert text.count(warning) == 1
    (line,) = [line for line in text.splitlines() if warning in line]
    assert "WARNING" in line


def test_both_kinds_of_statistics_on_all_layers_give_each_layer_its_own() -> None:
    torch.manual_seed(0)
    model, kept = Net(), Kept()
    convert(model, "mxfp8", layers=["fc1"])
    convert(model, "nvfp4", layers=["fc2"])
    tree = config(["mse"], name="LogFp8TensorStats", tensors="weight")
    nvfp4 = {"enabled": True, "stats": ["mse", "scale_inv_max"], "tensors": "weight"}
    tree["section"]["transformer_engine"]["LogNvfp4TensorStats"] = nvfp4
    weights = {name: getattr(model, name).weight.detach().clone() for name in ("fc1", "fc2")}
    with numscope.watch(model, config=tree, on_nonfinite=None, loggers=[kept]):
        train(model, 1)
    assert {name for _, name in kept.lines} == {"fc1_weight_mse", "fc2_weight_mse", "fc2_weight_scale_inv_max"}
    for name, recipe in (("fc1", MXFP8()), ("fc2", NVFP4())):
        values = cast(weights[name], recipe.plan()["fprop", "weight"]).values
        expected = ((values.double() - weights[name].double()) ** 2).mean().item()
        assert kept.lines[0, f"{name}_weight_mse"] == pytest.approx(expected, rel=1e-12)


def test_scales_rounded_up_have_names_of_their_own() -> None:
    torch.manual_seed(0)
    model, kept = convert(Net(), MXFP8(e8m0_rounding="rceil")), Kept()
    weight = model.fc2.weight.detach().clone()
    stats = ["mse", "mxfp8_mse", "mxfp8_rceil_mse", "mxfp8_rceil_mse_columnwise"]
    with numscope.watch(model, config=config(stats, "fc2", tensors=["weight"]), on_nonfinite=None, loggers=[kept]):
        train(model, 1)
    for label in stats:
        rounding, columnwise = "floor" if label == "mxfp8_mse" else "rceil", label.endswith("columnwise")
        how = How("e4m3", Scaling("block", (1, 32), scale_format="e8m0", e8m0_rounding=rounding))
        values = cast(weight, how, columnwise=columnwise).values
        assert kept.lines[0, f"fc2_weight_{label}"] == pytest.approx(((values.double() - weight.double()) ** 2).mean().item(), rel=1e-12)
