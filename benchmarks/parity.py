"""How many planted faults of parallel layouts numscope.parity names, and how many healthy layouts it leaves alone.

    python benchmarks/parity.py [--no-write] [NAME…]

The cases are those of tests/parity/cases.py: one small training in each layout, on the CPU with gloo, over 1, 2 and 4 ranks, many in one
launch. A verdict is right where it has the kind and one of the parameters that were planted, and the words that say why. Writes
benchmarks/results/parity.json and parity.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import _machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from tests.distributed.ranks import RankPool
from tests.parity.cases import CASES, DISTURBED, is_right, judged, play, train


def table(rows: list[dict[str, Any]]) -> list[str]:
    healthy, planted = ([row for row in rows if (row["expected"] is None) == quiet] for quiet in (True, False))
    return [
        f"{sum(row['right'] for row in planted)} of {len(planted)} planted faults are named by kind and parameter; "
        f"{sum(row['right'] for row in healthy)} of {len(healthy)} healthy layouts are left alone. Who made the code made the cases.",
        "",
        "| case | ranks | kind | verdict |",
        "|---|---|---|---|",
        *(
            f"| {row['case']} | {row['ranks']} | {row['expected'] or 'healthy'} | {'' if row['right'] else '**wrong**: '}{row['text']} |"
            for row in rows
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="some cases only")
    parser.add_argument("--no-write", action="store_true", help="print only")
    args = parser.parse_args()
    torch.set_num_threads(1)
    references = {CASES[name].reference for name in args.names}
    names = [name for name in CASES if not args.names or name in args.names or name.removesuffix(", disturbed") in references]
    rows = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name in names:
            if CASES[name].world == 1:
                train(name, folder)
        for world in (2, 4):
            if some := [name for name in names if CASES[name].world == world]:
                pool = RankPool(world)
                pool.folder = folder / f"{world} ranks"
                pool.folder.mkdir()
                pool.run(play, some, folder)
                pool.close()
        for name in names:
            if name not in DISTURBED:
                found = judged(name, folder)
                row = {
                    "case": name,
                    "ranks": CASES[name].world,
                    "expected": CASES[name].kind,
                    "kind": found.kind,
                    "parameter": found.parameter,
                }
                rows.append({**row, "text": found.text, "right": is_right(name, found)})
                print("" if rows[-1]["right"] else "WRONG", name, "|", found.kind, "|", found.text, flush=True)
    if not args.no_write and not args.names:
        _machine.write("parity", {"machine": _machine.describe(), "results": rows}, "Layouts and faults planted into them", table(rows))


if __name__ == "__main__":
    main()
