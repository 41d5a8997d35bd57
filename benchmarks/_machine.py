"""What every benchmark says of the machine, and how it keeps its results."""

from __future__ import annotations

import datetime
import json
import os
import platform
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"


def describe() -> dict[str, Any]:
    """CPU, cores, caches, versions, date."""
    model, cache = platform.processor(), ""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                model = value.strip()
            elif key.strip() == "cache size":
                cache = value.strip()
    except OSError:
        pass
    return {
        "cpu": model,
        "cache": cache,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "date": datetime.date.today().isoformat(),
    }


def write(name: str, results: dict[str, Any], title: str, lines: list[str]) -> None:
    """Print a table and keep it as ``results/NAME.md`` and ``.json``."""
    machine = results["machine"]
    head = f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads, torch {machine['torch']}, {machine['date']}"
    text = "\n".join([f"# {title}", "", head, "", *lines, ""])
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text)
    (RESULTS / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
