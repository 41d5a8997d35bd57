"""The judge reads a step's journal and says what is wrong: alone, among several models, and with all ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch.optim import Optimizer

from numscope.diagnosis import BadLeaf, Evidence, contained, diagnose, escaped, kind_of
from numscope.distributed import agree
from numscope.errors import NonFiniteError
from numscope.findings.streaks import Streak
from numscope.options import WatchOptions
from numscope.probe.module import Entry, ModuleProbe
from numscope.record import Finding, Kind, Numbers, parse_finding, plain
from numscope.replay import replay_optimizer
from numscope.report.delivery import Delivery
from numscope.site import Phase, Site

_live: list[Judge] = []  # one step may involve several models


class Judge:
    """Findings of one watched model.

    Args:
        evidence: the step at work; the scope fills it.
        probe: paused while a step is done again.
        group: the process group that shares the model, None for this process alone.
    """

    def __init__(self, evidence: Evidence, probe: ModuleProbe, options: WatchOptions, delivery: Delivery, group: Any) -> None:
        self.findings: list[Finding] = []
        self.contained: list[Finding] = []
        self.victim = False  # a weight is bad already: what follows from it is no news
        self.bad_from_start: frozenset[str] = frozenset()
        self._evidence = evidence
        self._probe = probe
        self._options = options
        self._delivery = delivery
        self._group = group
        self._skips = Streak(options.max_scaler_skips)
        self._dead = Streak(options.dead_steps)
        self._contained_sites: set[Site] = set()
        _live.append(self)

    def close(self) -> None:
        """Other models' steps no longer involve this one."""
        if self in _live:
            _live.remove(self)

    def judge(self, gradients: Sequence[int] = (), note: str = "", kind: Kind | None = None) -> None:
        """Read the step's rows and say what is wrong.

        Args:
            gradients: handles of the parameters' gradients.
            note, kind: of a finding about several steps, given to the finding.

        Raises: NonFiniteError, where the options ask for it.
        """
        bad = self._read()
        reached = escaped(self._evidence, bad, self.bad_from_start)
        alarm = bool(reached) and not self.victim
        self.victim = bool(reached)
        if agree.any_rank(alarm, self._group) if self._group is not None else alarm:
            finding = self._first_of_ranks(self._first_of_models(bad, reached) if alarm else None)
            if note:
                finding = replace(finding, note=note, kind=kind or finding.kind)
            self._alarm(finding)
        elif bad and not reached:
            self._note_contained(bad)
        if not reached and self._dead.hit(bool(gradients) and self._all_zero(gradients)):
            self._alarm_dead(gradients)

    def skipped(self, gradients: Sequence[int]) -> None:
        """GradScaler left a step out; several in a row are a finding."""
        if self._skips.hit(True):
            note = f"GradScaler left out {self._skips.length} steps in a row"
            self.judge(gradients, note=note, kind=Kind.SCALER_SKIPS)

    def stepped(self) -> None:
        """A step was not left out."""
        self._skips.hit(False)

    def judge_update(self, optimizer: Optimizer, places: Sequence[tuple[Entry, str, int, int]]) -> None:
        """Look at the weights that an optimizer has just written.

        Args:
            places: for each parameter its module, slot, row's handle and id.
        """
        weights = self._evidence.journal.weights.ledger
        bad = set(weights.bad())
        if not bad:
            self.victim = False
            return
        named = [(f"{entry.name}.{slot}" if entry.name else slot, handle, key) for entry, slot, handle, key in places]
        news = [(name, handle) for name, handle, _ in named if handle in bad and name not in self.bad_from_start]
        if not news or self.victim:
            return
        self.victim = True
        journal = self._evidence.journal
        journal.add_handles(Entry("", type(optimizer).__name__), Phase.OPTIMIZER, weights, news)
        index, slot = len(journal.events) - 1, news[0][0]
        with self._paused():
            replay = replay_optimizer(optimizer, {key: name for name, _, key in named})
        numbers = journal.numbers(index, slot)
        self._alarm(
            Finding(
                step=self._evidence.step,
                batch=journal.call,
                phase=Phase.OPTIMIZER,
                rank=self._evidence.rank,
                site=journal.site(index, slot),
                kind=kind_of(numbers),
                contained=False,
                culprit=replay.culprit,
                replay=replay.status,
                frames=journal.frames(index, self._options.frames),
                model=self._evidence.model,
                numbers=numbers,
            )
        )

    # ---- whose was first

    def _read(self) -> list[BadLeaf]:
        journal = self._evidence.journal
        journal.absorb(self._probe.compiled)
        journal.read()
        return journal.bad() if journal.any_bad() else []

    def _first_of_models(self, bad: Sequence[BadLeaf], reached: Sequence[BadLeaf]) -> Finding:
        """The finding of the model whose own output went bad first: the teacher's or the discriminator's, rather than its victim's."""
        order = min(self._evidence.journal.events[i].order for i, _ in bad)
        for other in _live:
            if other is not self and other._evidence.calls:
                events = other._evidence.journal.events
                theirs = other._read()
                out = [(i, slot) for i, slot in theirs if not events[i].entry.name and slot.startswith("output")]
                if out and events[out[0][0]].order < order:
                    with self._paused():
                        return diagnose(other._evidence, theirs, out)
        with self._paused():
            return diagnose(self._evidence, bad, reached)

    def _first_of_ranks(self, finding: Finding | None) -> Finding:
        """Of all ranks' findings the one that is no victim's: with a culprit, in the earliest phase, on the lowest rank."""
        found = [finding]
        if self._group is not None:
            told = agree.gather(None if finding is None else plain(finding), self._group)
            found = [None if t is None else parse_finding(t) for t in told]
        phases = list(Phase)
        alarms = [f for f in found if f is not None]
        return min(alarms, key=lambda f: (f.culprit is None, phases.index(f.phase), f.rank))

    @contextlib.contextmanager
    def _paused(self) -> Iterator[None]:
        probes = [judge._probe for judge in _live]
        was = [probe.paused for probe in probes]
        try:
            for probe in probes:
                probe.paused = True
            yield
        finally:
            for probe, paused in zip(probes, was, strict=True):
                probe.paused = paused

    # ---- what is said

    def _alarm(self, finding: Finding) -> None:
        self.findings.append(finding)
        self._delivery.finding(finding)
        if self._options.on_nonfinite == "raise":
            self._evidence.forget()
            raise NonFiniteError(finding)

    def _note_contained(self, bad: Sequence[BadLeaf]) -> None:
        for note in contained(self._evidence, bad):
            if note.site not in self._contained_sites:
                self._contained_sites.add(note.site)
                self.contained.append(note)
                self._delivery.contained(note)

    def _all_zero(self, handles: Sequence[int]) -> bool:
        ledger = self._evidence.journal.ledger
        return all(s.num_zero == s.numel for s in (ledger.summary(h) for h in handles if h >= 0))

    def _alarm_dead(self, handles: Sequence[int]) -> None:
        """Not an error: a frozen or finished model looks the same."""
        journal = self._evidence.journal
        index = next((i for i, e in enumerate(journal.events) if e.items and e.items[0][2] == handles[0] and e.items[0][1] is journal.ledger), 0)
        slot = journal.events[index].items[0][0]
        numbers: Numbers | None = journal.numbers(index, slot)
        finding = Finding(
            step=self._evidence.step,
            batch=journal.call,
            phase=Phase.BACKWARD,
            rank=self._evidence.rank,
            site=journal.site(index, slot),
            kind=Kind.DEAD_GRADIENTS,
            contained=False,
            culprit=None,
            replay="not replayed: nothing is non-finite",
            frames=journal.frames(index, self._options.frames),
            model=self._evidence.model,
            numbers=numbers,
            note=f"every gradient was exactly zero in {self._dead.length} steps in a row",
        )
        self.findings.append(finding)
        self._delivery.finding(finding)


