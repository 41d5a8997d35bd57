"""A run of many ranks, each rank's rows apart, before and after its parts are compacted: seconds, memory, requests and bytes of a question.

    ./dev bench runs [--ranks N] [--layers N] [--steps N] [--repeats N]

By default 1,000 ranks × 1,000 sites × 100 steps: 10^8 rows in 7,000 parts, some 15 GB with their copy. Every number is another one, so that
sorting them makes no file smaller than it would be.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _machine import describe, write
from scale import asked, fetched

from numscope.records.observation import COUNTS, FIELDS
from numscope.runs.folder import find_run
from numscope.runs.query import ask
from numscope.sinks.part_files import PartFiles

AT_ONCE = 32  # steps in a large part: as many small ones as the writer merges


def table_of(rank: int, names: list[str], steps: range, made: np.random.Generator) -> Any:
    """Rows as the sink writes them, with digits that no compression can foretell."""
    import pyarrow as pa

    count = len(names) * len(steps)
    layers = pa.DictionaryArray.from_arrays(np.tile(np.arange(len(names), dtype=np.int32), len(steps)), names)
    columns = {"step": np.repeat(np.asarray(steps, dtype=np.int64), len(names)), "layer": layers}
    for name, word in (("cls", "Linear"), ("tensor", "activation"), ("dtype", "bfloat16")):
        columns[name] = pa.DictionaryArray.from_arrays(np.zeros(count, dtype=np.int32), [word])
    columns["ord"] = np.tile(np.arange(len(names), dtype=np.int64), len(steps))
    for name, value in (("rank", rank), ("attempt", 1), ("ranks", 1), ("calls", 1)):
        columns[name] = np.full(count, value, dtype=np.int64)
    columns["time"] = pa.array(columns["step"] * 1000 + 1_700_000_000_000, pa.timestamp("ms"))
    scale, wild = made.lognormal(0.0, 1.0, count), made.random((6, count))
    values = {
        "numel": np.full(count, 4096.0 * 4096), "num_zero": made.integers(0, 1000, count), "num_subnormal": made.integers(0, 1000, count),
        "min": -scale * (4 + wild[0]), "max": scale * (4 + wild[1]), "abs_min": scale * 1e-6 * wild[2], "abs_max": scale * 5,
        "dev_sum": scale * wild[3] * 1e3, "abs_sum": scale * 1e7 * wild[5], "dev_square_sum": scale**2 * 1e7 * (1 + wild[4] / 10),
        "dev_cube_sum": scale**3 * 1e7 * wild[0], "dev_fourth_sum": scale**4 * 1e7 * (3 + wild[1]),
    }  # fmt: skip
    for name in FIELDS:
        columns[name] = np.asarray(values.get(name, np.zeros(count))).astype(np.int64 if name in COUNTS else np.float64)
    return pa.table(columns)


def ranks_written(job: tuple[str, range, int, int]) -> None:
    folder, ranks, num_layers, num_steps = job
    names = [f"model.layers.{i // 2}.mlp.fc{i % 2 + 1}" for i in range(num_layers)]
    for rank in ranks:
        made, parts = np.random.default_rng(rank), PartFiles(folder, rank, 1)
        whole = num_steps - num_steps % AT_ONCE
        pieces = [range(i, i + AT_ONCE) for i in range(0, whole, AT_ONCE)] + [range(i, i + 1) for i in range(whole, num_steps)]
        for steps in pieces:
            parts.write(table_of(rank, names, steps, made), len(names) * len(steps) * (len(FIELDS) + 5))
        parts.finish()


def make(folder: Path, num_ranks: int, num_layers: int, num_steps: int) -> None:
    """A run's folder, written by the writer that a training has."""
    halves = [range(i, num_ranks, 2) for i in range(min(2, num_ranks))]
    with multiprocessing.get_context("spawn").Pool(len(halves)) as pool:
        pool.map(ranks_written, [(str(folder / "statistics"), half, num_layers, num_steps) for half in halves])


SITE = "model.layers.7.mlp.fc1"
QUESTIONS = {
    "a step, every site over all ranks": "SELECT layer, max(abs_max), sum(num_nan)::BIGINT FROM stats WHERE step = {step} GROUP BY layer "
    "ORDER BY 2 DESC LIMIT 10",
    "a site, every step over all ranks": f"SELECT step, max(abs_max), min(rms), max(rms) FROM stats WHERE layer = '{SITE}' GROUP BY step "
    "ORDER BY step",
    "a site of one rank": f"SELECT step, rms FROM stats WHERE layer = '{SITE}' AND rank = {{rank}} ORDER BY step",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--layers", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--before", type=Path, help="a run that was made by this program")
    parser.add_argument("--after", type=Path, help="the same, compacted")
    options = parser.parse_args()
    given = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items() if "/" not in str(value)}
    results: dict[str, Any] = {"machine": describe(), "options": given, "questions": {}}
    with tempfile.TemporaryDirectory() as name:
        before, after = options.before or Path(name) / "before", options.after or Path(name) / "after"
        if options.before is None:
            make(before, options.ranks, options.layers, options.steps)
        if options.after is None:
            shutil.copytree(before, after, copy_function=os.link)
            results["compacting"] = asked(["stats", str(after), "compact"], 1)
        for folder in (before, after):
            sizes = [path.stat().st_size for path in (folder / "statistics").iterdir()]
            results[folder.name] = {"parts": len(sizes), "bytes": sum(sizes)}
        for title, sql in QUESTIONS.items():
            sql = sql.format(step=options.steps // 2, rank=options.ranks - 1)
            taken: dict[Path, list[dict[str, float]]] = {before: [], after: []}
            for _ in range(options.repeats):  # by turns
                for folder, found in taken.items():
                    found.append(asked(["stats", str(folder), sql], 1))
            answers = {folder: ask(find_run(folder), sql).rows for folder in taken}
            assert answers[before] == answers[after], title
            results["questions"][title] = [
                {key: statistics.median(one[key] for one in found) for key in found[0]} | {"fetched": fetched(folder, sql)}
                for folder, found in taken.items()
            ]
    lines = [
        f"{options.ranks:,} ranks × {options.layers:,} sites × {options.steps:,} steps, every number another one: "
        f"{options.ranks * options.layers * options.steps:,} rows.",
        "",
        "| | parts | on disk |",
        "|---|---|---|",
        *(
            f"| {title} | {one['parts']:,} | {one['bytes'] / 2**20:,.0f} MiB |"
            for title, one in (("as written", results[before.name]), ("compacted", results[after.name]))
        ),
        "",
        "| `numscope stats RUN SQL`, the whole command, before → after | median | CPU | peak memory | of a storage: requests | and bytes |",
        "|---|---|---|---|---|---|",
    ]
    for title, pair in results["questions"].items():
        cells = [
            " → ".join(f"{one['s']:.2f}" for one in pair) + " s",
            " → ".join(f"{one['cpu_s']:.2f}" for one in pair) + " s",
            " → ".join(f"{one['peak_bytes'] / 2**20:,.0f}" for one in pair) + " MiB",
            " → ".join(f"{one['fetched']['requests']:,}" for one in pair),
            " → ".join(f"{one['fetched']['bytes'] / 2**20:,.0f}" for one in pair) + " MiB",
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    if "compacting" in results:
        one = results["compacting"]
        lines += ["", f"Compacting took {one['s']:.0f} s, {one['cpu_s']:.0f} s of CPU, {one['peak_bytes'] / 2**20:,.0f} MiB at the peak."]
    write("runs", results, "A run of many ranks, before and after it is compacted", lines)


if __name__ == "__main__":
    main()
