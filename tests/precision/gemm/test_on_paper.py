"""Casts on paper as statistics: against float64 NumPy, merged over calls, as a configuration asks for them, in a run's folder."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.precision.gemm.counting import cast_on_paper, how_of
from numscope.precision.gemm.recipes import MXFP8, NVFP4, BlockScaling
from numscope.records.formats import format_of
from numscope.records.observation import TENSORS, Observation
from numscope.summary.dispatch import summarize
from numscope.summary.extras import Layout
from numscope.summary.operand_casts import ON_PAPER, PAPER_EXTRAS
from numscope.summary.statistics import STATISTICS

NAMES = ("underflows_pct", "overflows_pct", "mse", "sqnr_db", "scale_inv_min", "scale_inv_max")
LAYOUT = Layout(PAPER_EXTRAS.values())
E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
E4M3 = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).to(torch.float64).numpy()


def nearest(y: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The nearest number of a format, ties to the even code, the largest for what is larger."""
    above = np.clip(np.searchsorted(table, np.abs(y)), 1, len(table) - 1)
    low, high = table[above - 1], table[above]
    down, up = np.abs(y) - low, high - np.abs(y)
    return np.copysign(np.where((down < up) | ((down == up) & (above % 2 == 1)), low, high), y)


def scales(x: np.ndarray, way: str, weight: bool) -> tuple[np.ndarray, np.ndarray]:
    """Scale and inverse of each element, by the formulas of docs/statistics.md, in float32 where they are float32."""
    blocks = {
        "fp8_current_scaling": x.shape,
        "fp8_block_scaling": (128, 128) if weight else (1, 128),
        "mxfp8": (1, 32),
        "mxfp8_rceil": (1, 32),
    }
    rows, columns = blocks.get(way, (16, 16) if weight else (1, 16))
    scale, inverse = np.empty(x.shape), np.empty(x.shape)
    outer = np.float32(448 * 6) / np.float32(np.abs(x).max())
    for i in range(0, x.shape[0], rows):
        for j in range(0, x.shape[1], columns):
            here = np.s_[i : i + rows, j : j + columns]
            amax = np.float32(np.abs(x[here]).max())
            if way == "mxfp8_rceil":
                inverse[here] = 2.0 ** math.ceil(math.log2(amax / np.float32(448)))
                scale[here] = 1 / inverse[i, j]
            elif way == "fp8_current_scaling":
                scale[here] = np.float32(448) / amax
                inverse[here] = np.float32(1) / np.float32(scale[i, j])
            elif way == "fp8_block_scaling":
                scale[here] = 2.0 ** math.floor(math.log2(np.float32(448) / amax))
                inverse[here] = 1 / scale[i, j]
            elif way == "mxfp8":
                inverse[here] = 2.0 ** (math.floor(math.log2(amax)) - 8)
                scale[here] = 1 / inverse[i, j]
            else:
                inner = np.float32(nearest(np.array([amax / np.float32(6) * outer]), E4M3)[0])
                scale[here] = outer / inner
                inverse[here] = inner * (np.float32(1) / outer)
    return scale, inverse


def sample(rows: int = 48, columns: int = 300) -> Tensor:
    made = torch.Generator().manual_seed(5)
    x = torch.randn(rows, columns, generator=made) * torch.randn(rows, 1, generator=made).exp()
    x[torch.rand(x.shape, generator=made) < 0.01] *= 1e4
    x[torch.rand(x.shape, generator=made) < 0.05] *= 1e-6
    x[3, :5] = torch.tensor([0.0, -0.0, 1e-30, -1e-12, 3.0])
    return x


def values_of(tensors: list[Tensor], kind: str = "activation") -> dict[str, Any]:
    cells = torch.zeros(LAYOUT.width, dtype=torch.float64)
    for tensor in tensors:
        assert cast_on_paper(tensor, kind, cells, LAYOUT)
    summary, named = summarize(torch.cat([t.flatten() for t in tensors])), LAYOUT.named(cells.tolist())
    return {f"{way}_{name}": STATISTICS[f"{way}_{name}"].value(summary, named) for way in ON_PAPER for name in NAMES}


@pytest.mark.parametrize("kind", ["activation", "weight"])
@pytest.mark.parametrize("way", ON_PAPER)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_cast_on_paper_is_that_of_float64_numpy(way: str, kind: str, dtype: torch.dtype) -> None:
    tensor = sample().to(dtype)
    x = tensor.to(torch.float64).numpy()
    scale, inverse = scales(x, way, kind == "weight")
    y = (x * scale).astype(np.float32).astype(np.float64)  # the product is rounded to float32
    q = nearest(y, E2M1 if way == "nvfp4" else E4M3)
    back = (q * inverse).astype(np.float32).astype(np.float64)
    error = ((x - back) ** 2).sum()
    half_beyond = 464 if way != "nvfp4" else 7
    over = np.abs(y) > half_beyond if way != "nvfp4" else np.abs(y) >= half_beyond
    got = {name: values_of([tensor], kind)[f"{way}_{name}"] for name in NAMES}
    assert got["underflows_pct"] == 100 * ((q == 0) & (x != 0)).sum() / x.size
    assert got["underflows_pct"] > 0  # else it shows nothing
    assert got["overflows_pct"] == 100 * over.sum() / x.size
    assert got["mse"] == pytest.approx(error / x.size, rel=1e-9)
    assert got["sqnr_db"] == pytest.approx(10 * math.log10((x**2).sum() / error), rel=1e-9)
    assert got["scale_inv_max"] == pytest.approx(inverse.max(), rel=1e-7)
    assert got["scale_inv_min"] == pytest.approx(1 / scale.max(), rel=1e-6)


def test_true_zeros_of_either_sign_are_no_underflow() -> None:
    for way, value in values_of([torch.tensor([[0.0, -0.0, 1.0, 2.0]])]).items():
        if way.endswith(("underflows_pct", "overflows_pct")):
            assert value == 0.0, way


def test_percentages_are_of_all_elements_what_is_not_finite_among_them() -> None:
    x = torch.tensor([[math.nan, math.inf, 1.0, 1e-12]])
    found = values_of([x])
    assert found["fp8_current_scaling_overflows_pct"] == 25.0  # the infinity, which saturates
    assert found["fp8_current_scaling_underflows_pct"] == 25.0  # an infinite amax keeps the scale at 1
    assert found["fp8_current_scaling_sqnr_db"] is None
    assert found["mxfp8_underflows_pct"] == 0.0  # the nan takes its block


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("fp16", 65519.99609375, (0, 0)),
        ("fp16", -65520.0, (0, 1)),
        ("fp16", 2.0**-25, (1, 0)),  # the tie goes to zero, which is even
        ("fp16", math.nextafter(2.0**-25, 1) + 2.0**-48, (0, 0)),
        ("fp16", -0.0, (0, 0)),
        ("bf16", torch.finfo(torch.float32).max, (0, 1)),
        ("bf16", torch.finfo(torch.bfloat16).max, (0, 0)),
        ("bf16", 2.0**-134, (1, 0)),
        ("bf16", 2.0**-133, (0, 0)),
    ],
)
def test_a_plain_cast_underflows_and_overflows_where_the_dtype_does(name: str, x: float, expected: tuple[int, int]) -> None:
    layout = Layout([PAPER_EXTRAS[name]])
    cells, one = torch.zeros(layout.width, dtype=torch.float64), torch.tensor([x, 1.0 + 2.0**-12])
    assert cast_on_paper(one, "activation", cells, layout)
    assert tuple(cells[:2].tolist()) == expected
    cast = one.to({"fp16": torch.float16, "bf16": torch.bfloat16}[name])
    assert expected == ((cast == 0).sum() if x else 0, cast.isinf().sum())
    if expected[1]:  # what overflows has no error
        assert cells[2] == (one[1] - cast[1]).double().square()


def test_calls_merge_by_adding_counts_and_taking_the_larger_scales() -> None:
    small, large = sample(5, 70) * 1e-3, sample(7, 40)
    both, one, other = values_of([small, large]), values_of([small]), values_of([large])
    for way in ON_PAPER:
        numel = small.numel() + large.numel()
        for name in ("underflows_pct", "overflows_pct", "mse"):
            parts = (one[f"{way}_{name}"] * small.numel() + other[f"{way}_{name}"] * large.numel()) / numel
            assert both[f"{way}_{name}"] == pytest.approx(parts, rel=1e-12)
        assert both[f"{way}_scale_inv_max"] == max(one[f"{way}_scale_inv_max"], other[f"{way}_scale_inv_max"])
        assert both[f"{way}_scale_inv_min"] == min(one[f"{way}_scale_inv_min"], other[f"{way}_scale_inv_min"])


def test_blocks_are_those_of_the_recipes() -> None:
    assert how_of("nvfp4", "weight") == NVFP4().plan()["fprop", "weight"]
    assert how_of("fp8_block_scaling", "gradient") == BlockScaling().plan()["dgrad", "gradient"]
    assert how_of("mxfp8", "activation").scaling.block == (1, 32)
    assert how_of("mxfp8_rceil", "activation") == MXFP8(e8m0_rounding="rceil").plan()["fprop", "activation"]


def test_formats_are_the_layers_own_or_else_the_recipes() -> None:
    e4m3, e5m2 = format_of("e4m3"), format_of("e5m2")
    assert [how_of("fp8_current_scaling", kind).format for kind in TENSORS] == [e4m3, e4m3, e5m2, e4m3, e4m3, e5m2]
    for key in ("fp8_current_scaling", "fp8_block_scaling", "mxfp8", "mxfp8_rceil"):
        assert how_of(key, "gradient", e5m2).format == e5m2 and how_of(key, "gradient", e4m3).format == e4m3
    assert how_of("nvfp4", "gradient", e5m2) == how_of("nvfp4", "gradient")


@pytest.mark.parametrize(
    "tensor",
    [
        sample()[:, ::3],
        sample(4, 8).to(torch.float64),
        sample(4, 8).to(torch.float8_e5m2),
        torch.view_as_complex(sample(4, 8).reshape(4, 4, 2)),
        torch.tensor(3.0),
        torch.empty(0),
        sample(4, 8).to_sparse(),
        nn.Parameter(sample(4, 8)),
    ],
    ids=["strided", "float64", "fp8", "complex", "scalar", "empty", "sparse", "parameter"],
)
def test_any_tensor_can_be_cast_on_paper(tensor: Tensor) -> None:
    cells = torch.zeros(LAYOUT.width, dtype=torch.float64)
    assert cast_on_paper(tensor, "activation", cells, LAYOUT)
    numel = LAYOUT.named(cells.tolist())["mxfp8_numel"]
    assert numel == tensor.numel() * (2 if tensor.is_complex() else 1)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(32, 48)
        self.fc2 = nn.Linear(48, 32)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


def watched(net: Net, stats: list[str], log_dir: Path) -> list[Observation]:
    feature = {"enabled": True, "stats": stats, "tensors": ["activation", "weight", "gradient"]}
    config = {"section": {"enabled": True, "layers": {"layer_name_regex_pattern": "fc.*"}, "statistics": feature}}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    made = torch.Generator().manual_seed(1)
    with numscope.watch(net, config=config, on_nonfinite=None, log_dir=str(log_dir)) as scope:
        for _ in range(2):  # micro-batches
            net(torch.randn(6, 32, generator=made)).square().mean().backward()
        optimizer.step()
        assert scope._watch.inspector is not None
        return list(scope._watch.inspector.last)


def test_a_configuration_asks_for_them_and_training_is_as_it_was(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, bare = Net(), Net()
    bare.load_state_dict(net.state_dict())
    seen: list[Tensor] = []
    net.fc2.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach().clone()))
    weight = net.fc1.weight.detach().clone()
    stats = [f"{way}_{name}" for way in ON_PAPER for name in NAMES]
    found = {(o.layer, o.tensor): o for o in watched(net, stats, tmp_path)}
    for place, tensors, kind in ((("fc2", "activation"), seen, "activation"), (("fc1", "weight"), [weight], "weight")):
        expected = values_of(tensors, kind)
        assert {name: found[place].values[name] for name in stats} == pytest.approx(expected, rel=1e-12)
    optimizer = torch.optim.SGD(bare.parameters(), lr=0.1)
    made = torch.Generator().manual_seed(1)
    for _ in range(2):
        bare(torch.randn(6, 32, generator=made)).square().mean().backward()
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), bare.parameters(), strict=True))


def test_a_runs_folder_has_them_as_columns_and_answers_in_sql(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    from numscope.runs.folder import find_run
    from numscope.runs.query import ask

    torch.manual_seed(0)
    stats = ["mxfp8_mse", "mxfp8_sqnr_db", "nvfp4_underflows_pct", "fp8_block_scaling_scale_inv_max"]
    found = {(o.layer, o.tensor): o.values for o in watched(Net(), stats, tmp_path)}
    rows = ask(find_run(tmp_path), f"SELECT layer, tensor, {', '.join(stats)} FROM stats ORDER BY layer, tensor").rows
    assert len(rows) == 6
    for layer, tensor, *numbers in rows:
        assert numbers == [pytest.approx(found[layer, tensor][name], rel=1e-9) for name in stats]
