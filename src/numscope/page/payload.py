"""All that a page shows of a run, or of two, as JSON; its long columns are packed (``matrices.pack``)."""

from __future__ import annotations

import datetime
import json
import os
import stat
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from numscope.page.axis import Axis, make_axis
from numscope.page.health import FINE, Health, format_of_dtype, judge, row_in, row_of
from numscope.page.histograms import Histograms
from numscope.page.matrices import EXTREMES, SiteRow, pack
from numscope.page.rank_cells import RankAmax
from numscope.page.recorded import MAX_FRAMES, MAX_STACK, AlertOfRanks, Recorded, differing, read_statistics
from numscope.records.errors import UsageError
from numscope.records.finding import Finding, plain
from numscope.records.formats import FORMATS
from numscope.runs.comparison import compare
from numscope.runs.query import LOSS
from numscope.version import __version__

SHOWN_FORMATS = ("fp32", "bf16", "fp16", "e4m3fn", "e5m2")
MAX_DETECTION_COLUMNS = 1000  # steps shown of a run without statistics
MAX_FACTS, MAX_FACT = 12, 300  # facts of an alert's evidence, and characters of each
NUM_DETAILED, FEW_FRAMES = 20, 6  # findings with all their frames, and frames of those behind them

MAX_COMPARED_STEPS, MAX_COMPARED_MODULES = 2000, 12
AROUND = 6  # source lines before and after one that a culprit names
MAX_SOURCE_BYTES, MAX_SOURCES = 4 << 20, 200  # bytes of a source file, and source files

Payload = dict[str, Any]
Excerpt = dict[str, object]  # file, line, first: number of the first line, lines


def payload_of(recorded: Recorded) -> Payload:
    """A page's content, JSON-ready.

    Raises: UsageError where its statistics can't be read and it has no findings; where DuckDB is not installed although there are some.
    """
    statistics, problems = read_statistics(recorded)
    if statistics is not None:
        matrices = statistics.matrices
        rows = {(site.layer, site.tensor): i for i, site in enumerate(matrices.sites)}
        health = judge(matrices, recorded.findings)
        return {
            **_facts(recorded, rows, problems),
            **_axis(matrices.axis),
            "sites": [_site(site, health[i]) for i, site in enumerate(matrices.sites)],
            "numSites": matrices.num_sites,
            "rounded": matrices.is_rounded,
            "kinds": [{**plain(kind), "both": (kind.name, "min") in matrices.values and kind.both} for kind in matrices.kinds],
            "columns": {f"{name} {extreme}": pack(matrix) for (name, extreme), matrix in matrices.values.items()},
            "histograms": _fields(statistics.histograms),
            "losses": {name: dict(zip(EXTREMES, map(pack, extremes), strict=True)) for name, extremes in matrices.losses.items()},
            "rates": {groups: pack(rates) for groups, rates in matrices.rates.items()},
            "ranks": _fields(statistics.ranks),
            "restarts": [{"step": step, "text": f"restart: attempt {one} of the run begins"} for one, step in statistics.starts[1:]],
        }
    shown = min(max(recorded.num_steps, 0), MAX_DETECTION_COLUMNS)
    spread = (i * recorded.num_steps // shown for i in range(shown))  # every step, or as many of them as there are columns
    axis = make_axis(sorted({*spread, *recorded.marked_steps}), MAX_DETECTION_COLUMNS + len(recorded.marked_steps))
    nothing = {"numSites": 0, "rounded": False, "columns": {}, "losses": {}, "rates": {}, "histograms": None, "ranks": None}
    return {**_facts(recorded, {}, problems), **_axis(axis), **nothing, **{name: [] for name in ("sites", "kinds", "restarts")}}


def _axis(axis: Axis) -> Payload:
    return {"first": axis.first, "last": axis.last, "numSteps": len(axis.steps)}


def _site(site: SiteRow, health: Health) -> Payload:
    told = {"layer": site.layer, "cls": site.cls, "tensor": site.tensor, "dtype": site.dtype, "numel": site.numel, "ranks": site.ranks}
    form = format_of_dtype(site.dtype)
    if form is not None:
        told["format"] = form.name
    return told if health.state == FINE else {**told, "health": health.state, "why": health.why}


def _fields(shown: Histograms | RankAmax | None) -> Payload | None:
    """Without the ranks that stand apart: the page finds them for the step and tensor that it shows."""
    if shown is None:
        return None
    told = {one.name: getattr(shown, one.name) for one in fields(shown) if one.name != "apart"}
    return {name: pack(value) if hasattr(value, "dtype") else value for name, value in told.items()}


def _facts(recorded: Recorded, rows: dict[tuple[str, str], int], problems: Sequence[str]) -> Payload:
    observed = {layer for layer, _ in rows}
    return {
        "format": 1,
        "numscope": __version__,
        "made": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "name": os.path.basename(recorded.path) or recorded.path,
        "model": recorded.model,
        "watched": recorded.watched,
        "numEnded": recorded.num_ended,
        "killed": recorded.killed,
        "problems": problems,
        "findings": [
            _finding(finding, row_of(finding, rows), MAX_FRAMES if i < NUM_DETAILED else FEW_FRAMES)
            for i, finding in enumerate(recorded.findings)
        ],
        "numFindings": recorded.num_findings,
        "alerts": [_alert(one, recorded.model, rows) for one in recorded.alerts],
        "numAlerts": recorded.num_alerts,
        "events": [plain(event) for event in recorded.events],
        "attempts": [{"attempt": one["attempt"], "started": str(one.get("started", ""))} for one in recorded.attempts],
        "versions": recorded.versions,
        "command": recorded.command,
        "configured": bool(recorded.last_attempt.get("config")),
        "formats": {name: _format(name) for name in SHOWN_FORMATS},
        "sources": excerpts(recorded.findings),
        "unobserved": [layer for layer, _ in recorded.layers if layer not in observed][:1000] if rows else [],
    }


def _finding(finding: Finding, row: int, num_frames: int) -> Payload:
    told: Payload = plain(finding)
    told["row"] = row
    told["frames"] = told["frames"][-num_frames:]
    if told["culprit"] is not None:
        told["culprit"]["stack"] = told["culprit"]["stack"][-MAX_STACK:]
    return told


def _alert(one: AlertOfRanks, model: str, rows: dict[tuple[str, str], int]) -> Payload:
    told: Payload = plain(one.alert)
    evidence = told.pop("evidence")
    facts = {
        str(name)[:80]: _in_words(_short(value))[:MAX_FACT]
        for name, value in list(evidence.items())[:MAX_FACTS]
        if value not in (None, "", [], {})
    }
    row = row_in(rows, one.alert.layer or (LOSS if one.alert.tensor == LOSS else model), one.alert.tensor)
    return {**told, "evidence": facts, "ranks": plain(one.ranks), "row": row}


def _in_words(value: Any) -> str:
    """A fact as people read it: the parts of a list or dict one after the other."""
    if isinstance(value, dict):
        value = [f"{name}: {_in_words(one)}" for name, one in value.items()]
    return ", ".join(map(_in_words, value)) if isinstance(value, list) else value if isinstance(value, str) else json.dumps(value)


def _short(value: Any) -> Any:
    """The same with its numbers right to six digits."""
    if isinstance(value, list):
        return [_short(one) for one in value]
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _format(name: str) -> Payload:
    form = FORMATS[name]
    return {"label": form.name.removesuffix("fn"), "max": form.max, "minNormal": form.min_normal, "minSubnormal": form.min_subnormal,
            "hasInf": form.has_inf}  # fmt: skip


def excerpts(findings: Sequence[Finding]) -> list[Excerpt]:
    """Source lines around each one that a finding's culprit or its stack names.

    A file is shown only if it is a Python file whose line still is what the run recorded: a run from somebody else names any file it likes.
    """
    found: dict[tuple[str, int], Excerpt] = {}
    files: dict[str, list[str]] = {}
    for finding in findings:
        if (culprit := finding.culprit) is None:
            continue
        for file, line, code in [(culprit.file, culprit.line, culprit.code), *((f, n, c) for f, n, _, c in culprit.stack)]:
            if (file, line) in found or (file not in files and len(files) >= MAX_SOURCES):
                continue
            if file not in files:
                files[file] = _lines_of(file)
            lines = files[file]
            first_code = code.strip().split("\n")[0].strip()
            if first_code and 0 < line <= len(lines) and first_code in lines[line - 1]:
                start = max(1, line - AROUND)
                found[file, line] = {"file": file, "line": line, "first": start, "lines": lines[start - 1 : line + AROUND]}
    return list(found.values())


def _lines_of(file: str) -> list[str]:
    if not file.endswith(".py"):
        return []
    try:
        handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # nobody may ever write to a pipe
        with open(handle, "rb") as stream:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return []
            return stream.read(MAX_SOURCE_BYTES).decode("utf-8", "replace").split("\n")
    except (OSError, ValueError):  # gone, or no name in this file system
        return []


def comparison_of(a: Recorded, b: Recorded) -> Payload:
    """Where two runs begin to differ, which modules drift, which settings are not the same: what a page shows of a comparison, JSON-ready.

    ``problem`` is the reason why their numbers can't be compared, or empty.
    """
    told: Payload = {"problem": "", "settings": [list(row) for row in differing(a, b)]}  # name, A's and B's value
    try:
        found = compare(a.path, b.path, top=MAX_COMPARED_MODULES).document()
    except UsageError as error:
        return {**told, "problem": str(error)}
    kept = ("first", "origin", "modules", "num_nonfinite", "nonfinite", "first_unequal", "dtypes")
    steps = [step for step in found["steps"] if step["num_diverging"]]
    return {
        **told,
        **{name: found[name] for name in kept},
        "num_steps": len(found["steps"]),
        "num_diverging_steps": len(steps),
        "steps": steps[:MAX_COMPARED_STEPS],
        "only": [len(found["only_a"]), len(found["only_b"])],
    }
