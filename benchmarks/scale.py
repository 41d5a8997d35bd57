"""A run of a thousand ranks: what the writer makes of it, and what asking it takes in seconds, memory and bytes.

Every row is written by the sink that a training has, rank after rank, with a part a scheduled step, as a run has that takes half a minute
or more from one to the next. A thousand ranks times a thousand sites times a thousand steps, each rank's rows kept apart, would be 10^9
rows: here statistics are asked for every ``--every`` steps. The run whose ranks are merged as they go has 10^6 rows, at every step.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from _machine import describe, write
from storage import observations

from numscope.sinks.parquet import ParquetSink

SITE = "model.layers.7.mlp.fc1"
SETS = 8  # of numbers; the ranks take turns
QUESTIONS = {
    "a step, every site over all ranks": [
        "SELECT layer, max(abs_max), sum(num_nan)::BIGINT FROM stats WHERE step = {step} GROUP BY layer ORDER BY 2 DESC LIMIT 10"
    ],
    "a site, every step over all ranks": [
        f"SELECT step, max(abs_max), min(rms), max(rms) FROM stats WHERE layer = '{SITE}' GROUP BY step ORDER BY step"
    ],
    "a site of one rank": [f"SELECT step, rms FROM stats WHERE layer = '{SITE}' AND rank = {{rank}} ORDER BY step"],
    "a step merged exactly, `--by name --steps`": ["--by", "name", "--steps", "{step}", "--stats", "max,mean,std"],
    "what the run holds": [],
}


def ranks_written(job: tuple[str, range, int, int, int]) -> list[tuple[float, float]]:
    """Write these ranks' rows. Returns: of each rank the seconds, and those of its longest step."""
    folder, ranks, layers, steps, every = job
    names = [f"model.layers.{i // 2}.mlp.fc{i % 2 + 1}" for i in range(layers)]
    made = [np.random.default_rng(i) for i in range(SETS)]
    seen = [[observations(step, names, one) for step in range(0, steps, every)] for one in made]
    took = []
    for rank in ranks:
        start, longest = time.perf_counter(), 0.0
        sink = ParquetSink(folder, rank, {})
        for one in seen[rank % SETS]:
            begin = time.perf_counter()
            sink.write(one)
            sink.write_part()
            longest = max(longest, time.perf_counter() - begin)
        sink.close()
        took.append((time.perf_counter() - start, longest))
    return took


def written(folder: Path, ranks: int, layers: int, steps: int, every: int) -> dict[str, Any]:
    halves = [range(i, ranks, 2) for i in range(min(2, ranks))]
    start = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(len(halves)) as pool:
        took = [one for half in pool.map(ranks_written, [(str(folder), half, layers, steps, every) for half in halves]) for one in half]
    sizes = [path.stat().st_size for path in (folder / "statistics").iterdir()]
    return {
        "rows": ranks * layers * len(range(0, steps, every)),
        "bytes": sum(sizes),
        "parts": len(sizes),
        "rank_s": statistics.median(one for one, _ in took),
        "longest_step_s": max(longest for _, longest in took),
        "all_s": time.perf_counter() - start,
    }


def asked(words: list[str], repeats: int) -> dict[str, float]:
    """Seconds and peak memory of a whole command, the median."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-m", "numscope", *words], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode in (0, 1), words
        found.append((time.perf_counter() - start, usage.ru_maxrss * 1024))
    return {"s": statistics.median(s for s, _ in found), "peak_bytes": max(peak for _, peak in found)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--layers", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    results: dict[str, Any] = {"machine": describe(), "options": vars(options), "runs": {}}
    lines = []
    with tempfile.TemporaryDirectory() as name:
        shapes = {
            f"each rank's rows apart, every {options.every} steps": (options.ranks, options.every),
            "ranks merged as they go, every step": (1, 1),
        }
        for title, (ranks, every) in shapes.items():
            folder = Path(name) / str(ranks)
            made = written(folder, ranks, options.layers, options.steps, every)
            times = {}
            for question, words in QUESTIONS.items():
                values = {"step": options.steps // 2, "rank": ranks - 1}
                times[question] = asked(["stats", str(folder), *(word.format(**values) for word in words)], options.repeats)
            results["runs"][title] = {"written": made, "questions": times}
            lines += [
                f"## {title[0].upper()}{title[1:]}: {made['rows']:,} rows",
                "",
                "| writing | |",
                "|---|---|",
                f"| a rank's whole run, median | {made['rank_s']:.2f} s |",
                f"| its longest step | {made['longest_step_s'] * 1e3:.0f} ms |",
                f"| on disk, {made['parts']:,} parts | {made['bytes'] / 2**20:,.0f} MiB, {made['bytes'] / made['rows']:.0f} bytes a row |",
                "",
                "| `numscope stats`, the whole command | median | peak memory |",
                "|---|---|---|",
                *(f"| {question} | {one['s']:.2f} s | {one['peak_bytes'] / 2**20:,.0f} MiB |" for question, one in times.items()),
                "",
            ]
        rows = options.ranks * options.layers * options.steps
        per_row = next(iter(results["runs"].values()))["written"]["bytes"] / next(iter(results["runs"].values()))["written"]["rows"]
        lines += [
            f"Every rank's rows at every step would be {rows:,} rows: by the bytes a row above {rows * per_row / 2**30:,.0f} GiB.",
            "",
        ]
        pair = [Path(name) / "a", Path(name) / "b"]
        for folder in pair:
            written(folder, 1, 900, options.steps, 1)
        results["diff"] = asked(["diff", *map(str, pair)], options.repeats)
        lines.append(
            f"`numscope diff` of two runs of {900 * options.steps:,} rows: {results['diff']['s']:.2f} s, "
            f"{results['diff']['peak_bytes'] / 2**20:,.0f} MiB at the peak."
        )
    results["peak_of_writers_bytes"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    write("scale", results, "A run of a thousand ranks", lines)


if __name__ == "__main__":
    main()
