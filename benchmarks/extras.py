"""The extra columns' walks against the summary pass and torch.sum, and what a statistic's value costs.

    python benchmarks/extras.py [--quick] [--no-write]

One thread, and its CPU time: what else the machine does counts little. Candidates are called in turn; figures are medians, ratios are taken
between medians of one run. Writes benchmarks/results/extras.json and extras.md.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import _machine
import torch

from numscope.precision.gemm.counting import cast_on_paper
from numscope.summary import dispatch, native, reference
from numscope.summary.dispatch import observe_extras
from numscope.summary.extras import EXPONENTS, Extra, Layout, blockwise
from numscope.summary.operand_casts import PAPER_EXTRAS, TO_FORMAT
from numscope.summary.state import Groups, Summary
from numscope.summary.statistics import STATISTICS

DTYPES = [torch.float32, torch.bfloat16]
SIZES = [(64, 64), (1024, 1024), (4096, 4096)]
FORMAT_EXTRAS = [PAPER_EXTRAS[name] for name in TO_FORMAT]
LAYOUTS: dict[str, list[Extra]] = {
    "exponents": [EXPONENTS],
    "e4m3": FORMAT_EXTRAS[:1],
    "fp16": FORMAT_EXTRAS[2:3],
    "four formats": FORMAT_EXTRAS,
    "blocks 32, along rows": [blockwise(32, 1, False)],
    "blocks 32, both ways": [blockwise()],
    "blocks 32 × 32": [blockwise(32, 2)],
    "all": [EXPONENTS, *FORMAT_EXTRAS, blockwise()],
}


def candidates(x: torch.Tensor) -> dict[str, Callable[[], object]]:
    block = reference.empty_block(1)
    address = block.data_ptr()

    def extra(extras: list[Extra]) -> Callable[[], object]:
        layout = Layout(extras)
        cells = torch.zeros(layout.width, dtype=torch.float64)
        return lambda: (observe_extras(x, cells, layout), cast_on_paper(x, "activation", cells, layout))

    return {
        "torch.sum": lambda: torch.sum(x),
        "summary": lambda: dispatch.observe(x, block, address, 0, Groups.ALL),
        **{name: extra(extras) for name, extras in LAYOUTS.items()},
    }


def measure(x: torch.Tensor, budget_s: float) -> dict[str, float]:
    """Median seconds of each candidate."""
    calls = candidates(x)
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + budget_s
    while len(times["all"]) < 12 or time.perf_counter() < end:
        for name, call in calls.items():
            start = time.thread_time()
            call()
            times[name].append(time.thread_time() - start)
    return {name: statistics.median(values[2:]) for name, values in times.items()}


def measure_values(budget_s: float) -> dict[str, float]:
    """Median microseconds of the document's six and of the six moment statistics of one summary, never seen before."""
    sets = {
        "max, min, mean, std, l1_norm, l2_norm": ["max", "min", "mean", "std", "l1_norm", "l2_norm"],
        "mean, std, sample_std, skewness, kurtosis, rms": ["mean", "std", "sample_std", "skewness", "kurtosis", "rms"],
    }
    summaries = [dispatch.summarize(torch.randn(1000, generator=torch.Generator().manual_seed(i))) for i in range(100)]
    result = {}
    for title, names in sets.items():
        values = [STATISTICS[name].value for name in names]
        times, end = [], time.perf_counter() + budget_s
        while time.perf_counter() < end:
            start = time.thread_time()
            evaluate(summaries, values)
            times.append((time.thread_time() - start) / len(summaries))
        result[title] = round(statistics.median(times) * 1e6, 2)
    return result


def evaluate(summaries: list[Summary], values: list[Callable[..., object]]) -> None:
    for summary in summaries:
        for value in values:
            value(summary, {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the time")
    parser.add_argument("--no-write", action="store_true", help="print only")
    args = parser.parse_args()
    torch.set_num_threads(1)
    budget_s = 0.5 if args.quick else 5.0
    rows = []
    names = ["torch.sum", "summary", *LAYOUTS]
    lines = [
        "Nanoseconds an element: CPU time of one thread, medians of calls in turn, Python included. `summary` is health and moments, from",
        "which every statistic without extra columns follows. In brackets, how many times `torch.sum`.",
        "",
        "| dtype | shape | " + " | ".join(names) + " |",
        "|---" * (len(names) + 2) + "|",
    ]
    for dtype in DTYPES:
        for shape in SIZES:
            x = (torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 0.02).to(dtype)
            seconds = measure(x, budget_s)
            ns = {name: round(s / x.numel() * 1e9, 3) for name, s in seconds.items()}
            rows.append({"dtype": str(dtype).removeprefix("torch."), "shape": shape, "ns_per_element": ns})
            shown = [f"{ns[name]:.2f} ({seconds[name] / seconds['torch.sum']:.1f})" for name in names]
            lines.append(f"| {rows[-1]['dtype']} | {shape[0]} × {shape[1]} | " + " | ".join(shown) + " |")
            print(lines[-1], flush=True)
    values = measure_values(budget_s)
    lines += ["", "Values of one summary, microseconds:", "", "| statistics | µs |", "|---|---|"]
    lines += [f"| {title} | {us} |" for title, us in values.items()]
    if not args.no_write:
        about = _machine.describe() | {"instruction_set": native.module.isa() if native.module else "torch only", "threads": 1}
        _machine.write("extras", {"machine": about, "results": rows, "values_us": values}, "Extra columns", lines)


if __name__ == "__main__":
    main()
