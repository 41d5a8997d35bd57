"""Switches at work in training: bitwise what they say, at the steps of their schedules, and gone afterwards."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import numscope
from numscope.inspect.switches import Switchboard
from numscope.precision.casting.cast import cast
from numscope.precision.casting.scaling import How
from numscope.precision.gemm.autocasting import autocast
from numscope.precision.gemm.conversion import convert
from numscope.precision.gemm.layer_state import ATTRIBUTE, state_of
from numscope.precision.gemm.recipes import CurrentScaling
from numscope.probe import optimizer as optimizer_probe
from numscope.records.layer import GEMMS

RECIPES = ["delayed", "current", "mxfp8"]


class Layer(nn.Module):
    """One linear layer whose input takes a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(32, 64)
        self.fc2 = nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


@pytest.fixture
def layer() -> Iterator[Layer]:
    torch.manual_seed(0)
    yield Layer()


def config(layers: str = ".*", **features: Any) -> dict[str, Any]:
    on = {name: {"enabled": True, **settings} for name, settings in features.items()}
    return {"section": {"enabled": True, "layers": {"layer_name_regex_pattern": layers}, "transformer_engine": on}}


def watch(model: nn.Module, given: dict[str, Any], tmp_path: Path, **options: Any) -> numscope.Scope:
    return numscope.watch(model, config=given, on_nonfinite=None, log_dir=str(tmp_path), **options)


def gemms_of(layer: Layer, steps: int = 3) -> dict[str, list[Tensor]]:
    """What the three GEMMs give at each step; the weight stays as it is, so that nothing depends on the other GEMMs' results."""
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.0)
    generator = torch.Generator().manual_seed(1)
    found: dict[str, list[Tensor]] = {gemm: [] for gemm in GEMMS}
    for step in range(steps):
        optimizer.zero_grad()
        x = (torch.randn(2, 16, 64, generator=generator) * (step + 1)).requires_grad_()
        y = layer(x)
        y.backward(torch.randn(2, 16, 32, generator=generator) * 1e-3)
        optimizer.step()
        for gemm, result in zip(GEMMS, (y.detach(), x.grad, layer.fc.weight.grad), strict=True):
            found[gemm].append(result.clone())
    return found


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(a, b, strict=True))


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("disabled", [["fprop"], ["dgrad"], ["wgrad"], ["fprop", "wgrad"]])
def test_a_disabled_gemm_is_bitwise_the_high_precision_gemm_and_the_others_bitwise_what_they_were(
    layer: Layer, recipe: str, disabled: list[str], tmp_path: Path
) -> None:
    high = gemms_of(layer)
    fp8 = gemms_of(convert(copy.deepcopy(layer), recipe))
    switched = convert(copy.deepcopy(layer), recipe)
    with watch(switched, config(disable_fp8_gemm={"gemms": disabled}), tmp_path):
        found = gemms_of(switched)
    for gemm in GEMMS:
        assert not same(high[gemm], fp8[gemm])
        assert same(found[gemm], high[gemm] if gemm in disabled else fp8[gemm])


@pytest.mark.parametrize("feature", ["disable_fp8_layer", "disable_fp8_gemm", "DisableQuantizationLayer", "DisableQuantizationGEMM"])
def test_a_disabled_layer_is_bitwise_the_layer_that_was_never_converted(layer: Layer, feature: str, tmp_path: Path) -> None:
    high = gemms_of(layer)
    switched = convert(copy.deepcopy(layer), "delayed")
    with watch(switched, config(**{feature: {}}), tmp_path):
        found = gemms_of(switched)
    assert all(same(found[gemm], high[gemm]) for gemm in GEMMS)


def test_per_tensor_scaling_is_bitwise_current_scaling_with_that_margin(layer: Layer, tmp_path: Path) -> None:
    current = gemms_of(convert(copy.deepcopy(layer), CurrentScaling(margin=2)))
    switched = convert(copy.deepcopy(layer), "delayed")
    with watch(switched, config(per_tensor_scaling={"gemms": ["fprop", "dgrad", "wgrad"], "margin": 2}), tmp_path):
        found = gemms_of(switched)
    assert all(same(found[gemm], current[gemm]) for gemm in GEMMS)


def test_a_switch_acts_at_the_steps_of_its_schedule_and_is_gone_at_close(layer: Layer, tmp_path: Path) -> None:
    high, fp8 = gemms_of(layer, 5), gemms_of(convert(copy.deepcopy(layer), "mxfp8"), 5)
    switched = convert(copy.deepcopy(layer), "mxfp8")
    with watch(switched, config(disable_fp8_layer={"start_step": 1, "end_step": 4, "freq": 2}), tmp_path):
        found = gemms_of(switched, 5)
    for gemm in GEMMS:
        expected = [high[gemm][step] if step in (2, 4) else fp8[gemm][step] for step in range(5)]
        assert same(found[gemm], expected)
    assert same(gemms_of(switched, 2)["fprop"], fp8["fprop"][:2])
    state = state_of(switched.fc)
    assert state is not None and state.switch is state.cells is state.observer is state.results is None


def test_histories_go_on_where_one_of_two_gemms_is_disabled(layer: Layer, tmp_path: Path) -> None:
    """The gradient's amaxes are those of wgrad when dgrad is off: what comes back scales as if nothing had been."""
    fp8 = gemms_of(convert(copy.deepcopy(layer), "delayed"), 6)
    switched = convert(copy.deepcopy(layer), "delayed")
    with watch(switched, config(disable_fp8_gemm={"gemms": ["dgrad"], "end_step": 2}), tmp_path):
        found = gemms_of(switched, 6)
    assert all(torch.equal(a, b) for a, b in zip(found["dgrad"][3:], fp8["dgrad"][3:], strict=True))


def test_unselected_layers_stay_as_their_recipe_has_them(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = convert(Net(), "delayed")
    with watch(model, config("fc1", disable_fp8_layer={}), tmp_path):
        fc1, fc2 = state_of(model.fc1), state_of(model.fc2)
        assert fc1 is not None and fc1.plan.high
        assert fc2 is not None and fc2.plan is fc2.default


def test_switches_act_on_the_recipe_that_autocast_brings(layer: Layer, tmp_path: Path) -> None:
    def of(model: Layer) -> dict[str, list[Tensor]]:
        with autocast(recipe="mxfp8"):
            return gemms_of(model)

    high, fp8 = gemms_of(layer), of(convert(copy.deepcopy(layer), "high_precision"))
    switched = convert(copy.deepcopy(layer), "high_precision")
    with watch(switched, config(disable_fp8_gemm={"gemms": ["dgrad"]}), tmp_path):
        found = of(switched)
    assert not same(high["wgrad"], fp8["wgrad"])
    assert [same(found[gemm], (high if gemm == "dgrad" else fp8)[gemm]) for gemm in GEMMS] == [True] * 3
    text = (tmp_path / "debug_logs" / "globalrank-0.log").read_text()
    assert "fc (Linear): fprop e4m3fn 1x32" in text


# ---- fake quantization


def faked(x: Tensor, form: str) -> Tensor:
    values = cast(x, How(form)).values
    assert values is not None
    return values


def test_fake_quant_casts_the_operands_of_layers_that_were_never_converted(layer: Layer, tmp_path: Path) -> None:
    x = torch.randn(4, 64, requires_grad=True)
    chosen = {"gemms": ["fprop", "wgrad"], "tensors": ["activation", "gradient"], "quant_format": "FP8E4M3"}
    gradient = torch.randn(4, 32)
    with watch(layer, config(fake_quant=chosen), tmp_path):
        y = layer(x)
        y.backward(gradient)
    assert torch.equal(y, F.linear(faked(x, "e4m3"), layer.fc.weight, layer.fc.bias))
    assert torch.equal(x.grad, gradient @ layer.fc.weight)  # dgrad was not chosen
    assert torch.equal(layer.fc.weight.grad, (faked(x, "e4m3").t() @ faked(gradient, "e4m3")).t())


def test_fake_quant_leaves_a_bare_layer_bare_at_close(layer: Layer, tmp_path: Path) -> None:
    before = gemms_of(layer)
    with watch(layer, config(fake_quant={"tensors": ["activation"], "quant_format": "FP8E5M2"}), tmp_path):
        assert type(layer.fc) is not nn.Linear
        assert not same(gemms_of(layer)["fprop"], before["fprop"])
    assert type(layer.fc) is nn.Linear
    assert ATTRIBUTE not in vars(layer.fc)
    assert all(same(gemms_of(layer)[gemm], before[gemm]) for gemm in GEMMS)


def test_fake_quant_off_its_schedule_is_bitwise_the_bare_layer(layer: Layer, tmp_path: Path) -> None:
    before = gemms_of(layer, 4)
    with watch(layer, config(fake_quant={"tensors": ["activation", "weight"], "quant_format": "FP8E5M2", "start_step": 2}), tmp_path):
        found = gemms_of(layer, 4)
    for gemm in ("fprop", "wgrad"):
        assert [torch.equal(a, b) for a, b in zip(found[gemm], before[gemm], strict=True)] == [True, True, False, False]


def test_fake_quant_of_results_casts_what_the_gemms_give(layer: Layer, tmp_path: Path) -> None:
    x, gradient = torch.randn(4, 64, requires_grad=True), torch.randn(4, 32)
    plain = layer(x)
    plain.backward(gradient)
    expected = [faked(t.detach(), "e5m2") for t in (plain, x.grad, layer.fc.weight.grad)]
    x.grad = layer.fc.weight.grad = None
    with watch(layer, config(fake_quant={"tensors": ["output", "dgrad", "wgrad"], "quant_format": "FP8E5M2"}), tmp_path):
        y = layer(x)
        y.backward(gradient)
    assert all(torch.equal(a, b) for a, b in zip((y, x.grad, layer.fc.weight.grad), expected, strict=True))


def test_fake_quant_of_a_quantized_layer_runs_its_gemm_on_cast_operands(layer: Layer, tmp_path: Path) -> None:
    x = torch.randn(4, 64)
    convert(layer, "mxfp8")
    with watch(layer, config(fake_quant={"gemms": ["fprop"], "tensors": ["weight"], "quant_format": "FP8E5M2"}), tmp_path):
        y = layer(x)
    assert torch.equal(y, F.linear(x, faked(layer.fc.weight, "e5m2"), layer.fc.bias))
    state = state_of(layer.fc)
    assert state is not None and state.backend == "auto"


def test_layer_that_somebody_converts_meanwhile_stays_converted(layer: Layer, tmp_path: Path) -> None:
    with watch(layer, config(fake_quant={"tensors": ["activation"], "quant_format": "FP8E5M2"}), tmp_path):
        convert(layer, "delayed")
    state = state_of(layer.fc)
    assert state is not None and not state.current_plan().high and state.plan is state.default


# ---- what is said


def log_of(tmp_path: Path) -> str:
    return (tmp_path / "debug_logs" / "globalrank-0.log").read_text()


def test_plans_are_written_once_and_when_they_change(layer: Layer, tmp_path: Path) -> None:
    convert(layer, "delayed")
    with watch(layer, config(disable_fp8_gemm={"gemms": ["wgrad"], "start_step": 2}), tmp_path):
        gemms_of(layer, 5)
    lines = [line.strip() for line in log_of(tmp_path).splitlines()]
    whole = "fc (Linear): fprop e4m3fn delayed × e4m3fn delayed, dgrad e5m2 delayed × e4m3fn delayed, wgrad "
    assert [line for line in lines if line.startswith("fc (Linear): fprop")] == [
        f"{whole}e5m2 delayed × e4m3fn delayed",
        f"{whole}high precision",
    ]
    assert [line.partition(" - INFO - ")[2] for line in lines if "precision from" in line] == [
        "precision from step 0 on:",
        "precision from step 2 on:",
    ]


def test_switch_on_layers_in_high_precision_is_said_once_and_changes_nothing(layer: Layer, tmp_path: Path) -> None:
    before = gemms_of(layer)
    features = {"disable_fp8_layer": {}, "per_tensor_scaling": {}, "collect_fp8_tensor_stats": {"type": ["mse"], "tensors": ["activation"]}}
    with watch(layer, config(**features), tmp_path):
        found = gemms_of(layer)
        assert type(layer.fc) is nn.Linear
    assert all(same(found[gemm], before[gemm]) for gemm in GEMMS)
    text = log_of(tmp_path)
    for feature in features:
        assert text.count(f"section.{feature}: nothing to do on fc: these layers compute in high precision, nothing there is fp8") == 1


def test_converted_layer_that_runs_in_high_precision_is_said_once(layer: Layer, tmp_path: Path) -> None:
    convert(layer, "high_precision")
    with watch(layer, config(disable_fp8_gemm={}), tmp_path):
        gemms_of(layer)
    assert log_of(tmp_path).count("section.disable_fp8_gemm: nothing to do on fc: these layers compute in high precision") == 1


def test_plan_is_told_once_where_autocast_brings_the_recipe(layer: Layer, tmp_path: Path) -> None:
    convert(layer, "high_precision")
    with watch(layer, config(per_tensor_scaling={}), tmp_path), autocast(recipe="delayed"):
        gemms_of(layer, 3)
    found = [line.strip() for line in log_of(tmp_path).splitlines() if line.strip().startswith("fc (Linear): fprop")]
    assert found == [
        "fc (Linear): fprop e4m3fn current × e4m3fn current, dgrad e5m2 current × e4m3fn current, wgrad e5m2 current × e4m3fn current"
    ]


@pytest.mark.parametrize("tensors", [["activation"], ["output", "dgrad", "wgrad"]])
def test_autocast_that_is_off_has_the_word_over_fake_quant_too(layer: Layer, tensors: list[str], tmp_path: Path) -> None:
    bare = gemms_of(layer)
    with watch(layer, config(fake_quant={"tensors": tensors, "quant_format": "FP8E5M2"}), tmp_path):
        with autocast(enabled=False):
            off = gemms_of(layer)
        on = gemms_of(layer)
    assert all(same(off[gemm], bare[gemm]) for gemm in GEMMS)
    assert not same(on["fprop"], bare["fprop"])


def test_switches_of_each_layer_are_in_the_log(tmp_path: Path) -> None:
    features = {"disable_fp8_gemm": {"gemms": ["wgrad"]}, "FakeQuant": {"tensors": ["activation"], "quant_format": "FP8E5M2"}}
    with watch(Net(), config("fc1", **features), tmp_path):
        text = log_of(tmp_path)
    assert "Net: 3 layers, 1 selected" in text
    assert (
        "fc1 (Linear):\n    disable_fp8_gemm, gemms wgrad (section)\n    fake_quant, quant_format FP8E5M2, tensors activation (section)"
        in text
    )


@pytest.mark.parametrize("why", ["its forward was replaced", "its weight is not there yet"])
def test_fake_quant_leaves_out_a_layer_that_it_cannot_act_on_and_says_so(why: str, tmp_path: Path) -> None:
    model = Net() if "forward" in why else nn.Sequential(nn.LazyLinear(32), nn.Linear(32, 32))
    first, second = model.children()
    if "forward" in why:
        first.forward = first.forward  # as adapters and offloading do
    with watch(model, config(fake_quant={"tensors": ["weight"], "quant_format": "FP8E5M2"}), tmp_path):
        model(torch.randn(4, 32)).sum().backward()
        assert state_of(first) is None and state_of(second) is not None
    name = "fc1" if "forward" in why else "0"
    assert f"section.fake_quant: nothing to do on {name}: {why}" in log_of(tmp_path)


def test_statistics_alone_leave_a_converted_model_bitwise_as_it_is(tmp_path: Path) -> None:
    losses = []
    for watched in (False, True):
        torch.manual_seed(0)
        model = convert(Net(), "delayed")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        features = {"collect_fp8_tensor_stats": {"type": ["underflows", "mse_columnwise"], "tensors": ["activation", "gradient", "weight"]}}
        scope = watch(model, config(**features), tmp_path) if watched else None
        for _ in range(4):
            optimizer.zero_grad()
            for _ in range(2):
                loss = model(torch.randn(8, 32)).square().mean()
                loss.backward()
                losses.append(loss.item())
            optimizer.step()
        if scope is not None:
            scope.close()
    assert losses[:8] == losses[8:]


def test_failed_statistics_leave_the_precision_as_it_is_switched(layer: Layer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    high = gemms_of(layer, 4)
    convert(layer, "mxfp8")
    features = {"disable_fp8_layer": {}, "collect_tensor_stats": {"type": ["max"], "tensors": ["activation"]}}
    with watch(layer, config(**features), tmp_path) as scope:
        monkeypatch.setattr(scope._watch.inspector._tally, "read", lambda: 1 / 0)
        found = gemms_of(layer, 4)
        assert scope._watch.inspector.closed
    assert all(same(found[gemm], high[gemm]) for gemm in GEMMS)
    state = state_of(layer.fc)
    assert state is not None and state.plan is state.default
    assert "ZeroDivisionError" in log_of(tmp_path)


@pytest.mark.parametrize("place", ["begin", "_switch", "_log_plans", "close", "stop_statistics"])
def test_a_switchboard_that_fails_does_not_end_the_training(
    layer: Layer, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = {"disable_fp8_layer": {}, "collect_fp8_tensor_stats": {"type": ["mse"], "tensors": ["activation"]}}
    with monkeypatch.context() as planted:
        planted.setattr(Switchboard, place, lambda *_: 1 / 0)
        with watch(convert(layer, "mxfp8"), config(**features), tmp_path):
            gemms_of(layer, 2)
    assert "ZeroDivisionError" in log_of(tmp_path)
    assert not layer.fc._forward_hooks and not optimizer_probe._listeners


def test_a_dump_that_fails_does_not_end_the_training(layer: Layer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numscope.inspect.casts._codes_of", lambda *_: 1 / 0)
    features = {"dump_tensors": {"tensors": ["activation"], "quantized_tensor": True, "high_precision_tensor": False}}
    with watch(convert(layer, "mxfp8"), config(**features), tmp_path):
        gemms_of(layer, 2)
    assert log_of(tmp_path).count("dump_tensors is off from here on: ZeroDivisionError") == 1


def test_layers_converted_while_watched_are_switched_from_the_next_step_on(layer: Layer, tmp_path: Path) -> None:
    high = gemms_of(layer, 2)
    with watch(layer, config(disable_fp8_layer={}), tmp_path):
        gemms_of(layer, 1)
        convert(layer, "mxfp8")
        gemms_of(layer, 1)
        assert same(gemms_of(layer, 2)["fprop"], high["fprop"])


def test_without_a_config_nothing_is_touched(layer: Layer) -> None:
    convert(layer, "delayed")
    before = vars(layer.fc).copy()
    with numscope.watch(layer, on_nonfinite=None):
        gemms_of(layer, 1)
        state = state_of(layer.fc)
        assert state is not None and state.switch is state.cells is state.observer is None
    assert vars(layer.fc).keys() == before.keys()


# ---- around a model


def test_switches_act_on_a_compiled_model_without_compiling_it_again(layer: Layer, tmp_path: Path) -> None:
    high, fp8 = gemms_of(layer, 4), gemms_of(convert(copy.deepcopy(layer), "mxfp8"), 4)
    convert(layer, "mxfp8")
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    layer.compile(backend=backend)
    with watch(layer, config(disable_fp8_gemm={"gemms": ["fprop"], "freq": 2}), tmp_path):
        found = gemms_of(layer, 4)
    assert same(found["fprop"], [(fp8 if step % 2 else high)["fprop"][step] for step in range(4)])
    assert same(found["dgrad"], fp8["dgrad"]) and same(found["wgrad"], fp8["wgrad"])
    assert len(graphs) == 1


def test_detection_and_switches_go_together(layer: Layer, tmp_path: Path) -> None:
    """A replay of a bad step runs what the step ran, and counts nothing twice."""
    convert(layer, "mxfp8")
    features = {"disable_fp8_gemm": {"gemms": ["dgrad"]}, "collect_fp8_tensor_stats": {"type": ["mse"], "tensors": ["activation"]}}
    with numscope.watch(layer, config=config(**features), on_nonfinite="warn", log_dir=str(tmp_path)) as scope:
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        x = torch.randn(16, 64)
        x[0, 0] = torch.inf
        (layer(x).sum() * 0).backward()
        optimizer.step()
        numel = {o.tensor: o.extras["operand_numel"] for o in scope._watch.inspector.last}
    assert scope.findings
    assert numel == {"activation": 16 * 64}


@pytest.mark.parametrize("is_converted", [True, False])
def test_numscope_run_switches_the_models_of_an_unchanged_script(is_converted: bool, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, sys\n"
        "from torch import nn\n"
        "torch.manual_seed(0)\n"
        "net = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))\n"
        "if sys.argv[1] != 'bare':\n"
        "    from numscope.precision import convert\n"
        "    convert(net, 'mxfp8')\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for _ in range(2):\n"
        "    optimizer.zero_grad()\n"
        "    loss = net(torch.randn(8, 32)).square().mean()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "    print('loss', loss.item())\n"
    )
    quantized = "{enabled: true, tensors: [activation, weight, gradient], quant_format: MXFP8E4M3}"
    feature = "disable_fp8_layer: {enabled: true}" if is_converted else f"fake_quant: {quantized}"
    (tmp_path / "fp8.yaml").write_text(f"transformer_engine:\n  {feature}\n")

    def losses(*words: str) -> list[str]:
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if line.startswith("loss")]

    run = ["-m", "numscope", "run", "--config", "fp8.yaml", "--on-nonfinite", "off", "train.py"]
    bare, fp8 = losses("train.py", "bare"), losses("train.py", "fp8")
    assert bare != fp8
    assert losses(*run, "fp8" if is_converted else "bare") == (bare if is_converted else fp8)
