"""The judge reads a step's journal and decides what is wrong, for one model, several models, or all ranks together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import get_ident

from torch.nn import Parameter
from torch.optim import Optimizer

from numscope.config.alert_plan import AlertPlan
from numscope.config.options import WatchOptions
from numscope.detect import evaluations
from numscope.detect.copies import left_bad
from numscope.detect.dead_gradients import DeadGradients
from numscope.detect.diagnosis import (
    contained,
    diagnose_together,
    escaped,
    left_out_is_bad,
    of_gradients,
    pending,
    replay_buffer,
    result_of,
    stopped_backward,
)
from numscope.detect.discards import beyond_scale, is_discarded
from numscope.detect.evidence import BadLeaf, Evidence
from numscope.detect.foresight import Foresight
from numscope.detect.made import Made
from numscope.detect.onlooker import Messenger, Onlooker
from numscope.detect.ordering import first_of_models, first_of_ranks
from numscope.detect.skips import Skips
from numscope.distributed import agree
from numscope.distributed.agree import Ranks
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.calls import is_traced
from numscope.probe.entry import Entry
from numscope.probe.living import Living
from numscope.probe.module import ModuleProbe
from numscope.records.errors import STOPS, NonFiniteError
from numscope.records.faults import ours, told
from numscope.records.finding import Finding, Kind, Numbers
from numscope.records.site import Phase, Site
from numscope.replay.call import NOT_WANTED
from numscope.replay.capture import Call
from numscope.replay.stages import COMMUNICATES, Replay, needs_accumulation
from numscope.replay.update import replay_optimizer
from numscope.report.delivery import Delivery
from numscope.report.stderr import has_terminal, say
from numscope.summary.ledger import Ledger

living: Living[Judge] = Living()  # one step may involve several models

_ANOMALY = "returned nan values in its"  # in the text of what autograd's anomaly mode raises


class Judge:
    """Findings of one watched model.

    Args:
        evidence: the step at work; the scope fills it.
        probe: of the model.
        ranks: the ranks that train the model together.
    """

    def __init__(self, evidence: Evidence, probe: ModuleProbe, options: WatchOptions, delivery: Delivery, ranks: Ranks) -> None:
        self.findings: list[Finding] = []
        self.contained: list[Finding] = []
        self.victim = False  # a weight is bad already: what follows from it is no news
        self.bad_from_start: frozenset[str] = frozenset()
        self._evidence = evidence
        self._probe = probe
        self._options = options
        self._delivery = delivery
        self._ranks = ranks
        self.onlooker: Onlooker | None = None  # is shown each step's rows
        self.messenger: Messenger | None = None  # has news for all ranks
        self._skips = Skips()
        self._foresight = Foresight(evidence)
        self._dead = DeadGradients(evidence)
        self._contained_sites, self._left_out_sites = set[Site](), set[Site]()
        self.evaluations = evaluations.Evaluations(evidence)
        self._never_in: Finding | None = None  # the first bad forward of a step that GradScaler left out
        self._left: Finding | None = None  # what the script's own code has left bad, until all ranks are together
        self._speaks = True  # of all ranks that know the last finding, this one tells it to sinks
        living.add(self)

    def go_by(self, plan: AlertPlan) -> None:
        """Settings of alerts, some of which are findings in the end."""
        self._skips.most, self._dead.most = plan.finding_after("scale falls"), plan.finding_after("dead gradients")

    def close(self) -> None:
        """Remove this model from the judgment of other models' steps, and of other ranks'."""
        living.discard(self)
        evaluations.forget(self._evidence)
        self._ranks.close()

    # ---- when a step is judged

    def before_step(self, gradients: Sequence[int], scaled: Sequence[int] | None = None) -> None:
        """An optimizer is about to step: all ranks are here.

        Args:
            gradients: handles of the parameters' gradients.
            scaled: GradScaler steps one of perhaps several optimizers; handles of the gradients that are the others'. Where those are bad
                it will leave their steps out.

        Raises: NonFiniteError, where the options ask for it; so do the other occasions, but for ``died``.
        """
        bad, reached = self._read()
        if scaled is not None:
            reached = beyond_scale(self._evidence.journal, reached, set(gradients), set(scaled))
        discarded = scaled is None and bool(reached) and is_discarded(self._evidence, reached, gradients)
        self._show(reached)
        self._decide(bad, reached, "an optimizer's step", discarded=discarded)
        self._look_for_dead(gradients if discarded or not reached else ())

    def skipped(self, optimizer: Optimizer, gradients: Sequence[int]) -> None:
        """GradScaler left an optimizer's step out. Several in a row that its search for a scale does not explain are a finding; so is a
        buffer that the step has spoiled, which stays so."""
        bad, reached = self._read()
        journal = self._evidence.journal
        in_result = [leaf for call in self._evidence.calls for leaf in result_of(self._evidence, call, bad)]
        in_forward = any(journal.event(index).phase is Phase.FORWARD for index, _ in reached)
        num, num_counted = self._skips.skipped(optimizer, bool(in_result) or in_forward)
        too_many = num_counted == self._skips.most
        stays = [(i, slot) for i, slot in reached if journal.event(i).entry.parameter(slot) in self._evidence.saved.bad]
        if self.onlooker is not None:
            self.onlooker.skipped(self._evidence.step, optimizer_probe.scale())
        if self._any("a step left out", bool(too_many or stays) and not self.victim):
            self.victim = True
            if not too_many:
                self._alarm(self._find(bad, stays, False))
                return
            note = f"GradScaler left out {num} steps in a row"
            gone = "not replayed: no bad gradient is left"
            unexplained = None if reached else of_gradients(self._evidence, gradients, gone, type(optimizer).__name__)
            self._alarm(self._find(bad, reached, False, note, unexplained))
        elif in_result and not self.victim:
            self._note_left_out(bad, in_result)

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer's step was not left out."""
        evaluations.stepped()
        self._skips.stepped(optimizer)

    def end_of_step(self, gradients: Sequence[int], made: Made | None, *, alone: bool) -> None:
        """A step has ended without a torch optimizer.

        Args:
            gradients: handles of what is left of them.
            made: what they were; None if there was no backward.
            alone: the other ranks may be elsewhere.
        """
        bad, reached = self._read()
        if made is not None:
            self._show(reached)
        self._decide(bad, reached, "" if alone else "the end of a step without an optimizer")
        self._look_for_dead(gradients, made)

    def alone(self, gradients: Sequence[int] = ()) -> None:
        """Judge without the other ranks: after calls whose graphs are gone, or when an optimizer steps inside backward."""
        with self._evidence.outside.asleep():
            self._decide(*self._read(thorough=False), "")

    def foresee(self) -> None:
        """A backward has ended."""
        if not self.victim and self._foresight.may and self._evidence.journal.any_bad():
            bad, reached = self._read(thorough=False)
            if reached:
                self._foresight.calls(bad)

    def update_comes(self, optimizer: Optimizer, names: Mapping[int, str]) -> None:
        """An optimizer is about to take a step that may spoil weights or states; ``names``: of parameters by id."""
        if not self.victim and self._foresight.may:
            self._foresight.update(optimizer, names)

    def between_steps(self) -> None:
        """Look at what the script's own code has left in weights, buffers and copies of them.

        Where other ranks train along, a finding is told at the next place where all are.
        """
        if self.victim or is_traced() or self._left is not None:
            return
        self._left = left_bad(self._evidence, (one._evidence for one in living))
        if self._left is not None and not self._ranks.together:
            left, self._left = self._left, None
            self.victim = self._speaks = True
            self._alarm(left)

    def evaluated(self, call: Call) -> None:
        """A call without gradients has returned. What is bad in its result is a note, unless it has reached a weight or a buffer."""
        with self._evidence.outside.asleep():
            bad, reached = self._read()
            result = result_of(self._evidence, call, bad)
            if reached or not result or self.victim:
                self._decide([*bad, *reached], reached, "")
            elif (note := self.evaluations.note(call, bad, result)) is not None:
                self._contained_sites.update(self._evidence.journal.site(*leaf) for leaf in bad)
                self._note(note)
                self._stop_in_it(note)

    def died(self, error: BaseException) -> None:
        """An exception is ending the script; bad values that are not yet judged may be the cause. Nothing is raised."""
        bad, reached = self._read()
        if self.victim:
            return
        self._evidence.outside.ledger.read()
        finding = self._first_of_models(bad, reached)[0] if reached else self._paused_pending(bad, died=True)
        if finding is None and isinstance(error, Exception) and (last := self.evaluations.last) is not None:
            finding = replace(last, contained=False, note="")  # the script may have died of it
        said = told(error)
        if finding is None and any(call.had_backward for call in self._evidence.calls) and _ANOMALY in said:
            with optimizer_probe.paused():
                finding = stopped_backward(self._evidence)
        if finding is not None:
            text = said.split("\n")[0].removesuffix(": ")
            self.victim = True
            self.findings.append(replace(finding, note="; ".join(filter(None, (f"the script ended with {text}", finding.note)))))
            self._delivery.finding(self.findings[-1], speaks=agree.is_first(f"died {self._evidence.step}"))
            self._evidence.note(finding=True)
            self._stop_in_it(self.findings[-1], error)

    def _decide(self, bad: Sequence[BadLeaf], reached: Sequence[BadLeaf], place: str, discarded: bool = False) -> None:
        """Raise an alarm, or note what is contained.

        Args:
            place: where in the step all ranks are; "" to decide alone.
            discarded: what has reached a gradient is no alarm if it is none on any rank.
        """
        alarm = bool(reached or (place and self._left)) and not self.victim
        if self._any(place, alarm and not discarded) if place else alarm:
            self.victim = True
            self._alarm(self._find(bad, reached if alarm else (), not place))
        else:
            self.victim = bool(reached) and not discarded
            if alarm and discarded:
                self._note_discarded(bad, reached)
            if not self.victim:
                self._note_contained(bad)

    def _any(self, place: str, alarm: bool, is_bad: bool = True) -> bool:
        """Whether any rank raises an alarm. All ranks are at this place; where one has news, all of them hear it.

        Args:
            is_bad: a weight is bad on this rank. Where none is on any rank, this model is no victim.
        """
        has_news = self.messenger is not None and self.messenger.has_news
        somebody, somewhere, news = self._ranks.any(place, alarm, is_bad, has_news, patience=agree.ANSWER_S)
        self.victim = self.victim and somewhere
        if news:
            self._pass_news_on(stops=not (somebody and self._options.on_nonfinite == "raise"))  # else the finding does
        return somebody

    def _pass_news_on(self, *, stops: bool) -> None:
        rank = self._evidence.rank
        told = self._ranks.gather("news", [rank, None if self.messenger is None else self.messenger.news()])  # who has none answers too
        news = {one: said for one, said in told if said is not None}
        if self.messenger is not None:
            try:
                self.messenger.hear(news, stops=stops)
            except STOPS:
                self._ranks.wait_for_report(rank == min(news))
                raise

    def _show(self, reached: Sequence[BadLeaf]) -> None:
        """Show the step's rows, unless they are a finding's."""
        if self.onlooker is not None and not reached:
            self.onlooker.step(self._evidence.step, self._evidence.journal)

    def _paused_pending(self, bad: Sequence[BadLeaf], *, died: bool = False) -> Finding | None:
        with optimizer_probe.paused():
            return pending(self._evidence, bad, died=died)

    def _note_left_out(self, bad: Sequence[BadLeaf], in_result: Sequence[BadLeaf]) -> None:
        """A forward was bad at whatever scale, in a step that GradScaler left out."""
        site = self._evidence.journal.site(*in_result[0])
        if site not in self._left_out_sites:
            self._left_out_sites.add(site)
            self._contained_sites.add(site)
            self._never_in = replace(self._first_of_models(bad, in_result)[0], contained=True, note="GradScaler left this step out")
            self._note(self._never_in)

    def has_ended(self) -> None:
        """The watch ends as the script goes on, or ends well. Where GradScaler has left out all its steps for a bad forward, that is it."""
        if self._never_in is not None and self._skips.num_first and not self.victim and not self._ranks.together:
            self.victim = self._speaks = True
            note = f"GradScaler left out all {self._skips.num_first} steps"
            self._alarm(replace(self._never_in, contained=False, note=note, kind=Kind.SCALER_SKIPS))

    def _note_discarded(self, bad: Sequence[BadLeaf], reached: Sequence[BadLeaf]) -> None:
        site = self._evidence.journal.site(*reached[0])
        if site not in self._left_out_sites:
            self._left_out_sites.add(site)
            self._contained_sites.add(site)
            finding, _ = self._first_of_models(bad, reached)
            self._note(replace(finding, contained=True, note="the script used no bad gradient: those that the optimizer gets are finite"))

    def after_step(
        self,
        optimizer: Optimizer,
        places: Sequence[tuple[Entry, str, Parameter]],
        handles: Sequence[int],
        states: Sequence[tuple[str, int]],
        ledger: Ledger,
    ) -> None:
        """An optimizer has just written its weights.

        Args:
            places: module, slot and parameter of each.
            handles: their rows'.
            states: names and handles of its states that have gone bad.
            ledger: of these states' rows.
        """
        self._evidence.updated_by(optimizer)
        weights = self._evidence.journal.weights.ledger
        bad = set(weights.bad())
        read = zip(places, handles, strict=True) if bad else ()
        written = [(entry.parameter(slot), handle) for (entry, slot, _), handle in read if handle in bad]
        news = [(name, handle) for name, handle in written if name not in self.bad_from_start]
        alarm = bool(news or states) and not self.victim
        foreseen = self._foresight.taken(optimizer)
        if not self._any("the updated weights", alarm, bool(bad or states)):
            return
        self.victim = True
        replay = Replay(None, COMMUNICATES if self._evidence.replays else NOT_WANTED)
        # Weights that are spread over ranks: their update may communicate, so all ranks do it again or none.
        spread = any(needs_accumulation(p) for p in self._probe.root.parameters())
        if foreseen is not None and alarm and not spread:
            replay = foreseen
        elif self._evidence.replays and (self._ranks.together if spread else alarm):
            with optimizer_probe.paused():
                together = spread or not agree.spread()
                replay = replay_optimizer(optimizer, {id(p): entry.parameter(slot) for entry, slot, p in places}, together=together)
        mine = self._bad_update(optimizer, news or states, weights if news else ledger, replay) if alarm else None
        self._alarm(self._first_of_ranks(mine))

    def _bad_update(self, optimizer: Optimizer, news: Sequence[tuple[str, int]], ledger: Ledger, replay: Replay) -> Finding:
        journal = self._evidence.journal
        journal.add_handles(Entry("", type(optimizer).__name__), Phase.OPTIMIZER, ledger, news)
        return self._evidence.finding(len(journal) - 1, news[0][0], replay.status, culprit=replay.culprit)

    # ---- which finding was first

    def _read(self, *, thorough: bool = True) -> tuple[list[BadLeaf], list[BadLeaf]]:
        """The bad values, and those of them that have escaped; ``thorough``: buffers are read as at a step's end."""
        evidence, journal = self._evidence, self._evidence.journal
        evidence.saved.see(thorough=thorough)
        journal.read()
        evidence.saved.note(evidence.calls, self._is_fault)
        bad = journal.bad()
        return bad, escaped(self._evidence, bad, self.bad_from_start)

    def _is_fault(self, name: str, call: Call | None, numbers: Numbers) -> bool:
        """Whether a buffer has gone bad by a fault: an infinity without a nan may have been written on purpose, as masks are."""
        if numbers.num_nan or self.victim:
            return True
        if call is not None:
            with optimizer_probe.paused():
                replay = replay_buffer(self._evidence, name, call)
            if replay.culprit is not None or replay.status not in (NOT_WANTED, COMMUNICATES):
                return replay.culprit is not None
        return bool(numbers.num_pos_inf and numbers.abs_max)

    def _first_of_models(self, bad: Sequence[BadLeaf], reached: Sequence[BadLeaf]) -> tuple[Finding, Judge]:
        """``ordering.first_of_models``, and the judge of the model that the finding is of."""
        others = {id(j._evidence): j for j in living if j is not self and any(call.thread == get_ident() for call in j._evidence.calls)}
        with optimizer_probe.paused():
            finding, whose = first_of_models(self._evidence, bad, reached, [(j._evidence, j._read()[0]) for j in others.values()])
        return finding, others.get(id(whose), self)

    def _find(
        self, bad: Sequence[BadLeaf], reached: Sequence[BadLeaf], alone: bool, note: str = "", unexplained: Finding | None = None
    ) -> Finding | None:
        """The finding behind an alarm; ``reached`` is empty if another rank raised it, or nothing that is left explains it."""
        mine = left = None if alone else self._left
        self._left = self._left if alone else None
        whose = self
        fault: Exception | None = None
        try:
            if reached and left is None:
                mine, whose = self._first_of_models(bad, reached)
                mine = evaluations.traced_back(mine)
        except ours() as error:  # the others wait for an answer first
            fault = error
        if not alone and self._ranks.together and self._ranks.any("a diagnosis", mine is not None and mine.replay == COMMUNICATES)[0]:
            with optimizer_probe.paused():
                both = diagnose_together(self._evidence, bad, reached, self._ranks)
            mine, whose = left or both, self
        mine = mine or unexplained
        if mine is not None and note:
            mine = replace(mine, note="; ".join(filter(None, (note, mine.note))), kind=Kind.SCALER_SKIPS)
        self._speaks = True
        found = mine if alone else self._first_of_ranks(mine, whose)
        if fault is not None:
            raise fault
        return found

    def _first_of_ranks(self, finding: Finding | None, whose: Judge | None = None) -> Finding | None:
        """``ordering.first_of_ranks``; ``whose``: the judge of the model that the finding is of, if it is another one."""
        first, self._speaks = first_of_ranks(finding, (whose or self)._evidence, self._ranks)
        return first

    def _alarm(self, finding: Finding | None) -> None:
        if finding is None:  # the rank that had raised the alarm could not say why
            return
        self.findings.append(finding)
        self._delivery.finding(finding, speaks=self._speaks)
        self._evidence.note(finding=True)
        self._stop_in_it(finding)
        if self._options.on_nonfinite == "raise":
            forever = self._options.debugger is not None and has_terminal()  # somebody is at the prompt
            self._ranks.wait_for_report(finding.rank == self._evidence.rank, forever=forever)
            self._ranks.wait_for_report(self._speaks, "told")
            self._evidence.forget()
            raise NonFiniteError(finding)

    def _stop_in_it(self, finding: Finding, error: BaseException | None = None) -> None:
        """Open the prompt that the options ask for, on the rank at fault."""
        if self._options.debugger is None or finding.rank != self._evidence.rank:
            return
        from numscope.detect import debugging

        try:
            debugging.stop(finding, [self._evidence, *(j._evidence for j in living if j is not self)], self._options.debugger, error)
        except ours() as fault:  # the finding has been told
            say(f"numscope: --pdb: {type(fault).__name__}: {fault}")

    def _note_contained(self, bad: Sequence[BadLeaf]) -> None:
        if bad or left_out_is_bad(self._evidence):
            left_out = self._paused_pending(bad)
            if left_out is not None and left_out.site not in self._left_out_sites:
                self._left_out_sites.add(left_out.site)
                self._note(replace(left_out, contained=True, note="the script called no backward on this batch"))
        for note in contained(self._evidence, bad):
            if note.site not in self._contained_sites:
                self._contained_sites.add(note.site)
                self._note(note)

    def _note(self, note: Finding) -> None:
        self.contained.append(note)
        self._delivery.contained(note)

    def _look_for_dead(self, handles: Sequence[int], made: Made | None = None) -> None:
        finding = self._dead.look(handles, made)
        if finding is not None:
            self.findings.append(finding)
            self._delivery.finding(finding, speaks=agree.is_first(f"dead gradients {self._evidence.model} {finding.step}"))
