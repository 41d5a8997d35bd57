"""All that a page shows of a run, as JSON; its long columns are packed (``columns.py``)."""

from __future__ import annotations

import datetime
import json
import os
import shlex
from collections.abc import Sequence
from typing import Any

from numscope.page.axis import Axis, make_axis
from numscope.page.columns import pack
from numscope.page.gathered import Gathered
from numscope.page.health import FINE, Health, format_of_dtype, judge
from numscope.page.histograms import Histograms
from numscope.page.matrices import SiteRow
from numscope.page.ranks import Ranks
from numscope.page.recorded import MAX_FRAMES, MAX_STACK, AlertOfRanks, Recorded, read_statistics
from numscope.page.rows import row_of, row_of_alert
from numscope.page.sources import excerpts
from numscope.records.finding import Finding, plain
from numscope.records.formats import FORMATS
from numscope.version import __version__

SHOWN_FORMATS = ("fp32", "bf16", "fp16", "e4m3fn", "e5m2")
MAX_DETECTION_COLUMNS = 1000  # of a run without statistics
MAX_COMMAND = 20_000  # characters
MAX_FACTS, MAX_FACT = 12, 300  # of an alert's evidence, and characters of each
NUM_DETAILED, FEW_FRAMES = 20, 6  # findings with all their frames, and frames of those behind them

Payload = dict[str, Any]


def payload_of(recorded: Recorded) -> Payload:
    """What a page of the run shows, JSON-ready.

    Raises: see ``content_of``.
    """
    packed: Payload = packed_arrays(content_of(recorded))
    return packed


def packed_arrays(value: Any) -> Any:
    """The same with its arrays packed."""
    if isinstance(value, dict):
        return {name: packed_arrays(inner) for name, inner in value.items()}
    return pack(value) if hasattr(value, "dtype") else value


def content_of(recorded: Recorded, gathered: Gathered | None = None) -> Payload:
    """What a page of the run shows; its long columns are float32 arrays.

    Args:
        gathered: see ``read_statistics``.

    Raises: UsageError where its statistics can't be read and it has no findings; where DuckDB is not installed although there are some.
    """
    statistics, problems = read_statistics(recorded, gathered)
    if statistics is not None:
        matrices = statistics.matrices
        rows = {(site.layer, site.tensor): i for i, site in enumerate(matrices.sites)}
        health = judge(matrices)
        return {
            **_facts(recorded, rows, problems),
            **_axis(matrices.axis),
            "sites": [_site(site, health[i]) for i, site in enumerate(matrices.sites)],
            "numSites": matrices.num_sites,
            "rounded": matrices.is_rounded,
            "kinds": [{**plain(kind), "both": (kind.name, "min") in matrices.values and kind.both} for kind in matrices.kinds],
            "columns": {f"{name} {extreme}": matrix for (name, extreme), matrix in matrices.values.items()},
            "histograms": _histograms(statistics.histograms),
            "loss": None if matrices.loss is None else dict(zip(("max", "min"), matrices.loss, strict=True)),
            "ranks": _ranks(statistics.ranks),
            "restarts": [{"step": step, "text": f"restart: attempt {one} of the run begins"} for one, step in statistics.starts[1:]],
        }
    steps = [finding.step for finding in recorded.findings] + [one.alert.step for one in recorded.alerts]
    shown = min(max(recorded.num_steps, 0), MAX_DETECTION_COLUMNS)
    spread = (i * recorded.num_steps // shown for i in range(shown))  # every step, or as many of them as there are columns
    axis = make_axis(sorted({*spread, *steps}), MAX_DETECTION_COLUMNS + len(steps))
    nothing = {
        "sites": [],
        "numSites": 0,
        "rounded": False,
        "kinds": [],
        "columns": {},
        "histograms": None,
        "loss": None,
        "ranks": None,
        "restarts": [],
    }
    return {**_facts(recorded, {}, problems), **_axis(axis), **nothing}


def _axis(axis: Axis) -> Payload:
    return {"first": axis.first, "last": axis.last, "numSteps": len(axis.steps)}


def _site(site: SiteRow, health: Health) -> Payload:
    told = {"layer": site.layer, "cls": site.cls, "tensor": site.tensor, "dtype": site.dtype, "numel": site.numel, "ranks": site.ranks}
    form = format_of_dtype(site.dtype)
    if form is not None:
        told["format"] = form.name
    return told if health.state == FINE else {**told, "health": health.state, "why": health.why}


def _histograms(histograms: Histograms | None) -> Payload | None:
    if histograms is None:
        return None
    return {
        "first": histograms.first,
        "last": histograms.last,
        "sites": histograms.sites,
        "lowest": histograms.lowest,
        "bins": int(histograms.counts.shape[2]),
        "counts": histograms.counts,
    }


def _ranks(ranks: Ranks | None) -> Payload | None:
    if ranks is None:
        return None
    return {"ranks": ranks.ranks, "sites": ranks.sites, "first": ranks.first, "last": ranks.last, "amax": ranks.amax}


def _facts(recorded: Recorded, rows: dict[tuple[str, str], int], problems: Sequence[str]) -> Payload:
    last = recorded.attempts[-1] if recorded.attempts else {}
    observed = {layer for layer, _ in rows}
    return {
        "format": 1,
        "numscope": __version__,
        "made": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "name": os.path.basename(recorded.path) or recorded.path,
        "model": recorded.model,
        "watched": recorded.watched,
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
        "versions": {str(k): str(v) for k, v in _dict(last.get("versions")).items()},
        "command": command_of(last.get("command")),
        "configured": bool(last.get("config")),
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
        str(name)[:80]: (value if isinstance(value, str) else json.dumps(_short(value)))[:MAX_FACT]
        for name, value in list(evidence.items())[:MAX_FACTS]
        if value not in (None, "", [], {})
    }
    return {**told, "evidence": facts, "ranks": plain(one.ranks), "row": row_of_alert(one.alert, model, rows)}


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


def _dict(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def command_of(words: Any) -> str:
    """A command line that a shell reads; empty if none was stored."""
    if isinstance(words, list) and words:
        return shlex.join(map(str, words))[:MAX_COMMAND]
    return words[:MAX_COMMAND] if isinstance(words, str) else ""
