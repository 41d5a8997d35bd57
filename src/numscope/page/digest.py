"""A run in at most 64 KB: findings, alerts, the worst sites with their trends, and what was not watched, as JSON."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from numscope.page.health import FINE, WARN, judge
from numscope.page.matrices import MAX_SITES, Matrices
from numscope.page.rank_cells import RankAmax
from numscope.page.recorded import AlertOfRanks, Recorded, read_statistics
from numscope.records.finding import Culprit, Finding, Numbers, Operand, plain
from numscope.records.words import count, escape, spans

MAX_BYTES = 64_000  # it has at most so many
MAX_TEXT = 400  # characters of a name or sentence
MOST = (40, 30, 20, 10, 5, 2, 1)  # findings, alerts, sites, layers and problems listed: the most that fit

Digest = dict[str, Any]

_HOME = re.compile(rf"{re.escape(os.path.expanduser('~'))}(?=[/\\])|(?<![\w.])/(?:home|Users)/[^/\s:'\"]+")


def digest_of(recorded: Recorded) -> str:
    """The digest of a run, JSON of at most ``MAX_BYTES`` bytes, whatever the run.

    Raises: UsageError where its statistics can't be read and it has no findings.
    """
    statistics, problems = read_statistics(recorded)
    matrices = None if statistics is None else statistics.matrices
    ranks = None if statistics is None else statistics.ranks
    for most in MOST:
        text = json.dumps(_digest(recorded, matrices, ranks, problems, most), indent=1, allow_nan=False) + "\n"
        if len(text.encode()) <= MAX_BYTES:
            return text
    raise AssertionError("a digest of one finding and one site is too long")


def _digest(recorded: Recorded, matrices: Matrices | None, ranks: RankAmax | None, problems: Sequence[str], most: int) -> Digest:
    return {
        "format": 1,
        "run": _text(os.path.basename(recorded.path)),
        "model": _text(recorded.model),
        "command": _text(recorded.command, 2000),
        "versions": {_text(k, 40): _text(v, 60) for k, v in list(recorded.versions.items())[:8]},
        "environment": {_text(k, 60): _text(v, 200) for k, v in list(recorded.environment.items())[: 2 * most]},
        "verdict": _verdict(recorded),
        "first": next((_first(one) for one in recorded.latest if not one.contained), None),
        "attempts": len(recorded.attempts),
        "num_steps": recorded.num_steps,
        "ended": not recorded.killed,
        "num_findings": recorded.num_findings,
        "findings": [_finding(finding) for finding in recorded.findings[:most]],
        "num_alerts": recorded.num_alerts,
        "alerts": [_alert(one) for one in recorded.alerts[:most]],
        "num_events": len(recorded.events),
        "events": [
            {"step": one.step, "rank": one.rank, "num_ranks": one.num_ranks, "text": _text(one.text)} for one in recorded.events[:most]
        ],
        "statistics": _statistics(matrices, recorded.findings, most),
        "ranks": None if ranks is None or matrices is None else _ranks(ranks, matrices),
        "not_watched": [_text(one) for one in _not_watched(recorded, matrices, most)],
        "problems": [_text(one) for one in problems[:most]],
    }


def _verdict(recorded: Recorded) -> str:
    """Of the last attempt: a mended script may have run again in the same folder."""
    if not recorded.watched:
        return "not watched"
    return "bad numbers" if any(not one.contained for one in recorded.latest) else "alerts" if recorded.num_alerts else "nothing found"


def _first(finding: Finding) -> Digest:
    """The first bad tensor and its operation in one level, for programs to act on."""
    c = finding.culprit
    found = {"tensor": _text(str(finding.site)), "kind": finding.kind.value, "step": finding.step, "rank": finding.rank}
    keys = ("op", "module", "file", "line", "code", "reason", "detail", "advice", "advice_tried", "tried")
    return found | (dict.fromkeys(keys) if c is None else {key: value for key, value in _culprit(c).items() if key in keys})


def _finding(finding: Finding) -> Digest:
    c = finding.culprit
    return {
        "step": finding.step, "rank": finding.rank, "kind": finding.kind.value, "contained": finding.contained,
        "phase": finding.phase.value, "site": _text(str(finding.site)), "numbers": _numbers(finding.numbers), "note": _text(finding.note),
        "culprit": None if c is None else _culprit(c), "replay": _text(finding.replay),
    }  # fmt: skip


def _alert(one: AlertOfRanks) -> Digest:
    alert = one.alert
    return {
        "step": alert.step, "ranks": _text(", ".join(f"{a}-{b}" if a < b else str(a) for a, b in spans(one.ranks)), 80),
        "rule": _text(alert.rule, 80), "layer": _text(alert.layer, 200), "tensor": _text(alert.tensor, 60), "value": plain(alert.value),
        "limit": plain(alert.limit), "text": _text(alert.text), "advice": _text(alert.advice), "asks": alert.asks,
    }  # fmt: skip


def _culprit(c: Culprit) -> Digest:
    return {
        "op": _text(c.op), "phase": c.phase.value, "module": _text(c.module), "file": _text(c.file), "line": c.line, "code": _text(c.code),
        "reason": c.reason.value, "detail": _text(c.detail), "advice": _text(c.advice),
        "inputs": [_operand(one) for one in c.inputs[:6]], "outputs": [_operand(one) for one in c.outputs[:3]],
        "tried": [{"remedy": _text(t.remedy), "worked": t.worked, "outcome": _text(t.outcome)} for t in c.tried[:6]],
        "advice_tried": c.advice_tried,
        "called_from": [f"{_text(file, 200)}:{line} in {_text(function, 80)}" for file, line, function, _ in c.stack[::-1][:6]],
    }  # fmt: skip


def _operand(operand: Operand) -> str:
    return f"{_text(operand.name, 60)}: {_numbers(operand.numbers) or _text(operand.value, 100)}"


def _numbers(n: Numbers | None) -> str:
    if n is None:
        return ""
    bad = ", ".join(f"{number} {what}" for number, what in ((n.num_nan, "nan"), (n.num_pos_inf, "inf"), (n.num_neg_inf, "-inf")) if number)
    extent = "no finite number" if n.abs_max is None else f"largest magnitude {n.abs_max:.6g}"
    shape = "x".join(map(str, n.shape[:12])) or "scalar"
    return f"{_text(n.dtype, 40)} {shape}, {extent}" + (f", {bad}" if bad else "")


def _statistics(matrices: Matrices | None, findings: Sequence[Finding], most: int) -> Digest | None:
    if matrices is None:
        return None
    health = judge(matrices, findings)
    worst = sorted((i for i, one in enumerate(health) if one.state != FINE), key=lambda i: -health[i].score)
    bad = [i for i in worst if health[i].state != WARN]
    warned = [i for i in worst if health[i].state == WARN]
    sites = []
    for i in [*bad[: most - min(len(warned), most // 3)], *warned[: most // 3]]:  # sites that are about to be bad are listed too
        site, one = matrices.sites[i], health[i]
        sites.append(
            {"layer": _text(site.layer, 200), "tensor": _text(site.tensor, 60), "dtype": _text(site.dtype, 40),
             "state": one.state, "why": one.why, "amax_trend": [float(f"{x:.4g}") for x in one.trend if x is not None]}
        )  # fmt: skip
    return {
        "num_sites": matrices.num_sites,
        "num_bad_or_near": len(worst),
        "num_recorded_steps": len(matrices.axis.steps),
        "first_step": matrices.axis.first[0],
        "last_step": matrices.axis.last[-1],
        "statistics": [kind.name for kind in matrices.kinds],
        "worst_sites": sites,
    }


def _ranks(ranks: RankAmax, matrices: Matrices) -> Digest:
    apart = [one.line(matrices.sites, lambda name: _text(name, 200)) for one in ranks.apart]
    return {"num_ranks": ranks.num_ranks, "num_apart": ranks.num_apart, "headline": ranks.headline(), "apart": apart}


def _not_watched(recorded: Recorded, matrices: Matrices | None, most: int) -> Iterator[str]:
    if not recorded.watched:
        yield "Bad numbers: the folder has no findings file, so detection was off or wrote elsewhere."
    if matrices is None:
        yield "Statistics of tensors: the run wrote none."
        return
    have = {kind.name for kind in matrices.kinds}
    if "rms" not in have:
        yield "Sums (rms, mean, norms, kurtosis): only counts and extrema were kept."
    elif "kurtosis" not in have:
        yield "Kurtosis: it was not asked for, or every tensor is constant."
    steps = matrices.axis.steps
    if steps and len(steps) < steps[-1] - steps[0] + 1:
        between = steps[-1] - steps[0] + 1
        yield f"{between - len(steps):,} of {between:,} steps between {steps[0]} and {steps[-1]}: statistics were not kept there."
    if matrices.num_sites > MAX_SITES:
        yield f"{matrices.num_sites - MAX_SITES:,} tensors with smaller numbers are not looked at here."
    seen = {site.layer for site in matrices.sites}
    missing = [name for name, _ in recorded.layers if name not in seen]
    if missing:
        yield f"{count(len(missing), 'layer')} without statistics: {', '.join(name[:80] for name in missing[: min(most, 8)])}."


def _text(value: object, most: int = MAX_TEXT) -> str:
    """Text from a run: printable, of bounded length, and without the names of home folders, since digests are sent to others."""
    text = _HOME.sub("~", escape(str(value)))
    return text if len(text) <= most else f"{text[: most * 2 // 3]} … {text[-most // 4 :]}"
