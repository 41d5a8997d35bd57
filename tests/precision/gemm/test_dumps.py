"""Dumped tensors: bitwise the tensor, in a format that others read, under names that any file system takes, whole or not at all."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.precision.casting.cast import cast
from numscope.precision.gemm.conversion import convert
from numscope.precision.gemm.dumps import Dumps, file_name

safetensors = pytest.importorskip("safetensors")
from safetensors.torch import load_file  # noqa: E402

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


def metadata(path: Path | str) -> dict[str, str]:
    with safetensors.safe_open(str(path), "pt") as file:
        found: dict[str, str] = file.metadata()
    return found


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_dtype_is_read_back_bitwise(dtype: torch.dtype, tmp_path: Path) -> None:
    x = (torch.randn(3, 5) * 4).to(dtype)
    path = Dumps(tmp_path, 0).write(7, "fc", "weight", {"x": x.t(), "scalar": x[0, 0], "empty": x[:0]}, {"word": "é"})
    found = load_file(path)
    assert {name: (t.dtype, t.shape) for name, t in found.items()} == {
        "x": (dtype, (5, 3)), "scalar": (dtype, ()), "empty": (dtype, (0, 5)),
    }  # fmt: skip
    assert torch.equal(found["x"].contiguous().view(torch.uint8), x.t().contiguous().view(torch.uint8))
    assert metadata(path) == {"layer": "fc", "tensor": "weight", "step": "7", "word": "é"}


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fnuz, torch.float8_e8m0fnu, torch.complex64], ids=str)
def test_dtypes_that_the_format_may_lack_are_kept_as_bytes(dtype: torch.dtype, tmp_path: Path) -> None:
    x = torch.rand(4, 2).to(dtype)
    path = Dumps(tmp_path, 0).write(0, "fc", "weight", {"x": x}, {})
    assert metadata(path)["x.dtype"] == str(dtype).removeprefix("torch.")
    assert torch.equal(load_file(path)["x"].view(-1), x.contiguous().view(-1).view(torch.uint8).view(-1))


def test_a_steps_further_calls_are_further_files(tmp_path: Path) -> None:
    dumps = Dumps(tmp_path, 3)
    paths = [dumps.write(step, "a.b", "activation", {"x": torch.ones(1)}, {}) for step in (0, 0, 100)]
    assert [str(Path(path).relative_to(tmp_path)) for path in paths] == [
        "tensor_dumps/rank_3/iter_000000/a.b_activation.safetensors",
        "tensor_dumps/rank_3/iter_000000/a.b_activation-2.safetensors",
        "tensor_dumps/rank_3/iter_000100/a.b_activation.safetensors",
    ]


@pytest.mark.parametrize("layer", ["../../etc/x", "a/b", "a\0b", "ü:\n*?", "", "x" * 500, "a%2Fb"])
def test_any_layers_name_is_one_files_name_and_its_own(layer: str, tmp_path: Path) -> None:
    path = Path(Dumps(tmp_path, 0).write(0, layer, "weight[in_proj]", {"x": torch.ones(1)}, {}))
    assert path.parent == tmp_path / "tensor_dumps" / "rank_0" / "iter_000000"
    assert path.is_file() and len(path.name) < 255
    others = {file_name(other, "weight[in_proj]") for other in ("a%2Fb", "a/b", "x" * 499, "a_b") if other != layer}
    assert file_name(layer, "weight[in_proj]") not in others


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        Dumps(tmp_path, 0).write(0, "fc", "weight", {"x": torch.ones(1)}, {})
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_without_safetensors_one_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    given = config("fc", tensors=["activation"], high_precision_tensor=True)
    model = Net()
    with numscope.watch(model, config=given, on_nonfinite=None, log_dir=str(tmp_path)):
        train(model, 2)
    said = "dump_tensors is off from here on: safetensors is not installed, which writes tensors. Install it: pip install 'numscope[runs]'."
    assert (tmp_path / "debug_logs" / "globalrank-0.log").read_text().count(said) == 1
    assert not (tmp_path / "tensor_dumps").exists()


# ---- by configuration


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


def config(pattern: str = "fc2", **feature: Any) -> dict[str, Any]:
    return {"s": {"enabled": True, "layers": {"layer_name_regex_pattern": pattern}, "DumpTensors": {"enabled": True, **feature}}}


def train(model: nn.Module, steps: int) -> list[Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = []
    for _ in range(steps):
        optimizer.zero_grad()
        inputs.append(torch.randn(4, 8))
        model(inputs[-1]).square().mean().backward()
        optimizer.step()
    return inputs


def test_tensors_of_any_layer_are_dumped_as_they_are(tmp_path: Path) -> None:
    model = Net()
    weight = model.fc1.weight.detach().clone()
    given = config("fc1", tensors=["activation", "weight", "wgrad", "output"], high_precision_tensor=True, freq=2)
    with numscope.watch(model, config=given, on_nonfinite=None, log_dir=str(tmp_path)):
        inputs = train(model, 3)
    folder = tmp_path / "tensor_dumps" / "rank_0"
    assert {path.name for path in folder.iterdir()} == {"iter_000000", "iter_000002"}
    names = {f"fc1_{tensor}.safetensors" for tensor in ("activation", "weight", "wgrad", "output")}
    assert {path.name for path in (folder / "iter_000002").iterdir()} == names
    assert torch.equal(load_file(folder / "iter_000002" / "fc1_activation.safetensors")["high_precision"], inputs[2])
    assert torch.equal(load_file(folder / "iter_000000" / "fc1_weight.safetensors")["high_precision"], weight)
    assert not (tmp_path / "debug_statistics_logs" / "globalrank-0.log").read_text()


@pytest.mark.parametrize("recipe", ["delayed", "current", "mxfp8", "block"])
def test_quantized_operands_are_dumped_as_each_gemm_takes_them(recipe: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = convert(Net(), recipe, backend="emulate")
    weight = model.fc2.weight.detach().clone()
    with numscope.watch(
        model, config=config(tensors=["weight", "gradient"], quantized_tensor=True), on_nonfinite=None, log_dir=str(tmp_path)
    ):
        train(model, 1)
    folder = tmp_path / "tensor_dumps" / "rank_0" / "iter_000000"
    found = {path.name.removeprefix("fc2_").partition(".")[0]: path for path in folder.iterdir()}
    assert {"weight_fprop", "gradient_dgrad", "gradient_wgrad"} <= set(found)
    dumped = load_file(found["weight_fprop"])
    plan = vars(model.fc2)["_numscope_fp8"].plan
    made = cast(weight, plan["fprop", "weight"], scale=1.0 if recipe == "delayed" else None, codes=True)
    assert made.codes is not None
    assert torch.equal(dumped["codes"].view(torch.uint8), made.codes.view(torch.uint8))
    assert torch.equal(dumped["scale_inv"], made.scale_inv)
    assert metadata(found["gradient_wgrad"])["format"] == plan["wgrad", "gradient"].format.name


def test_codes_and_scales_give_the_values(tmp_path: Path) -> None:
    model = convert(Net(), "current", backend="emulate")
    with numscope.watch(model, config=config(tensors=["activation"], quantized_tensor=True), on_nonfinite=None, log_dir=str(tmp_path)):
        train(model, 1)
    found = load_file(tmp_path / "tensor_dumps" / "rank_0" / "iter_000000" / "fc2_activation_fprop.safetensors")
    assert torch.equal(found["codes"].float() * found["scale_inv"], found["values"])
    assert found["codes"].dtype is torch.float8_e4m3fn


def test_a_dump_that_fails_is_said_once_and_training_goes_on(tmp_path: Path) -> None:
    (tmp_path / "tensor_dumps").write_text("in the way")
    model = Net()
    given = config("fc", tensors=["activation"], high_precision_tensor=True)
    with numscope.watch(model, config=given, on_nonfinite=None, log_dir=str(tmp_path)) as scope:
        train(model, 2)
        assert not scope._watch.inspector.closed
    assert (tmp_path / "debug_logs" / "globalrank-0.log").read_text().count("dump_tensors is off from here on") == 1
