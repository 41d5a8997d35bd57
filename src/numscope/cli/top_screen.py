"""A run at a glance in a terminal: findings, alerts, events, the worst tensors. Names are text: control characters in them are escaped."""

from __future__ import annotations

import os
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, groupby

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from numscope.page.health import BAD, FINE, GROWN, MARKS, NEAR, SPOILED, WARN, Health, cells_of, format_of_dtype, scale_of, spark, told_of
from numscope.page.overview import Overview
from numscope.page.recorded import Happening
from numscope.records.finding import Finding
from numscope.records.words import count, escape, few
from numscope.runs.query import LOSS

BAD_STYLE, WARN_STYLE, QUIET, TITLE = "bold red", "yellow", "dim", "bold"
STYLES = {BAD: BAD_STYLE, SPOILED: QUIET, FINE: ""}
MOST_FINDINGS, MOST_ALERTS, MOST_EVENTS, MOST_PROBLEMS = 10, 6, 5, 3
MOST_SITES, MOST_OF_A_KIND = 40, 5  # on a screen; of each kind where it is printed once
LEGEND = (
    "Largest magnitude over the steps: a level is a factor of 4 or more, █ is close to the dtype's largest number; "
    "✖ nan or inf; ○ spoiled by what went bad first"
)
WIDE, SPARK = 100, 24
ROOMY = 20  # lines; fewer are used without empty ones


def screen(overview: Overview, age_s: float, width: int, height: int | None = None, footer: str = "") -> RenderableType:
    """The lines of a run.

    Args:
        age_s: of its latest record.
        width: columns; lines are cut there.
        height: lines at most; None: as many as there are.
    """
    room = 10_000 if height is None else height
    foot = [Text(footer, QUIET)] if footer and room > 3 else []
    room -= len(foot)
    problems = [Text(f"▲ {escape(one)}", WARN_STYLE) for one in overview.problems[:MOST_PROBLEMS]]
    blocks = [
        [_title(overview, age_s), *_loss(overview, width)],
        list(_findings(overview)),
        list(_alerts(overview, width)),
        list(_events(overview)),
        list(_ranks(overview)),
        problems,
    ]
    blocks.append(list(_sites(overview, width, MOST_OF_A_KIND if height is None else MOST_SITES, headed=room >= ROOMY)))
    if room < ROOMY:
        blocks = [[line for line in block if line.plain] for block in blocks]
    for_sites = min(len(blocks[-1]), room // 3)
    body: list[Text] = []
    for block in blocks[:-1]:
        body += block[: max(0, room - for_sites - len(body))]
    body += blocks[-1][: max(0, room - len(body))]
    for line in body + foot:
        line.truncate(width, overflow="ellipsis")
    return Group(*body, *foot)


def _title(overview: Overview, age_s: float) -> Text:
    recorded = overview.recorded
    facts = [escape(recorded.model)] if recorded.model else []
    last = -1 if overview.matrices is None else overview.matrices.axis.last[-1]
    facts.append(count(recorded.num_ended or max(recorded.num_steps, last + 1), "step"))
    if len(recorded.attempts) > 1:
        facts.append(count(len(recorded.attempts), "attempt"))
    if overview.written:
        facts.append(f"last record {_ago(age_s)}")
    return Text.assemble((escape(os.path.basename(recorded.path)), TITLE), f"  {', '.join(facts)}")


def _ago(seconds: float) -> str:
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * size:
            return f"{count(int(seconds // size), unit)} ago"
    return f"{max(0, int(seconds))} s ago"


def _loss(overview: Overview, width: int) -> Iterator[Text]:
    matrices = overview.matrices
    for i, site in enumerate(() if matrices is None else matrices.sites):
        if site.tensor == LOSS and site.numel == 1:
            assert matrices is not None
            cells = cells_of(matrices.values["amax", "max"][i], matrices.values["num_nonfinite", "max"][i], min(60, width - 30))
            known = [x for x, _ in cells if x]
            if known:
                yield Text(f"{escape(site.layer)} (magnitude) {known[0]:.4g} {spark(cells, min(known), max(known))} {known[-1]:.4g}")


def _findings(overview: Overview) -> Iterator[Text]:
    recorded = overview.recorded
    yield Text("")
    if not recorded.watched:
        yield Text("No findings written: there are none so far, or detection is off", TITLE)
        return
    mended = ", all of earlier attempts" if recorded.findings and not recorded.latest else ""
    yield Text(count(recorded.num_findings, "finding") + mended if recorded.num_findings else "No finding", TITLE)
    for finding in recorded.findings[:MOST_FINDINGS]:
        yield from _finding(finding)
    if recorded.num_findings > MOST_FINDINGS:
        yield Text(f"  and {recorded.num_findings - MOST_FINDINGS:,} more", QUIET)


def _finding(finding: Finding) -> Iterator[Text]:
    contained = ", contained" if finding.contained else ""
    head = f"step {finding.step:,}, rank {finding.rank}: {finding.kind.value} in {escape(str(finding.site))}{contained}"
    yield Text.assemble(("✖ ", QUIET if finding.contained else BAD_STYLE), head)
    culprit = finding.culprit
    if culprit is not None:
        line = f"  {escape(culprit.op)} at {escape(os.path.basename(culprit.file))}:{culprit.line}"
        yield Text.assemble((line, TITLE), (f"  {escape(culprit.code.strip())}", QUIET))


def _alerts(overview: Overview, width: int) -> Iterator[Text]:
    recorded = overview.recorded
    if recorded.num_alerts:
        yield Text("")
        last = ", the last ones:" if recorded.num_alerts > MOST_ALERTS else ""
        yield Text(f"{count(recorded.num_alerts, 'alert')}{last}", TITLE)
        for one in recorded.alerts[: -MOST_ALERTS - 1 : -1]:
            who = "" if one.ranks == (0,) else f"{'rank' if len(one.ranks) == 1 else 'ranks'} {few(list(map(str, one.ranks)), 4)}"
            text = escape(replace(one.alert, advice="").line(who))
            first, *rest = textwrap.wrap(text, max(1, width - 2), break_long_words=False)
            yield Text.assemble(("⚑ ", WARN_STYLE), first)
            yield from (Text(f"  {line}") for line in rest)


def _events(overview: Overview) -> Iterator[Text]:
    events: tuple[Happening, ...] = overview.recorded.events
    if events:
        yield Text("")
        yield Text(f"{count(len(events), 'event')}, the last ones:", TITLE)
        for event in events[: -MOST_EVENTS - 1 : -1]:
            who = f"rank {event.rank}" if event.num_ranks == 1 else f"{event.num_ranks:,} ranks"
            yield Text(f"◆ step {event.step:,}, {who}: {escape(event.text)}")


def _ranks(overview: Overview) -> Iterator[Text]:
    """The ranks that stand apart from the others."""
    ranks, matrices = overview.ranks, overview.matrices
    if ranks is not None and matrices is not None and ranks.apart:
        yield from (Text(""), Text(f"{ranks.headline()}{':' if ranks.num_apart == len(ranks.apart) else ', the farthest ones:'}", TITLE))
        yield from (Text(f"↕ {one.line(matrices.sites, escape)}") for one in ranks.apart)


def _kind(one: Health) -> str:
    """The heading under which a site stands."""
    if one.state != WARN:
        return {BAD: "Went bad", SPOILED: "Spoiled by what went bad first", FINE: "Fine"}[one.state]
    return "Close to the dtype's limit" if one.score >= NEAR else "Grows fast" if one.score >= GROWN else "Many elements are subnormal"


def _sites(overview: Overview, width: int, most: int, *, headed: bool) -> Iterator[Text]:
    matrices = overview.matrices
    yield Text("")
    if matrices is None:
        yield Text("No statistics of tensors yet", TITLE)
        return
    is_wide = width >= WIDE
    worst = sorted(range(len(overview.health)), key=lambda i: (overview.health[i].state == FINE, -overview.health[i].score))
    ranked = [i for i in worst if overview.health[i].state != FINE or matrices.sites[i].tensor != LOSS]
    groups = {kind: list(sites) for kind, sites in groupby(ranked, lambda i: _kind(overview.health[i]))}
    if len(groups) == 1:
        most = MOST_SITES
    elif most < MOST_SITES:
        groups.pop("Fine", None)
    shown = list(chain.from_iterable(sites[:most] for sites in groups.values()))[:MOST_SITES]
    steps = f"steps {matrices.axis.first[0]:,} to {matrices.axis.last[-1]:,}"
    yield Text(f"{count(matrices.num_sites, 'tensor')}, the worst first, {steps}: {told_of(overview.health)}", TITLE)
    if is_wide:
        yield Text(LEGEND, QUIET)
    names = [f"{escape(matrices.sites[i].layer)} {escape(matrices.sites[i].tensor)}" for i in shown]
    spark_width = SPARK if is_wide else max(8, width // 5)
    longest = max(6, min(max(map(cell_len, names), default=0), (width - spark_width) * 3 // 5 if is_wide else width - spark_width - 13))
    num_shown = Counter(_kind(overview.health[i]) for i in shown)
    for i, name in zip(shown, names, strict=True):
        kind = _kind(overview.health[i])
        hidden = len(groups[kind]) - num_shown[kind]
        if headed and i == groups[kind][0] and (hidden or len(groups) > 1):
            yield Text(kind + (f", {hidden:,} more are not shown:" if hidden else ":"), QUIET)
        site, one = matrices.sites[i], overview.health[i]
        mark, style = MARKS[one.state], STYLES.get(one.state, WARN_STYLE)
        amax = matrices.values["amax", "max"][i]
        cells = cells_of(amax, matrices.values["num_nonfinite", "max"][i], spark_width)
        largest = max((x for x, _ in cells if x is not None), default=None)
        low, high = scale_of(cells, site.dtype)
        value = "no finite number" if largest is None else f"{largest:8.3g}"
        if is_wide and (form := format_of_dtype(site.dtype)) is not None and form.max == high:
            value += f" of {form.name}'s {form.max:.5g}"
        text = Text.assemble((f"{mark} ", style), (_middle(name, longest), style), "  ", spark(cells, low, high).ljust(spark_width))
        yield text.append(f" {value}").append(f"  {one.why}" if is_wide else "", QUIET)


def _middle(name: str, longest: int) -> str:
    """A name of this width; the middle of a longer one is left out: layers differ at both ends."""
    text = Text(name)
    if text.cell_len > longest:
        text = Text(f"{name[: longest // 3]}…{name[len(name) - (longest - longest // 3 - 1) :]}")
        text.truncate(longest)  # wide characters
    return text.plain + " " * (longest - text.cell_len)
