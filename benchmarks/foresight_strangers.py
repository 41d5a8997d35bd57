"""How early alerts come before runs diverge that strangers wrote, and how often they come in healthy ones: each rule alone, and together.

    ./dev bench foresight_strangers [--jobs N] [--out FOLDER]

The diverging scripts (``b*``) of five sets of ``first_contact``, written by people who had seen the documents alone, each beside its
healthy twin, and their healthy longer runs (``c*``). Each is run once under ``numscope run`` as it is, by ``first_contact/silent/run.py``.
When a run is lost was determined without numscope by those people, and stands in each set's table. Announced: an alert of the rule five
steps before that or earlier. Nothing was tuned on the last set. ``foresight_signals.py`` makes the same runs; with its folder they are not
made again. Rules that prove an error in the script are counted apart from trends.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from _machine import describe, write

SETS = ("silent", "silent3", "silent4", "silent5", "silent6")
FOLDER = Path(__file__).parent / "first_contact"
TRENDS = ("divergence ahead", "loss spike", "loss runs away", "overflow ahead", "gradients vanish", "gradients underflow", "scale falls")
AHEAD, MOST_S = 5, 300


def lost_steps(name: str) -> dict[str, int]:
    """When each diverging script is lost, as its set's table says."""
    found: dict[str, int] = {}
    column = None
    for line in (FOLDER / name / "SET.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        titles = [n for n, cell in enumerate(cells) if re.search(r"wrong at step|lost.*at step|lost|leaves", cell, re.I)]
        if line.startswith("| name") or line.startswith("| case"):
            column = titles[0] if titles else None
        elif column is not None and re.match(r"b_?\w+$", cells[0].strip("`")) and len(cells) > column:
            number = re.match(r"(\d+)", cells[column])
            if number:
                found[cells[0].strip("`")] = int(number[1])
    return found


def runs_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    """What ``silent/run.py`` has collected, one for each run."""
    runs = []
    for name, cases in found.items():
        for case, sides in cases.items():
            for side, one in sides.items():
                steps = re.search(r"([\d,]+) steps", one["last"])
                number = int(steps[1].replace(",", "")) if steps else max((alert["step"] for alert in one["alerts"]), default=0)
                is_healthy = side == "twin" or case.startswith("c")
                alerts = [{"step": alert["step"], "rule": alert["rule"]} for alert in one["alerts"]]
                runs.append({"set": name, "case": case, "healthy": is_healthy, "status": one["status"], "steps": number, "alerts": alerts})
    return runs


def table(runs: list[dict[str, Any]], lost: dict[tuple[str, str], int]) -> list[str]:
    bad = [one for one in runs if not one["healthy"] and (one["set"], one["case"]) in lost]
    good = [one for one in runs if one["healthy"] and one["status"] != -9]
    steps = sum(one["steps"] for one in good)
    rules = sorted({alert["rule"] for one in runs for alert in one["alerts"]}, key=lambda rule: (rule not in TRENDS, rule))
    lines = [
        f"{len(bad)} diverging runs; {len(good)} healthy ones, {steps:,} steps.",
        "",
        "| rule | announced 5 steps ahead | it alone does | median lead (least) | ahead at all | in healthy runs (in 10,000 steps) |",
        "|---|---|---|---|---|---|",
    ]
    ahead: dict[tuple[str, str], dict[str, int]] = {}
    for one in bad:
        leads: dict[str, int] = {}
        for alert in one["alerts"]:
            leads.setdefault(alert["rule"], lost[one["set"], one["case"]] - alert["step"])
        ahead[one["set"], one["case"]] = leads
    for rule in [*rules, "all trends", "all"]:
        of = [rule] if rule in rules else [r for r in rules if r in TRENDS or rule == "all"]
        best = {key: max((lead for r, lead in leads.items() if r in of), default=None) for key, leads in ahead.items()}
        early = [lead for lead in best.values() if lead is not None and lead >= AHEAD]
        others = {key for key, leads in ahead.items() if any(lead >= AHEAD for r, lead in leads.items() if r not in of)}
        alone = sum(lead is not None and lead >= AHEAD and key not in others for key, lead in best.items())
        at_all = sum(lead is not None and lead > 0 for lead in best.values())
        false = sum(alert["rule"] in of for one in good for alert in one["alerts"])
        span = f"{statistics.median(early):g} ({min(early)})" if early else "–"
        row = f"{len(early)} of {len(bad)}", alone, span, at_all, f"{false} ({1e4 * false / max(1, steps):.1f})"
        lines.append(f"| {rule} | {' | '.join(map(str, row))} |")
    lines += [
        "",
        "## By set",
        "",
        "| set | announced 5 steps ahead, by a trend | by any rule | alerts of trends in healthy runs |",
        "|---|---|---|---|",
    ]
    for name in SETS:
        of_set = {key: leads for key, leads in ahead.items() if key[0] == name}
        by_trend = sum(any(lead >= AHEAD for r, lead in leads.items() if r in TRENDS) for leads in of_set.values())
        by_any = sum(any(lead >= AHEAD for lead in leads.values()) for leads in of_set.values())
        healthy = [one for one in good if one["set"] == name]
        false = sum(alert["rule"] in TRENDS for one in healthy for alert in one["alerts"])
        lines.append(f"| {name} | {by_trend} of {len(of_set)} | {by_any} | {false} in {sum(one['steps'] for one in healthy):,} steps |")
    lines += ["", "## Each diverging run", "", "| run | lost at step | first alerts, by steps ahead |", "|---|---|---|"]
    for key, leads in sorted(ahead.items()):
        said = ", ".join(f"{rule} {lead:+d}" for rule, lead in sorted(leads.items(), key=lambda item: -item[1]))
        lines.append(f"| {key[0]}/{key[1]} | {lost[key]} | {said or 'none'} |")
    counts = collections.Counter((one["set"], one["case"], alert["rule"]) for one in good for alert in one["alerts"])
    lines += ["", "## Alerts in healthy runs", ""]
    lines += [f"- {name}/{case}: {rule}{f' × {num}' if num > 1 else ''}" for (name, case, rule), num in sorted(counts.items())]
    slow = [f"{one['set']}/{one['case']}" for one in runs if one["status"] == -9]
    return [*lines, "", f"Not finished within {MOST_S} s: {', '.join(slow) or 'none'}."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument(
        "--out", type=Path, default=Path("build/foresight_strangers"), help="where outputs go; what is there is not run again"
    )
    given = parser.parse_args()
    lost = {(name, case): step for name in SETS for case, step in lost_steps(name).items()}
    words = ["--out", str(given.out), "--sets", ",".join(SETS), "--only", "b*,c*", "--jobs", str(given.jobs), "--timeout", str(MOST_S)]
    subprocess.run([sys.executable, str(FOLDER / "silent" / "run.py"), *words], check=True)
    runs = runs_of(json.loads((given.out / "alerts.json").read_text()))
    write("foresight_strangers", {"machine": describe(), "runs": runs}, "Alerts before strangers' runs diverge", table(runs, lost))


if __name__ == "__main__":
    main()
