"""A digest as Markdown, in which names from models and files are shown as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numscope.records.markdown import code as _code
from numscope.records.markdown import text as _md
from numscope.records.words import count

Digest = dict[str, Any]


def markdown(digest: Digest) -> Iterator[str]:
    """The lines of a digest (``digest.py``)."""
    yield f"# numscope: {_md(digest['run'])}"
    yield ""
    ended = "" if digest["ended"] else "; it did not end by itself"
    yield f"{_md(digest['model'] or 'A run')}, {count(digest['num_steps'], 'step')}, {count(digest['attempts'], 'attempt')}{ended}."
    if digest["command"]:
        yield f"\nCommand: {_code(digest['command'])}"
    if digest["versions"]:
        yield f"\nVersions: {_md(', '.join(f'{name} {version}' for name, version in digest['versions'].items()))}"
    yield f"\n## {count(digest['num_findings'], 'finding')}\n"
    for finding in digest["findings"]:
        yield from _finding_lines(finding)
    if digest["num_findings"] > len(digest["findings"]):
        yield f"- {digest['num_findings'] - len(digest['findings'])} more"
    if digest["alerts"]:
        yield f"\n## {count(digest['num_alerts'], 'alert')}\n"
        for alert in digest["alerts"]:
            place = " ".join(filter(None, (_code(alert["layer"]), _md(alert["tensor"]))))
            when = f"step {alert['step']}, rank {alert['ranks']}"
            yield f"- **{_md(alert['rule'])}** at {when}{f', in {place}' if place else ''}: {_md(alert['text'])}"
            if alert["advice"]:
                yield f"  - advice: {_md(alert['advice'])}"
        if digest["num_alerts"] > len(digest["alerts"]):
            yield f"- {digest['num_alerts'] - len(digest['alerts'])} more"
    if digest["events"]:
        yield f"\n## {count(digest['num_events'], 'event')}\n"
        yield from (f"- step {event['step']}, rank {event['rank']}: {_md(event['text'])}" for event in digest["events"])
    statistics = digest["statistics"]
    if statistics is not None:
        steps = f"steps {statistics['first_step']} to {statistics['last_step']}"
        yield f"\n## Worst of {count(statistics['num_sites'], 'tensor')}, {steps}\n"
        if not statistics["worst_sites"]:
            yield "None was bad or close to it."
        else:
            yield "| layer | tensor | dtype | state | why | largest magnitude, first to last |\n|---|---|---|---|---|---|"
        for site in statistics["worst_sites"]:
            trend = " ".join(f"{x:.3g}" for x in site["amax_trend"])
            cells = (_code(site["layer"]), _md(site["tensor"]), _md(site["dtype"]), site["state"], _md(site["why"]), trend)
            yield f"| {' | '.join(cells)} |"
    yield "\n## Not watched\n"
    yield from (f"- {_md(one)}" for one in digest["not_watched"] or ["Nothing that this digest knows of."])
    if digest["problems"]:
        yield "\n## Problems\n"
        yield from (f"- {_md(one)}" for one in digest["problems"])


def _finding_lines(finding: Digest) -> Iterator[str]:
    contained = " (contained)" if finding["contained"] else ""
    when = f"at step {finding['step']}, rank {finding['rank']}"
    yield f"- **{finding['kind']}**{contained} {when}, in {_code(finding['site'])} ({finding['phase']})"
    if finding["numbers"]:
        yield f"  - what: {_md(finding['numbers'])}"
    if finding["note"]:
        yield f"  - note: {_md(finding['note'])}"
    culprit = finding["culprit"]
    if culprit is None:
        yield f"  - no operation found: {_md(finding['replay'])}"
        return
    line = f"{culprit['file']}:{culprit['line']}"
    yield f"  - operation: {_code(culprit['op'])} ({culprit['phase']}) at {_code(line)}: {_code(culprit['code'])}"
    yield f"  - reason: {culprit['reason']}. {_md(culprit['detail'])}"
    if culprit["advice"]:
        yield f"  - advice: {_md(culprit['advice'])}"
    yield from (f"  - input {_md(one)}" for one in culprit["inputs"])
    yield from (f"  - output {_md(one)}" for one in culprit["outputs"])
