"""A run's folder: what writing it costs a training step, how large it is, how long questions take.

    ./dev bench storage [--layers N] [--steps N] [--repeats N]

By default 1,000 layers × 1,000 steps with 20 statistics each: 20 million values. A question is timed as the whole command, from the
interpreter's start to its end.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from _machine import describe, write

from numscope.records.observation import FIELDS, Observation
from numscope.sinks.logs import TextLog
from numscope.sinks.parquet import ParquetSink

STATS = (
    "max", "min", "mean", "std", "sample_std", "l1_norm", "l2_norm", "cur_amax", "dynamic_range", "abs_min",
    "rms", "skewness", "kurtosis", "num_nan", "num_inf", "zero_pct", "subnormal_pct", "numel", "num_zero", "num_subnormal",
)  # fmt: skip

QUESTIONS = {
    "one layer's norm over all steps": ["SELECT step, l2_norm FROM stats WHERE layer = 'model.layers.7.mlp.fc1' ORDER BY step"],
    "ten layers with the heaviest tails at the last step": [
        "SELECT layer, kurtosis FROM stats WHERE step = (SELECT max(step) FROM stats) ORDER BY kurtosis DESC LIMIT 10"
    ],
    "rms of everything, step by step": ["SELECT step, avg(rms), max(rms) FROM stats GROUP BY step ORDER BY step"],
    "largest of each of the 20 statistics, layer by layer": [
        f"SELECT layer, {', '.join(f'max({s})' for s in STATS)} FROM stats GROUP BY layer"
    ],
    "--by layer, 9 statistics merged exactly": ["--by", "layer"],
    "--by all --steps /100": ["--by", "all", "--steps", "/100"],
}


def observations(step: int, names: list[str], made: np.random.Generator) -> list[Observation]:
    """A step's numbers as a run has them: digits that no compression can foretell."""
    count = len(names)
    numel = np.full(count, 4096.0 * 4096)
    scale = made.lognormal(0.0, 1.0, count)
    zeros, subnormals = made.integers(0, 1000, (2, count))
    wild = made.random((5, count))
    columns = {
        "numel": numel, "num_nan": 0 * numel, "num_pos_inf": 0 * numel, "num_neg_inf": 0 * numel,
        "num_zero": zeros, "num_subnormal": subnormals,
        "min": -scale * (4 + wild[0]), "max": scale * (4 + wild[1]), "abs_min": scale * 1e-6 * wild[2], "abs_max": scale * 5,
        "dev_sum": scale * wild[3] * 1e3, "abs_sum": scale * numel * 0.8, "dev_square_sum": scale**2 * numel * (1 + wild[4] / 10),
        "dev_cube_sum": scale**3 * numel * wild[0], "dev_fourth_sum": scale**4 * numel * (3 + wild[1]), "center": scale * 0,
    }  # fmt: skip
    rows = np.stack([columns[name] for name in FIELDS], axis=1).tolist()
    found = []
    for order, (name, row) in enumerate(zip(names, rows, strict=True)):
        fields = {k: int(v) if k.startswith("num") else v for k, v in zip(FIELDS, row, strict=True)}
        found.append(Observation(step, name, "Linear", "activation", "bfloat16", order, 0, 1, 1, fields))
    return found


def written(folder: Path, layers: int, steps: int) -> dict[str, Any]:
    names = [f"model.layers.{i // 2}.mlp.fc{i % 2 + 1}" for i in range(layers)]
    made = np.random.default_rng(0)
    sink = ParquetSink(folder, 0, {})
    plain, parts = [], []
    for step in range(steps):
        seen = observations(step, names, made)
        before = len(os.listdir(folder / "statistics"))
        start = time.perf_counter()
        sink.write(seen)
        sink.flush()
        took = time.perf_counter() - start
        (parts if len(os.listdir(folder / "statistics")) > before else plain).append(took)
    start = time.perf_counter()
    sink.close()
    parts.append(time.perf_counter() - start)
    sizes = [path.stat().st_size for path in (folder / "statistics").iterdir()]
    return {
        "step_s": statistics.median(plain),
        "step_with_part_s": statistics.median(parts),
        "longest_step_s": max(plain + parts),
        "total_s": sum(plain) + sum(parts),
        "bytes": sum(sizes),
        "parts": len(sizes),
    }


def text_bytes(folder: Path, layers: int) -> int:
    """What the text log of one step takes, with 20 statistics a layer."""
    made = np.random.default_rng(0)
    values = made.random((layers, len(STATS))).tolist()
    log = TextLog(folder, 0)
    seen = []
    for order, row in enumerate(values):
        layer = f"model.layers.{order // 2}.mlp.fc{order % 2 + 1}"
        seen.append(Observation(500, layer, "Linear", "activation", "", order, 0, 1, 1, {}, {}, dict(zip(STATS, row, strict=True))))
    log.write(seen)
    log.close()
    return os.path.getsize(log.path)


def asked(folder: Path, words: list[str], repeats: int) -> list[float]:
    """Seconds of the whole command, each time."""
    took = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "numscope", "stats", str(folder), *words], check=True, stdout=subprocess.DEVNULL)
        took.append(time.perf_counter() - start)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        storage = written(folder, options.layers, options.steps)
        text = text_bytes(Path(name) / "text", options.layers) * options.steps
        times = {question: asked(folder, words, options.repeats) for question, words in QUESTIONS.items()}
    rows = options.layers * options.steps
    results = {
        "machine": describe(),
        "layers": options.layers,
        "steps": options.steps,
        "storage": storage,
        "text_bytes": text,
        "questions_s": times,
    }
    a_layer = storage["step_s"] / options.layers
    lines = [
        f"{options.layers:,} layers × {options.steps:,} steps, {len(STATS)} statistics each: {rows * len(STATS) / 1e6:g} million values.",
        "",
        "| writing | |",
        "|---|---|",
        f"| a step that writes no part, median | {storage['step_s'] * 1e3:.2f} ms, {a_layer * 1e6:.2f} µs a layer |",
        f"| a step that writes one, median | {storage['step_with_part_s'] * 1e3:.0f} ms |",
        f"| the longest step | {storage['longest_step_s'] * 1e3:.0f} ms |",
        f"| all of them | {storage['total_s']:.2f} s |",
        f"| on disk, {storage['parts']} parts | {storage['bytes'] / 2**20:.0f} MiB, {storage['bytes'] / rows:.0f} bytes a layer and step |",
        f"| the text log of the same | {text / 2**20:.0f} MiB |",
        "",
        "| `numscope stats`, the whole command | median | slowest |",
        "|---|---|---|",
        *(f"| {question} | {statistics.median(took):.2f} s | {max(took):.2f} s |" for question, took in times.items()),
    ]
    write("storage", results, "A run's folder", lines)


if __name__ == "__main__":
    main()
