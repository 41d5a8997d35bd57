"""Which links and pairs were not examined, so that nobody takes a fault there for excluded."""

from __future__ import annotations

from collections import Counter

from numscope.doctor.findings import listed
from numscope.doctor.phases.plan import group_of
from numscope.doctor.records import Examined, ExamPhase


def not_examined(examined: Examined) -> list[str]:
    """A sentence for each phase that did not examine all pairs of nodes or ranks that took part in it."""
    links = [(cell["from_node"], cell["to_node"], cell) for _, cell in examined.each(ExamPhase.LINKS, "cells")]
    pairs = [(rank, pair["peer"], pair) for rank, pair in examined.each(ExamPhase.PAIRS, "pairs")]
    found = []
    for phase, what, between in ((ExamPhase.LINKS, "nodes", links), (ExamPhase.PAIRS, "ranks", pairs)):
        done = {frozenset((one, other)) for one, other, cell in between if cell.get("status") != "skipped"}
        skipped = {frozenset((one, other)): str(cell.get("error", "")) for one, other, cell in between if cell.get("status") == "skipped"}
        num = len({each for one, other, _ in between for each in (one, other)})
        if len(done) < num * (num - 1) // 2:
            partners = Counter(each for pair in done for each in pair).values()
            each = f"{min(partners)} to {max(partners)}" if partners and min(partners) < max(partners) else str(max(partners, default=0))
            text = (
                f"{phase.title} examined {len(done):,} of {num * (num - 1) // 2:,} pairs of {what}, each of the {num:,} with {each} others"
            )
            names = [
                f"{' and '.join(map(str, sorted(pair)))} ({why})" for pair, why in sorted(skipped.items(), key=str) if pair not in done
            ]
            found.append(f"{text}{f'; skipped: {listed(names)}' if names else ''}. A fault between two others stays unseen.")
    groups = group_of(max(examined.expected - 1, 0), max(examined.expected, 1)) + 1
    if groups > 1 and examined.of(ExamPhase.BACKEND):
        found.append(f"Phases 4 to 6 ran in {groups} groups of ranks, so nothing between these groups was examined there.")
    return found
