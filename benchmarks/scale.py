"""A run of a thousand ranks: what the writer makes of it, and what asking it takes in seconds, memory and bytes.

Every row is written by the sink that a training has, rank after rank, with a part a scheduled step, as a run has that takes half a minute
or more from one to the next. A thousand ranks times a thousand sites times a thousand steps, each rank's rows kept apart, would be 10^9
rows: here statistics are asked for every ``--every`` steps. The run whose ranks are merged as they go has 10^6 rows, at every step.
"""

from __future__ import annotations

import argparse
import multiprocessing
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

from numscope.runs.folder import find_run
from numscope.runs.query import ask
from numscope.sinks.parquet import ParquetSink

SITE = "model.layers.7.mlp.fc1"
# From a small process: a child's peak begins with its parent's.
MEASURED = """\
import os, subprocess, sys
process = subprocess.Popen([sys.executable, "-m", "numscope", *sys.argv[1:]], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
if os.waitstatus_to_exitcode(status) not in (0, 1):
    sys.exit("it failed")
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)
"""
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
    """Write these ranks' rows. Returns: of each rank the seconds of CPU, and those of its longest step."""
    folder, ranks, layers, steps, every = job
    names = [f"model.layers.{i // 2}.mlp.fc{i % 2 + 1}" for i in range(layers)]
    seen: dict[int, list[Any]] = {}
    took = []
    for rank in ranks:
        if rank % SETS not in seen:
            made = np.random.default_rng(rank % SETS)
            seen[rank % SETS] = [observations(step, names, made) for step in range(0, steps, every)]
        start, longest = time.process_time(), 0.0
        sink = ParquetSink(folder, rank, {})
        for one in seen[rank % SETS]:
            begin = time.process_time()
            sink.write(one)
            sink.write_part()
            longest = max(longest, time.process_time() - begin)
        sink.close()
        took.append((time.process_time() - start, longest))
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
    """Seconds, seconds of CPU and peak memory of a whole command, the median."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        told = subprocess.run([sys.executable, "-c", MEASURED, *words], check=True, capture_output=True, text=True).stdout
        found.append((time.perf_counter() - start, *map(float, told.split())))
    seconds, cpu, peaks = zip(*found, strict=True)
    return {"s": statistics.median(seconds), "cpu_s": statistics.median(cpu), "peak_bytes": max(peaks)}


def fetched(folder: Path, sql: str) -> dict[str, int]:
    """What the same question asks of a storage that is reached by fsspec."""
    run = find_run(f"file://{folder}")
    assert run.ranges is not None
    ask(run, sql)
    return {"requests": run.ranges.num_requests, "bytes": run.ranges.num_bytes}


def _asked_of(one: dict[str, Any]) -> str:
    found = one.get("fetched")
    return f"{found['requests']:,} | {found['bytes'] / 2**20:,.0f} MiB" if found else "|"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--layers", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--every", type=int, default=10)
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
            times: dict[str, dict[str, Any]] = {}
            for question, words in QUESTIONS.items():
                given = [word.format(step=options.steps // 2, rank=ranks - 1) for word in words]
                times[question] = asked(["stats", str(folder), *given], options.repeats)
                if given and given[0].startswith("SELECT"):
                    times[question]["fetched"] = fetched(folder, given[0])
            results["runs"][title] = {"written": made, "questions": times}
            lines += [
                f"## {title[0].upper()}{title[1:]}: {made['rows']:,} rows",
                "",
                "| writing | CPU |",
                "|---|---|",
                f"| a rank's whole run, median | {made['rank_s']:.2f} s |",
                f"| its longest step | {made['longest_step_s'] * 1e3:.0f} ms |",
                f"| on disk, {made['parts']:,} parts | {made['bytes'] / 2**20:,.0f} MiB, {made['bytes'] / made['rows']:.0f} bytes a row |",
                "",
                "| `numscope stats`, the whole command | median | CPU | peak memory | of a storage: requests | and bytes |",
                "|---|---|---|---|---|---|",
                *(
                    f"| {question} | {one['s']:.2f} s | {one['cpu_s']:.2f} s | {one['peak_bytes'] / 2**20:,.0f} MiB | {_asked_of(one)} |"
                    for question, one in times.items()
                ),
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
        diff = results["diff"]
        lines.append(
            f"`numscope diff` of two runs of {900 * options.steps:,} rows: {diff['s']:.2f} s, {diff['cpu_s']:.2f} s of CPU, "
            f"{diff['peak_bytes'] / 2**20:,.0f} MiB at the peak."
        )
    write("scale", results, "A run of a thousand ranks", lines)


if __name__ == "__main__":
    main()
