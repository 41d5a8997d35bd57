"""The native cast to e4m3 and back against a copy of the tensor, torch's own operations and torchao's casts.

    python benchmarks/quantize.py [--quick] [--no-write]

Each round calls every candidate once, in turn; a figure is the median over the rounds, a ratio is taken between medians of one run. All
give the dequantized numbers in the tensor's own dtype, in fresh memory (which for large tensors costs more than the numbers do). One
thread. Writes benchmarks/results/quantize.json and quantize.md.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import torch
from _machine import describe, write
from _peers import peer
from torch import Tensor

from numscope.precision.casting.cast import cast, empty_cells
from numscope.precision.casting.scaling import PER_ROW, How, Scaling
from numscope.records.formats import format_of

PEER = "torchao==0.18.0"
SIZES = [(256, 512), (1024, 1024), (4096, 4096)]
DTYPES = [torch.float32, torch.bfloat16]
E4M3 = format_of("e4m3")
MX = How(E4M3, Scaling("block", (1, 32), scale_format="e8m0"))
BLOCKS = {
    "1 × 32, MX": MX,
    "1 × 128": How(E4M3, Scaling("block", (1, 128))),
    "128 × 128": How(E4M3, Scaling("block", (128, 128))),
    "rows": How(E4M3, PER_ROW),
    "1 × 16, NVFP4": How(format_of("fp4"), Scaling("block", (1, 16), scale_format="e4m3fn")),
}
# Ours / theirs: what is compared with what.
PAIRS = {
    "given scale / torch": ("given scale", "torch"),
    "given scale and counts / torch": ("given scale, amax and counts", "torch"),
    "current / torchao": ("current scale", "torchao"),
    "MX / torchao MX": ("1 × 32, MX", "torchao MX"),
    "given scale / copy": ("given scale", "copy"),
    "given scale and counts / copy": ("given scale, amax and counts", "copy"),
}


def candidates(x: Tensor) -> dict[str, Callable[[], object]]:
    from torchao.float8.float8_scaling_utils import hp_tensor_to_float8_dynamic
    from torchao.float8.float8_training_tensor import GemmInputRole, LinearMMConfig
    from torchao.prototype.mx_formats.mx_tensor import MXTensor

    scale, settings = torch.tensor(100.0), LinearMMConfig()
    fp8 = torch.float8_e4m3fn
    how, cells, amax = How(E4M3, delayed=True), empty_cells(), torch.zeros(())

    def torchao() -> Tensor:
        return hp_tensor_to_float8_dynamic(x, fp8, settings, gemm_input_role=GemmInputRole.INPUT).to_original_precision()

    return {
        "copy": x.clone,
        "given scale": lambda: cast(x, how, scale=scale),
        "given scale, amax and counts": lambda: cast(x, how, scale=scale, amax=amax, cells=cells),
        "given scale, codes alone": lambda: cast(x, how, scale=scale, values=False, codes=True),
        "counts alone": lambda: cast(x, how, scale=scale, values=False, cells=cells),
        "current scale": lambda: cast(x, How(E4M3)),
        **{name: lambda way=way: cast(x, way) for name, way in BLOCKS.items()},
        "1 × 32 along columns, MX": lambda: cast(x, MX, columnwise=True),
        "torch": lambda: (x * scale).clamp(-448, 448).to(fp8).to(x.dtype) / scale,
        "torchao": torchao,
        "torchao MX": lambda: MXTensor.to_mx(x, fp8, 32).dequantize(x.dtype),
    }


def check(x: Tensor) -> None:
    """The same numbers: a given scale as torch's own cast, MX as torchao's."""
    scale = torch.tensor(100.0)
    mine = cast(x, How(E4M3, delayed=True), scale=scale, codes=True).codes
    assert mine is not None
    assert torch.equal(mine.view(torch.uint8), (x.float() * scale).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8))
    assert torch.equal(candidates(x)["1 × 32, MX"]().values, candidates(x)["torchao MX"]())  # type: ignore[attr-defined]


def measure(x: Tensor, budget_s: float) -> dict[str, float]:
    """Median seconds of each candidate."""
    calls = candidates(x)
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + budget_s
    while len(times["torch"]) < 7 or time.perf_counter() < end:
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the time")
    parser.add_argument("--no-write", action="store_true", help="print only")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    peer(PEER)
    torch.set_num_threads(1)
    lines, results = [], []
    for dtype in DTYPES:
        check(torch.randn(64, 128, generator=torch.Generator().manual_seed(1)).to(dtype))
        measured = {size: measure(torch.randn(size).to(dtype), 0.3 if options.quick else 6.0) for size in SIZES}
        heads = [f"{rows} × {columns}" for rows, columns in SIZES]
        lines += [f"## {str(dtype).removeprefix('torch.')}, nanoseconds an element", ""]
        lines += [f"| | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
        for name in measured[SIZES[0]]:
            cells = [f"{1e9 * times[name] / (size[0] * size[1]):.3f}" for size, times in measured.items()]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        for name, (ours, theirs) in PAIRS.items():
            lines.append(f"| **{name}** | {' | '.join(f'**{times[ours] / times[theirs]:.3f}**' for times in measured.values())} |")
        lines.append("")
        results += [{"dtype": str(dtype), "size": size, "seconds": times} for size, times in measured.items()]
    text = "\n".join(lines)
    if options.no_write:
        print(text)
        return
    write("quantize", {"machine": describe(), "peer": PEER, "results": results}, "Casts to e4m3 and back", lines)


if __name__ == "__main__":
    main()
