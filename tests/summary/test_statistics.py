"""Every statistic against float64 NumPy, and its SQL against its value."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from numscope.precision.gemm.counting import cast_on_paper
from numscope.records.errors import UsageError
from numscope.records.observation import FIELDS, SEEN_IN_CALLS, TENSORS
from numscope.summary import operand_casts
from numscope.summary.attention import attention_cells
from numscope.summary.dispatch import observe_extras, summarize
from numscope.summary.extras import ATTENTION, DYNAMICS, EXPONENTS, SIGNS, SPECTRAL, Layout, blockwise
from numscope.summary.formulas import Number
from numscope.summary.spectral import spectral_norm
from numscope.summary.state import Summary
from numscope.summary.statistics import RAW_SUMS, STATISTICS, extra_of, formula_of, statistic_of

OPERANDS = list(operand_casts.EXTRAS.values())
ON_PAPER = list(operand_casts.PAPER_EXTRAS.values())
LAYOUT = Layout([EXPONENTS, blockwise(), blockwise(16, 2), *ON_PAPER, *OPERANDS, SIGNS, SPECTRAL, ATTENTION, DYNAMICS])


@dataclass(frozen=True)
class StatRequest:
    statistic: str
    options: tuple[tuple[str, object], ...] = ()


def numbers_of(tensor: Tensor, dynamics: list[float] | None = None) -> tuple[Summary, dict[str, float | list[float]]]:
    cells = torch.zeros(LAYOUT.width, dtype=torch.float64)
    assert observe_extras(tensor, cells, LAYOUT)
    assert cast_on_paper(tensor, "activation", cells, LAYOUT)
    cells[LAYOUT.offsets["spectral"]] = spectral_norm(tensor)
    cells[LAYOUT.offsets["attention"] :][:3] = attention_cells(tensor.abs())
    if dynamics:
        cells[-DYNAMICS.width :] = torch.tensor(dynamics, dtype=torch.float64)
        cells[LAYOUT.offsets["signs"] :][:2] = torch.tensor(dynamics[2:4])
        for extra, factor in zip(OPERANDS, (1.0, 3.0, 5.0, 7.0), strict=True):  # what a GEMM's casts count
            counted = [float(tensor.numel()), 3.0, 1.0, 0.3 * factor, 448 / factor, factor / 7]
            cells[LAYOUT.offsets[extra.key] :][: extra.width] = torch.tensor(counted, dtype=torch.float64)
    return summarize(tensor), LAYOUT.named(cells.tolist())


def value(name: str, tensor: Tensor, dynamics: list[float] | None = None) -> Number:
    return formula_of(StatRequest(name))(*numbers_of(tensor, dynamics))


def outliers() -> Tensor:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(40, 50, generator=generator) * 0.1 + 0.05
    x[torch.rand(40, 50, generator=generator) < 0.01] *= 1000
    x[0, :3] = torch.tensor([0.0, 1e-40, -1e-7])
    return x


# ---- by NumPy

BY_NUMPY: dict[str, Callable[[np.ndarray], float]] = {
    "max": np.max,
    "min": np.min,
    "mean": np.mean,
    "std": np.std,
    "sample_std": lambda x: np.std(x, ddof=1),
    "l1_norm": lambda x: np.abs(x).sum(),
    "l2_norm": np.linalg.norm,
    "cur_amax": lambda x: np.abs(x).max(),
    "dynamic_range": lambda x: np.log2(np.abs(x).max()) - np.log2(np.abs(x[x != 0]).min()),
    "abs_min": lambda x: np.abs(x[x != 0]).min(),
    "rms": lambda x: np.sqrt(np.mean(x**2)),
    "skewness": lambda x: np.mean((x - x.mean()) ** 3) / x.std() ** 3,
    "kurtosis": lambda x: np.mean((x - x.mean()) ** 4) / x.std() ** 4,
    "num_nan": lambda x: 0,
    "num_inf": lambda x: 0,
    "zero_pct": lambda x: 100 * np.mean(x == 0),
    "subnormal_pct": lambda x: 100 * np.mean((x != 0) & (np.abs(x) < np.finfo(np.float32).smallest_normal)),
}


@pytest.mark.parametrize("name", BY_NUMPY)
def test_a_statistic_is_that_of_float64_numpy(name: str) -> None:
    x = outliers()
    assert value(name, x) == pytest.approx(float(BY_NUMPY[name](x.to(torch.float64).numpy().reshape(-1))), rel=1e-12)


@pytest.mark.parametrize("name", operand_casts.TO_FORMAT)
def test_what_if_statistics_are_those_of_torchs_own_cast(name: str) -> None:
    dtype = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "fp16": torch.float16, "bf16": torch.bfloat16}[name]
    x = outliers()
    x[1, 0] = 1e5
    scale = torch.tensor(torch.finfo(dtype).max) / x.abs().amax() if dtype.itemsize == 1 else torch.tensor(1.0)
    cast = ((x * scale).to(dtype).float() * (1 / scale)).to(torch.float64)
    exact, kept = x.to(torch.float64), torch.isfinite(cast)
    error = ((exact - cast)[kept] ** 2).sum()
    assert value(f"{name}_underflows_pct", x) == 100 * ((cast == 0) & (x != 0)).sum().item() / 2000
    assert value(f"{name}_overflows_pct", x) == 100 * (~kept).sum().item() / 2000
    assert value(f"{name}_mse", x) == pytest.approx((error / 2000).item(), rel=1e-9)
    sqnr = value(f"{name}_sqnr_db", x)
    if name == "fp16":  # an infinity is no signal
        assert sqnr is None
    else:
        assert sqnr == pytest.approx(10 * math.log10((exact**2).sum() / error), rel=1e-9)


def test_sqnr_is_absent_where_the_cast_is_exact() -> None:
    assert value("e4m3_sqnr_db", torch.tensor([1.0, 0.5, -448.0])) is None
    assert value("e4m3_mse", torch.tensor([1.0, 0.5, -448.0])) == 0.0


def test_percentages_are_of_all_elements() -> None:
    x = torch.tensor([math.nan, math.inf, 1e-10, 1e6, 0.0])
    assert value("fp16_underflows_pct", x) == 20.0
    assert value("fp16_overflows_pct", x) == 40.0  # of which the infinity
    assert value("fp16_mse", x) == pytest.approx(0.2e-20)  # what overflows has no error
    assert value("zero_pct", x) == 20.0


def test_block_options_choose_their_column() -> None:
    x = (2.0 ** -torch.arange(32.0)).reshape(32, 1).expand(32, 32).contiguous()
    summary = summarize(x)
    for options, expected in (
        ((), 31.0),
        ((("block_size", 16),), 15.0),
        ((("block_size", 16), ("dims", 2)), 15.0),
        ((("max_over_orientations", False),), 0.0),
    ):
        asked = StatRequest("max_blockwise_dynamic_range", options)
        extra = extra_of(asked)
        assert extra is not None
        layout = Layout([extra])
        cells = torch.zeros(1, dtype=torch.float64)
        assert observe_extras(x, cells, layout)
        assert formula_of(asked)(summary, layout.named(cells.tolist())) == expected


def test_an_exponent_histogram_is_a_list_of_counts() -> None:
    histogram = value("exponent_histogram", torch.tensor([1.0, 1.5, -2.0, math.nan]))
    assert isinstance(histogram, list)
    assert {i: n for i, n in enumerate(histogram) if n} == {127: 2.0, 128: 1.0}


def test_weight_dynamics_are_ratios_to_the_weight() -> None:
    weight, dynamics = torch.tensor([3.0, 4.0]), [25.0, 0.25, 8.0, 2.0, 8.0, 6.0, 4.0, 1.0]
    expected = {
        "grad_weight_ratio": 1.0,
        "update_weight_ratio": 0.1,
        "lost_updates_pct": 25.0,
        "bf16_lost_updates_pct": 75.0,
        "adam_v_underflow_pct": 25.0,
        "momentum_agreement_pct": 25.0,
    }
    assert {name: value(name, weight, dynamics) for name in expected} == pytest.approx(expected)
    assert all(STATISTICS[name].tensors == ("weight",) for name in expected)


@pytest.mark.parametrize("tensor", [torch.empty(0), torch.zeros(3), torch.full((3,), math.nan)], ids=["empty", "zeros", "nan"])
def test_what_is_undefined_is_absent_never_an_error(tensor: Tensor) -> None:
    numbers = numbers_of(tensor)
    values = {name: formula_of(StatRequest(name))(*numbers) for name in STATISTICS}
    assert values["grad_weight_ratio"] is values["lost_updates_pct"] is values["skewness"] is values["e4m3_sqnr_db"] is None
    assert not any(isinstance(x, float) and not math.isfinite(x) for x in values.values())


def test_extras_that_were_not_collected_give_nothing() -> None:
    summary = summarize(outliers())
    for name, statistic in STATISTICS.items():
        if statistic.extra(()) is not None:
            assert formula_of(StatRequest(name))(summary, {}) is None


# ---- the table


def test_the_table_holds_what_configurations_may_ask_for() -> None:
    formats = [f"{form}_{what}" for form in operand_casts.TO_FORMAT for what in ("underflows_pct", "overflows_pct", "mse", "sqnr_db")]
    dynamics = ["grad_weight_ratio", "update_weight_ratio", "lost_updates_pct", "bf16_lost_updates_pct", "adam_v_underflow_pct"]
    of_weights = [*dynamics, "momentum_agreement_pct", "attention_entropy", "attention_max", "spectral_norm", "stable_rank", "sketch"]
    counted = ("underflows_pct", "overflows_pct", "mse", "scale_inv_min", "scale_inv_max")
    kinds = ("operand", "operand_columnwise", "operand_nvfp4", "operand_nvfp4_columnwise")
    operands = [f"{operand}_{what}" for operand in kinds for what in counted]
    of_a_cast = ("underflows_pct", "overflows_pct", "mse", "sqnr_db", "scale_inv_min", "scale_inv_max")
    ways = [f"{way}_{what}" for way in operand_casts.ON_PAPER for what in of_a_cast]
    assert list(STATISTICS) == [*BY_NUMPY, "exponent_histogram", "max_blockwise_dynamic_range", *formats, *ways, *of_weights, *operands]
    assert {statistic.unit for statistic in STATISTICS.values()} == {
        "value",
        "value^2",
        "count",
        "counts",
        "%",
        "dB",
        "log2",
        "nats",
        "ratio",
    }
    assert all(set(statistic.tensors) <= {*TENSORS, *SEEN_IN_CALLS} and statistic.formula for statistic in STATISTICS.values())


def test_what_a_statistic_needs_beside_the_summary_is_named() -> None:
    assert [extra_of(StatRequest(name)) for name in ("e4m3_mse", "mean", "exponent_histogram")] == [
        operand_casts.PAPER_EXTRAS["e4m3"],
        None,
        EXPONENTS,
    ]


def test_an_unknown_statistic_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"^statistic: got 'l2norm', expected one of max, min, .*\. Did you mean 'l2_norm'\?$"):
        statistic_of("l2norm")


def test_an_unknown_option_suggests_the_nearest() -> None:
    message = (
        r"^max_blockwise_dynamic_range: got option 'blocksize', expected one of block_size, dims, max_over_orientations\. "
        r"Did you mean 'block_size'\?$"
    )
    with pytest.raises(UsageError, match=message):
        extra_of(StatRequest("max_blockwise_dynamic_range", (("blocksize", 16),)))


def test_the_table_is_there_without_torch() -> None:
    code = "import numscope.summary.statistics, numscope.summary.extras, sys; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"


# ---- SQL

ROWS: dict[str, tuple[Tensor, list[float] | None]] = {
    "outliers": (outliers(), [25.0, 0.25, 8.0, 2.0, 8.0, 6.0, 4.0, 1.0]),
    "normal": (torch.randn(64, 33, generator=torch.Generator().manual_seed(1)), [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    "empty": (torch.empty(0), None),
    "nan": (torch.full((3,), math.nan), None),
    "zeros": (torch.zeros(5), [1.0, 1.0, 5.0, 0.0, 5.0, 5.0, 0.0, 0.0]),
    "constant": (torch.full((7,), 0.1), None),
    "one": (torch.tensor([-3.0]), [math.inf, math.nan, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
    "mixed": (torch.tensor([math.inf, -math.inf, math.nan, 1e6, 1e-30, -2.0]), None),
    "bfloat16": (torch.randn(100, generator=torch.Generator().manual_seed(2)).bfloat16(), None),
    "float64": (torch.tensor([1e200, -1e180, 3.0], dtype=torch.float64), [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
    "far": (torch.randn(500, generator=torch.Generator().manual_seed(4), dtype=torch.float64) * 1e-8 + 1, None),
    "tiny": (torch.randn(500, generator=torch.Generator().manual_seed(5), dtype=torch.float64) * 1e-170, None),
    "skewed": (torch.rand(1000, generator=torch.Generator().manual_seed(3)).pow(5), None),
}


@pytest.fixture(scope="module")
def stored() -> Iterator[tuple[Any, list[tuple[Any, Any]]]]:
    """A database with the summaries of all rows in the view ``stats``, and their summaries and extras."""
    duckdb = pytest.importorskip("duckdb")
    columns = [*FIELDS, *LAYOUT.columns]
    types = ["BIGINT"] * 6 + ["DOUBLE"] * 10 + ["DOUBLE[]" if width > 1 else "DOUBLE" for width in LAYOUT.widths]
    database = duckdb.connect()
    declared = ", ".join(f'"{column}" {kind}' for column, kind in zip(columns, types, strict=True))
    database.execute(f"CREATE TABLE stored ({declared})")
    numbers = [numbers_of(tensor, dynamics) for tensor, dynamics in ROWS.values()]
    for summary, extras in numbers:
        row = [getattr(summary, field) for field in FIELDS] + list(extras.values())
        database.execute(f"INSERT INTO stored VALUES ({', '.join('?' * len(row))})", row)
    raw = ", ".join(f'{sql} AS "{column}"' for column, sql in RAW_SUMS.items())
    database.execute(f"CREATE VIEW stats AS SELECT *, {raw} FROM stored")
    with database:
        yield database, numbers


@pytest.mark.parametrize("name", [name for name in STATISTICS if name != "sketch"])  # a column without a value
def test_sql_gives_the_value(name: str, stored: tuple[Any, list[tuple[Any, Any]]]) -> None:
    database, numbers = stored
    expected = [formula_of(StatRequest(name))(summary, extras) for summary, extras in numbers]
    got = [row[0] for row in database.execute(f"SELECT {STATISTICS[name].sql} FROM stats").fetchall()]
    for label, theirs, mine in zip(ROWS, got, expected, strict=True):
        if mine is None or isinstance(mine, list):
            assert theirs == mine, label
        else:
            assert theirs == pytest.approx(mine, rel=1e-9, abs=1e-12), label


def test_the_documentation_names_every_statistic_and_no_other() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "statistics.md").read_text(encoding="utf-8")
    named = {name for line in text.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert named | {"exponent_histogram", "max_blockwise_dynamic_range"} == set(STATISTICS)
    assert "`exponent_histogram`:" in text and "`max_blockwise_dynamic_range`:" in text
