"""The summary kernel against torch.sum, transformers' per-tensor analysis and six torch statistics.

    python benchmarks/kernel.py [--quick] [--no-write]
    python benchmarks/kernel.py --against OTHER/_native.abi3.so

Each round calls every candidate once, in turn, so that what else the machine does strikes all alike; a figure is the median over the rounds
and a ratio is taken between medians of one run. Writes benchmarks/results/kernel.json and kernel.md. With --against it compares this build
of the kernel with another one, on numbers around zero and on numbers far from it, and writes nothing.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import statistics
import time
from collections.abc import Callable

import _machine
import torch

from numscope.summary import dispatch, native, reference
from numscope.summary.sketch import part_of, sketch, sketches
from numscope.summary.state import Groups

SIZES = [1 << 14, 1 << 17, 1 << 20, 1 << 23, 1 << 26]
DTYPES = [torch.float32, torch.bfloat16]
TARGETS = {"sum": 0.6, "transformers": 30.0, "six": 12.0}


def candidates(x: torch.Tensor) -> dict[str, Callable[[], object]]:
    from transformers.debug_utils import detect_overflow, get_abs_min_max

    block = reference.empty_block(1)
    address = block.data_ptr()

    def six() -> None:
        x.min(), x.max(), x.mean(), x.std(), torch.linalg.vector_norm(x, 1), torch.linalg.vector_norm(x, 2)

    def transformers() -> None:
        get_abs_min_max(x, "")
        detect_overflow(x, "")

    return {
        "health": lambda: dispatch.observe(x, block, address, 0, Groups.HEALTH),
        "moments": lambda: dispatch.observe(x, block, address, 0, Groups.HEALTH | Groups.MOMENTS),
        "full": lambda: dispatch.observe(x, block, address, 0, Groups.ALL),
        "sketch": lambda: sketch(x),
        "fingerprint": lambda: sketches([part_of(x)], rounds=True),
        "sum": lambda: torch.sum(x),
        "aminmax": lambda: torch.aminmax(x),
        "six": six,
        "transformers": transformers,
    }


def measure(x: torch.Tensor, budget_s: float) -> dict[str, float]:
    """Median seconds of each candidate; the slow peers take every fourth round only."""
    calls = candidates(x)
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + budget_s
    for round_number in range(10_000):
        if round_number >= 12 and time.perf_counter() > end:
            break
        for name, call in calls.items():
            if name in ("six", "transformers") and round_number % 4:
                continue
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


COLUMNS = {  # title: format of a row
    "dtype": "{dtype}",
    "elements": "{numel:,}",
    "threads": "{threads}",
    "torch.sum GB/s": "{sum_GB_per_s:.1f}",
    "health GB/s": "{health_GB_per_s:.1f}",
    "moments GB/s": "{moments_GB_per_s:.1f}",
    "full GB/s": "{full_GB_per_s:.1f}",
    "fingerprint GB/s": "{fingerprint_GB_per_s:.1f}",
    "health / sum": "{health_over_sum:.2f}",
    "moments / sum": "{moments_over_sum:.2f}",
    "full / sum": "{full_over_sum:.2f}",
    "sketch / sum": "{sketch_over_sum:.2f}",
    "fingerprint / sum": "{fingerprint_over_sum:.2f}",
    "health / aminmax": "{health_over_aminmax:.2f}",
    "health / transformers": "{health_over_transformers:.0f}",
    "full / transformers": "{full_over_transformers:.0f}",
    "moments / six statistics": "{moments_over_six:.1f}",
}


def line(row: dict[str, float | int | str]) -> str:
    return "| " + " | ".join(form.format(**row) for form in COLUMNS.values()) + " |"


def table(rows: list[dict[str, float | int | str]]) -> list[str]:
    return [
        "Medians of interleaved calls, Python included. `moments` is health and all that mean, std and norms need, `full` also what",
        "skewness and kurtosis need; `sketch` is checksum, sums and sketch, `fingerprint` also the two",
        "roundings. Ratios say how many times as fast as the peer. Aimed at on tensors larger than the cache: for full",
        f"{TARGETS['sum']} of torch.sum and {TARGETS['transformers']:.0f} times transformers' `get_abs_min_max` and `detect_overflow`,",
        f"{TARGETS['six']:.0f} times six torch statistics (min, max, mean, std, both norms) for moments.",
        "With two threads, torch's figures for 128 Ki to 8 Mi elements swing where something else holds a core: OpenMP waits for it.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---" * len(COLUMNS) + "|",
        *map(line, rows),
    ]


def against(path: str, sizes: list[int]) -> None:
    """The median over interleaved rounds of this build's time / another's, native calls alone, on one thread."""
    loader = importlib.machinery.ExtensionFileLoader("_native", path)
    spec = importlib.util.spec_from_loader("_native", loader)
    assert spec is not None and native.module is not None
    other = importlib.util.module_from_spec(spec)
    loader.exec_module(other)
    block = reference.empty_block(1)
    for dtype in DTYPES:
        for mean, std in ((0.0, 1.0), (1.0, 1e-2)):
            for numel in sizes:
                x = (torch.randn(numel, generator=torch.Generator().manual_seed(0)) * std + mean).to(dtype)
                repeats, ratios = max(1, (1 << 18) // numel), []
                for round_number in range(101):
                    times = {}
                    for module in (other, native.module) if round_number % 2 else (native.module, other):
                        start = time.perf_counter()
                        for _ in range(repeats):
                            module.observe(x.data_ptr(), numel, native.CODES[dtype], block.data_ptr(), Groups.ALL, 1)
                        times[module] = time.perf_counter() - start
                    ratios.append(times[native.module] / times[other])
                print(
                    f"{dtype} mean {mean:g} std {std:g} {numel:,} elements: {statistics.median(ratios):.3f} of the other's time", flush=True
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the time")
    parser.add_argument("--no-write", action="store_true", help="print only")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--against", metavar="FILE", help="another build of the native kernel")
    args = parser.parse_args()
    if args.against:
        return against(args.against, args.sizes)
    rows: list[dict[str, float | int | str]] = []
    for threads in args.threads:
        torch.set_num_threads(threads)
        for dtype in DTYPES:
            for numel in args.sizes:
                x = torch.randn(numel, generator=torch.Generator().manual_seed(0)).to(dtype)
                seconds = measure(x, (0.5 if args.quick else 5.0) * (2 if numel > 1 << 24 else 1))
                nbytes = numel * x.element_size()
                row: dict[str, float | int | str] = {"dtype": str(dtype).removeprefix("torch."), "numel": numel, "threads": threads}
                row |= {f"{name}_us": round(s * 1e6, 2) for name, s in seconds.items()}
                row |= {f"{name}_GB_per_s": round(nbytes / s / 1e9, 2) for name, s in seconds.items()}
                for mine in ("health", "moments", "full", "fingerprint"):
                    row |= {
                        f"{mine}_over_{peer}": round(seconds[peer] / seconds[mine], 3) for peer in ("sum", "aminmax", "six", "transformers")
                    }
                rows.append(row)
                print(line(row), flush=True)
    if not args.no_write:
        about = _machine.describe() | {"instruction_set": native.module.isa() if native.module else "torch only", "threads": args.threads}
        _machine.write("kernel", {"machine": about, "targets": TARGETS, "results": rows}, "Summary kernel", table(rows))


if __name__ == "__main__":
    main()
