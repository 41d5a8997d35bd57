"""The last lines of ``numscope run``: what was watched, what was found, what was not watched, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from numscope.records.words import count, escape, few, without_passwords
from numscope.scope.coverage import Watched

_MAX_NAMES = 3
_MAX_GAPS = 5


def last_line(own: Watched, children: Sequence[Watched], why_nothing: str) -> str:
    """One line: what this process and its children have watched and found, and what not; ``why_nothing`` where no gap explains it."""
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


def next_step(log_dir: str | None, processes: Sequence[Watched]) -> str:
    """The next commands to type, where there is something to look at: in the run's folder, each command a line; or in the next one's.

    The page of a run with findings is made as its process ends, which prints a line of its own.
    """
    watched = [one for one in processes if one.models]
    has_news = any(one.findings or one.alerts for one in watched)
    if log_dir is not None and watched:
        folder = escape(shlex.quote(without_passwords(log_dir)))
        page = [] if any(one.findings for one in watched) else [f"numscope {'report' if has_news else 'view'} {folder}"]
        return "\n  ".join([f"numscope: next: its numbers{', or its page' if page else ''}", f"numscope stats {folder}", *page])
    return "numscope: next: with --log-dir DIR the run's records are kept: a page, and how each number came there" if has_news else ""


def _part(processes: Sequence[Watched], where: str = "") -> str:
    models = list(dict.fromkeys(name for one in processes for name in one.models))
    own_steps = processes[0].steps_of if len(processes) == 1 else {}
    if differ := len({number for number in own_steps.values() if number}) > 1:  # models that train side by side are told apart
        models = [f"{name} ({count(own_steps[name], 'step')})" for name in models]
    steps = [one.steps for one in processes]
    most = f"up to {count(max(steps), 'step')}" if len(set(steps)) > 1 else count(steps[0], "step")
    facts = [few(models, _MAX_NAMES) + where, *([] if differ else [f"{most} each" if len(processes) > 1 else most])]
    tensors = sum(one.tensors for one in processes)
    num_alerts = len({alert for one in processes for alert in one.alerts}) + sum(one.more_alerts for one in processes)
    alerts = [count(num_alerts, "alert")] if num_alerts else []
    if not any(one.detecting for one in processes):
        return f"{', '.join(facts)}: {', '.join(['detection was off', *alerts])}"
    findings = {headline for one in processes for headline in one.findings}  # ranks that train together share theirs
    outcome = [count(len(findings), "finding") if findings else "no finding", *alerts]
    notes, skipped = sum(one.contained for one in processes), max(one.skipped for one in processes)
    unused = list(dict.fromkeys(place for one in processes for place in one.without_gradients))
    outcome += [count(notes, "contained note") + (f" ({few(unused, 1)})" if unused else "")] if notes else []
    outcome += [count(skipped, "skipped step")] if skipped else []
    return f"{', '.join([*facts, count(tensors, 'tensor observation')])}: {', '.join(outcome)}"
