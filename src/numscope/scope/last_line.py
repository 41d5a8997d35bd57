"""The last line of ``numscope run``: what was watched, what was found, and what was not watched."""

from __future__ import annotations

from collections.abc import Sequence

from numscope.records.words import count, few
from numscope.scope.coverage import Watched

_MAX_NAMES = 3
_MAX_GAPS = 5


def last_line(own: Watched, children: Sequence[Watched], why_nothing: str) -> str:
    """What this process and its children have watched and found, and what not, in one line; ``why_nothing`` where no gap explains it."""
    seen = [one for one in children if one.models]
    gaps = list(dict.fromkeys(gap for one in (own, *children) for gap in one.gaps))
    unwatched = f". Not watched: {few(gaps, _MAX_GAPS, '; ')}" if gaps else ""
    if not own.models and not seen:
        return f"numscope: nothing was watched: {why_nothing if not gaps else few(gaps, _MAX_GAPS, '; ')}"
    rank = f" on rank {own.rank} of {own.world_size}" if own.world_size > 1 else ""
    parts = [_part([own], rank)] if own.models else []
    if seen:
        parts.append(_part(seen, f" in {count(len(seen), 'child process')}"))
    return f"numscope: watched {'; '.join(parts)}{unwatched}"


def _part(processes: Sequence[Watched], where: str = "") -> str:
    models = list(dict.fromkeys(name for one in processes for name in one.models))
    steps = [one.steps for one in processes]
    most = f"up to {count(max(steps), 'step')}" if len(set(steps)) > 1 else count(steps[0], "step")
    facts = [few(models, _MAX_NAMES) + where, f"{most} each" if len(processes) > 1 else most]
    tensors = sum(one.tensors for one in processes)
    num_alerts = len({alert for one in processes for alert in one.alerts}) + sum(one.more_alerts for one in processes)
    alerts = [count(num_alerts, "alert")] if num_alerts else []
    if not any(one.detecting for one in processes):
        return f"{', '.join(facts)}: {', '.join(['detection was off', *alerts])}"
    findings = {headline for one in processes for headline in one.findings}  # ranks that train together share theirs
    outcome = [count(len(findings), "finding") if findings else "no finding", *alerts]
    for number, what in (
        (sum(one.contained for one in processes), "contained note"),
        (max(one.skipped for one in processes), "skipped step"),
    ):
        outcome += [count(number, what)] if number else []
    return f"{', '.join([*facts, count(tensors, 'tensor')])}: {', '.join(outcome)}"
