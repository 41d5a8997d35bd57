"""How many planted errors between a trainer and a rollout engine are named, and how many healthy engines are left alone.

    python benchmarks/rollout.py [--no-write] [NAME…]

The cases are those of tests/parity/rollouts.py: a tiny Llama that is trained, and a second one in the engine's place, which samples with
``generate()``, on the CPU. Writes benchmarks/results/rollout.json and rollout.md.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import _machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from tests.parity.rollouts import CASES, played, wrong


def table(rows: list[dict[str, Any]]) -> list[str]:
    healthy, planted = ([row for row in rows if row["healthy"] == quiet] for quiet in (True, False))
    return [
        f"{sum(row['right'] for row in planted)} of {len(planted)} planted errors are named; "
        f"{sum(row['right'] for row in healthy)} of {len(healthy)} healthy engines are left alone. Who made the code made the cases.",
        "",
        "| case | fingerprints | log-probabilities alone | and with logits | modules' outputs |",
        "|---|---|---|---|---|",
        *(f"| {row['case']}{'' if row['right'] else ' **wrong**'} | {' | '.join(row['said'])} |" for row in rows),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="some cases only")
    parser.add_argument("--no-write", action="store_true", help="print only")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = []
    for name in args.names or CASES:
        weights, alone, beside, models = found = played(name)
        said = [str(weights), f"{alone.kind}: {alone.text}", f"{beside.kind}: {beside.text}", "" if models is None else str(models)]
        told = ["; ".join(line.strip().replace("|", "¦") for line in text.splitlines()[:3]) for text in said]
        rows.append({"case": name, "healthy": CASES[name].is_healthy, "right": not wrong(name, *found), "said": told})
        print("" if rows[-1]["right"] else f"WRONG {wrong(name, *found)}", name, "|", *told, sep="\n  ", flush=True)
    if not args.no_write and not args.names:
        _machine.write(
            "rollout", {"machine": _machine.describe(), "results": rows}, "Errors planted between trainer and engine", table(rows)
        )


if __name__ == "__main__":
    main()
