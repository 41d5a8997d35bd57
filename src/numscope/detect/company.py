"""One model's judge among the other ranks': findings that it tells them, keeps until they meet, and hears of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from numscope.config.options import WatchOptions
from numscope.detect.diagnosis import received
from numscope.detect.discards import LEFT_TO_OPTIMIZER
from numscope.detect.evidence import Evidence
from numscope.detect.journal import Journal
from numscope.distributed import agree
from numscope.distributed.agree import Ranks
from numscope.distributed.meeting import Met
from numscope.records.errors import STOPS
from numscope.records.finding import Finding, parse_finding, plain
from numscope.records.site import Phase
from numscope.report.stderr import has_terminal


class Onlooker(Protocol):
    """Handles its own errors."""

    def step(self, number: int, journal: Journal) -> None:
        """A step's rows have been read, and its weights are untouched; not called where the judge finds something bad in them."""

    def skipped(self, number: int, scale: float | None) -> None:
        """GradScaler has left a step out; ``scale``: its present one, where it is known."""


class Messenger(Protocol):
    """Its exceptions are meant for the training script."""

    @property
    def has_news(self) -> bool:
        """Whether this rank has something to say to all ranks."""

    def news(self) -> Any:
        """Its news, JSON-ready. Asked of all ranks where one has any."""

    def hear(self, told: Mapping[int, Any], *, stops: bool) -> None:
        """Take each rank's news, this one's among them; the lowest one reports it. ``stops``: it may end the run."""


class Company:
    """Attributes:
    messenger: has news for all ranks.
    kept: what this rank has found alone, until all ranks are together.
    cured: the last bad gradient that the script did not use.
    speaks: of all ranks that know the last finding, this one tells it to sinks.
    """

    def __init__(self, evidence: Evidence, options: WatchOptions, ranks: Ranks) -> None:
        self._evidence, self._options, self._ranks = evidence, options, ranks
        self.messenger: Messenger | None = None
        self.kept: Finding | None = None
        self.cured: Finding | None = None
        self.speaks = True
        self._has_bad_weights = True  # as far as is known, where ranks have to be asked

    def meet(self, place: str, alarm: bool, victim: bool, is_bad: bool | None = None) -> tuple[Met, bool]:
        """Where any rank's alarm is told: here, or at a later place if some rank has already passed this one.

        News are passed on where the ranks are together.

        Args:
            alarm: this rank has one. Without other ranks, it is told here.
            victim: what is bad in this model is no news.
            is_bad: the weights have just moved, and one is bad on this rank or none. Where none is on any rank, this model is no victim.
                Ranks that have to be asked are not asked now, but before the weights move again.

        Returns: also whether this model still is one.
        """
        has_news = self.messenger is not None and self.messenger.has_news
        met = self._ranks.at(place, alarm or has_news, asks=is_bad is None)
        somebody, somewhere, news = alarm, is_bad is not False, has_news and not self._ranks.together
        if self._ranks.have_to_be_asked:
            somewhere = self._has_bad_weights if is_bad is None else True
            self._has_bad_weights = self._has_bad_weights if is_bad is None else is_bad
        if met is Met.HERE:
            somebody, somewhere, news = self._ranks.any(place, alarm, somewhere, has_news, patience=agree.ANSWER_S)
        if news:
            self._pass_news_on(stops=not (somebody and self._options.raises))  # else the finding does
        return Met.LATER if met is Met.LATER else Met.HERE if somebody else Met.NOBODY, victim and somewhere

    def keep(self, finding: Finding | None) -> None:
        """Tell a finding at the next place where all ranks are together."""
        self.kept = finding
        self.publish(finding, is_kept=True)

    def publish(self, finding: Finding | None, *, is_kept: bool = False) -> None:
        """Leave this rank's finding for ranks whose training ends before they can hear it."""
        if finding is not None and finding.rank == self._evidence.rank:
            self._ranks.publish(plain(finding), is_kept=is_kept)

    def take_kept(self) -> Finding | None:
        kept, self.kept = self.kept, None
        return kept

    @property
    def cured_lately(self) -> Finding | None:
        """A finding that this rank has cured before it heard that it had reached another one."""
        cured = self.cured
        return None if cured is None or cured.step < self._evidence.step - 1 else replace(cured, contained=False, note="")

    @property
    def left_to_optimizer(self) -> Finding | None:
        """A finding that was left to this step's optimizer to look for, and that it has used all the same."""
        used = self.cured is not None and (self.cured.step, self.cured.note) == (self._evidence.step, LEFT_TO_OPTIMIZER)
        return self.cured_lately if used else None

    def missed(self) -> list[Finding]:
        """Findings of others that this rank has not heard of: it comes to no further place, as its watch ends."""
        return [*map(parse_finding, self._ranks.missed())]

    def published(self) -> list[Finding]:
        """Findings of others after their updates, of which this rank sees consequences before the ranks ask each other."""
        return [*map(parse_finding, self._ranks.published())]

    def first_of(self, finding: Finding | None, evidence: Evidence | None = None) -> Finding | None:
        """``first_of_ranks``; ``evidence``: of the model that the finding is of, if it is another one."""
        first, self.speaks = first_of_ranks(finding, evidence or self._evidence, self._ranks)
        return first

    def wait_for_reports(self, finding: Finding) -> None:
        """Until the rank at fault has printed its report, and the one that speaks has told the sinks."""
        forever = self._options.debugger is not None and has_terminal()  # somebody is at the prompt
        self._ranks.wait_for_report(finding.rank == self._evidence.rank, forever=forever)
        self._ranks.wait_for_report(self.speaks, "told")

    def _pass_news_on(self, *, stops: bool) -> None:
        rank, messenger = self._evidence.rank, self.messenger
        speaks = messenger is not None and (messenger.has_news or rank == self._ranks.first)  # the first one reports
        told = dict(self._ranks.gather("news", [rank, messenger.news()] if speaks and messenger is not None else None))
        if messenger is not None:
            try:
                messenger.hear(told, stops=stops)
            except STOPS:
                self._ranks.wait_for_report(rank == min(told))
                raise


def first_of_ranks(finding: Finding | None, evidence: Evidence, ranks: Ranks) -> tuple[Finding | None, bool]:
    """Of all ranks' findings the first one that is no victim's: it has a culprit, which no other rank handed over.

    Ranks are at the same place of the same step, so that what comes more calls before it, or in an earlier phase of a call, or in an
    earlier stage of a pipeline's forward, a later one of its backward, or in an earlier event of a phase, was first.

    Args:
        finding: this rank's.
        evidence: of the model that it is of.

    Returns: it, and whether this rank speaks for all.
    """
    if not ranks.are_here:
        return finding, True
    key = None
    if finding is not None:
        key = [finding.culprit is None, received(finding.culprit), *_since(finding, evidence, ranks), finding.rank]
    first = ranks.least("findings", key, None if finding is None else plain(finding))
    return None if first is None else parse_finding(first), evidence.rank == ranks.first


def _since(finding: Finding, evidence: Evidence, ranks: Ranks) -> tuple[int, int, int, int]:
    """The order of findings in time: how many calls ago, the phase, the stages that came before, and the call's events before it."""
    journal = evidence.journal
    there = [event for event in journal.events if event.call == finding.batch]
    site = finding.site
    seen = (
        place
        for place, event in enumerate(there)
        if (event.entry.name, event.phase) == (site.module, site.phase) and any(slot == site.slot for slot, _, _ in event.items)
    )
    stage = 0 if ranks.stage is None else ranks.stage.index
    before = -stage if finding.phase is Phase.BACKWARD else stage
    return finding.batch - journal.call, list(Phase).index(finding.phase), before, next(seen, len(there))
