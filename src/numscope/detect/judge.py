"""The judge reads a step's journal and decides what is wrong, for one model, several models, or all ranks together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import get_ident

from torch.nn import Parameter
from torch.optim import Optimizer

from numscope.config.alert_plan import AlertPlan
from numscope.config.options import WatchOptions
from numscope.detect import capsule, evaluations
from numscope.detect.company import Company, Onlooker
from numscope.detect.copies import left_bad
from numscope.detect.dead_gradients import DeadGradients
from numscope.detect.diagnosis import (
    are_chosen,
    contained,
    diagnose_together,
    escaped,
    first_of_models,
    is_fault,
    left_out_is_bad,
    of_gradients,
    pending,
    result_of,
    stopped_backward,
)
from numscope.detect.discards import NOT_USED, beyond_scale, none_is_used, why_no_alarm
from numscope.detect.evidence import BadLeaf, Evidence
from numscope.detect.foresight import Foresight
from numscope.detect.skips import LEFT_OUT, OURS, Skips
from numscope.distributed import agree
from numscope.distributed.agree import Ranks
from numscope.distributed.meeting import Met
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.calls import is_traced
from numscope.probe.entry import Entry
from numscope.probe.living import Living
from numscope.probe.module import ModuleProbe
from numscope.records.errors import NonFiniteError
from numscope.records.faults import ours, told
from numscope.records.finding import Finding, Kind
from numscope.records.site import Phase, Site
from numscope.replay.capture import Call
from numscope.replay.operation import keepers
from numscope.replay.stages import COMMUNICATES
from numscope.report.delivery import Delivery
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
        self.findings, self.contained = list[Finding](), list[Finding]()
        self.victim = False  # a weight is bad already: what follows from it is no news
        self.bad_known: frozenset[str] = frozenset()  # weights that were so when the watch began, or that the script has set
        self._evidence, self._probe, self._options = evidence, probe, options
        self._delivery, self._ranks = delivery, ranks
        self.onlooker: Onlooker | None = None  # is shown each step's rows
        self.company = Company(evidence, options, ranks)
        self.skips = Skips(options.leaves_out)
        self._foresight = Foresight(evidence)
        self.dead = DeadGradients(evidence)
        self._contained_sites, self._left_out_sites = set[Site](), set[Site]()
        self.evaluations = evaluations.Evaluations(evidence)
        self._never_in: Finding | None = None  # the first bad forward of a step that GradScaler left out
        self.unused: Finding | None = None  # the last one of a step that was not used
        self.leaves_out = False  # the optimizer must not use this step's gradients: the run ends with them as soon as all are together
        living.add(self)
        if options.makes_capsules:
            keepers.add(self)

    def go_by(self, plan: AlertPlan) -> None:
        """Settings of alerts, some of which are findings in the end."""
        self.skips.most, self.dead.most = plan.finding_after("scale falls"), plan.finding_after("dead gradients")

    def close(self) -> None:
        """Remove this model from the judgment of other models' steps, and of other ranks'."""
        living.discard(self)
        keepers.discard(self)
        evaluations.forget(self._evidence)
        self._ranks.close()

    # ---- when a step is judged

    def before_step(self, optimizer: Optimizer, gradients: Sequence[int], scaled: Sequence[int] | None, left_out: bool) -> None:
        """An optimizer is about to step: all ranks are here.

        Args:
            gradients: handles of the parameters' gradients.
            scaled: GradScaler steps one of perhaps several optimizers; handles of the gradients that are the others'. Where those are bad
                it will leave their steps out.
            left_out: numscope leaves this one out.

        Raises: NonFiniteError, where the options ask for it; so do the other occasions, but for ``died``.
        """
        (bad, reached), self.unused, self.leaves_out = self._read(), None, False
        if scaled is not None:
            reached = beyond_scale(self._evidence.journal, reached, set(gradients), set(scaled))
        no_alarm = OURS if left_out else why_no_alarm(self._evidence, reached, gradients, optimizer, self.skips) if scaled is None else ""
        self._show(reached)
        self._decide(bad, reached, "an optimizer's step", no_alarm)
        self._look_for_dead(gradients if no_alarm or not reached else ())

    def skipped(self, optimizer: Optimizer, gradients: Sequence[int]) -> None:
        """GradScaler left an optimizer's step out. Several in a row that its search for a scale does not explain are a finding; so is a
        buffer that the step has spoiled, which stays so."""
        (bad, reached), self.unused = self._read(), None
        journal = self._evidence.journal
        in_result = [leaf for call in self._evidence.calls for leaf in result_of(self._evidence, call, bad)]
        in_forward = any(journal.event(index).phase is Phase.FORWARD for index, _ in reached)
        num, num_counted = self.skips.skipped(optimizer, bool(in_result) or in_forward)
        too_many = num_counted == self.skips.most
        spoiled = () if self._options.leaves_out else self._evidence.saved.bad  # else they are put back
        stays = [(i, slot) for i, slot in reached if journal.event(i).entry.parameter(slot) in spoiled]
        if self.onlooker is not None:
            self.onlooker.skipped(self._evidence.step, optimizer_probe.scale())
        alarm = bool(too_many or stays or self.company.kept) and not self.victim
        met, self.victim = self.company.meet("a step left out", alarm, self.victim)
        if met is Met.HERE or (alarm and met is Met.LATER):
            if not too_many:
                self._tell(met, bad, stays)
                return
            note = f"GradScaler left out {num} steps in a row"
            gone = "not replayed: no bad gradient is left"
            unexplained = None if reached else of_gradients(self._evidence, gradients, gone, type(optimizer).__name__)
            self._tell(met, bad, reached, note, unexplained)
        elif in_result and not self.victim:  # at whatever scale
            self.unused = self._note_unused(bad, in_result, LEFT_OUT)
            self._never_in = self.unused or self._never_in

    def end_of_step(self, gradients: Sequence[int], *, trained: bool, alone: bool) -> None:
        """A step has ended without a torch optimizer.

        Args:
            gradients: handles of what is left of them.
            trained: there was a backward.
            alone: the other ranks may be elsewhere.
        """
        bad, reached = self._read()
        steps = self._evidence.steps  # at the end of all, gradients that no optimizer asks for are used no more
        if trained and not (alone and steps.optimizers.any):
            self._show(reached)
        dropped = trained and alone and steps.optimizers.any and none_is_used(self._evidence, reached, () if steps.num_steps else gradients)
        self._decide(bad, reached, "" if alone else "the end of a step without an optimizer", NOT_USED if dropped else "")
        self._look_for_dead(gradients, by_hand=trained)

    def alone(self, gradients: Sequence[int] | None = None) -> None:
        """Judge without the other ranks: after calls whose graphs are gone, or when an optimizer steps in backward, with ``gradients``."""
        with self._evidence.outside.asleep():
            bad, reached = self._read(thorough=False)
            dropped = gradients is not None and none_is_used(self._evidence, reached, gradients)
            self._decide(bad, reached, "", NOT_USED if dropped else "")

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
        if self.victim or is_traced() or self.company.kept is not None:
            return
        self.company.kept = left_bad(self._evidence, (one._evidence for one in living))
        if self.company.kept is not None and not self._ranks.together:
            self.victim = self.company.speaks = True
            self._alarm(self.company.take_kept())

    def evaluated(self, call: Call) -> None:
        """A call without gradients has returned. What is bad in its result is a note, unless it has reached a weight or a buffer."""
        with self._evidence.outside.asleep():
            bad, reached = (self._of(Phase.FORWARD, leaves) for leaves in self._read())  # what backward has made waits for its use
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
        if self.victim or self._has_heard(self.company.missed(), raises=False):
            return
        self._evidence.outside.ledger.read()
        finding = self.company.kept or (self._first_of_models(bad, reached)[0] if reached else self._paused_pending(bad, died=True))
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

    def _decide(self, bad: Sequence[BadLeaf], reached: Sequence[BadLeaf], place: str, no_alarm: str = "") -> None:
        """Raise an alarm, or note what is contained.

        Args:
            place: where in the step all ranks are; "" to decide alone.
            no_alarm: why what has reached a gradient is none, if it is none on any rank.
        """
        kept = self.company.kept is not None
        alarm = bool(reached or (place and kept)) and not self.victim
        if alarm and not (place or kept) and self._has_heard(self.company.published(), whole=True):
            return
        met = Met.HERE if (speaks := alarm and (kept or not no_alarm)) else Met.NOBODY
        if place:
            met, self.victim = self.company.meet(place, speaks, self.victim)
        if met is Met.HERE or (speaks and met is Met.LATER):
            self._tell(met, bad, reached if alarm else (), alone=not place)
            self.leaves_out = met is Met.LATER and self._options.raises and bool(self._of(Phase.BACKWARD, reached))
        else:
            self.victim = bool(reached) and not no_alarm
            if alarm and no_alarm:
                self.unused = self._note_unused(bad, reached, no_alarm)
                self.company.cured = self.unused or self.company.cured
            if not self.victim and no_alarm != OURS:
                self._note_contained(bad)

    def _tell(
        self,
        met: Met,
        bad: Sequence[BadLeaf],
        reached: Sequence[BadLeaf],
        note: str = "",
        unexplained: Finding | None = None,
        *,
        alone: bool = False,
    ) -> None:
        """Raise the alarm with all ranks, or alone; or keep what this rank has found until they meet."""
        if met is Met.HERE:
            self.victim = True
            self._alarm(self._find(bad, reached, alone, note, unexplained))
        elif self.company.kept is None:
            self.company.keep(self._find(bad, reached, True, note, unexplained))

    def _of(self, phase: Phase, leaves: Sequence[BadLeaf]) -> list[BadLeaf]:
        return [leaf for leaf in leaves if self._evidence.journal.event(leaf[0]).phase is phase]

    def _show(self, reached: Sequence[BadLeaf]) -> None:
        """Show the step's rows, unless they are a finding's."""
        if self.onlooker is not None and not reached:
            self.onlooker.step(self._evidence.step, self._evidence.journal)

    def _paused_pending(self, bad: Sequence[BadLeaf], *, died: bool = False) -> Finding | None:
        with optimizer_probe.paused():
            return pending(self._evidence, bad, died=died)

    def _note_unused(self, bad: Sequence[BadLeaf], leaves: Sequence[BadLeaf], note: str) -> Finding | None:
        """Note what reached no weight, in a step that was left out or by gradients that were not used; None if it is known."""
        site = self._evidence.journal.site(*leaves[0])
        if site in self._left_out_sites:
            return None
        self._left_out_sites.add(site)
        self._contained_sites.add(site)
        finding = replace(self._first_of_models(bad, leaves)[0], contained=True, note=note)
        self._note(finding)
        return finding

    def _has_heard(self, findings: Sequence[Finding], *, raises: bool = True, whole: bool = False) -> bool:
        """Of findings that other ranks tell; False where there are none. ``whole``: this rank may end before the one at fault can tell."""
        for finding in findings:
            self.victim = True
            self.findings.append(finding)
            self._delivery.finding(finding, speaks=False, whole=whole)
        if findings and raises and self._options.raises:
            raise NonFiniteError(self.findings[-1])
        return bool(findings)

    def has_ended(self) -> None:
        """The watch ends as the script goes on, or ends well. Where GradScaler has left out all its steps for a bad forward, that is it."""
        if self.victim:
            return
        if (kept := self.company.take_kept()) is not None:  # the other ranks come to no further place either
            self.victim = self.company.speaks = True
            self._alarm(kept)
        else:
            self._has_heard(self.company.missed())
        if self._never_in is not None and not self.skips.has_stepped and not self.victim and not self._ranks.together:
            self.victim = self.company.speaks = True
            note = f"GradScaler left out all {len(self.skips.steps)} steps"
            self._alarm(replace(self._never_in, contained=False, note=note, kind=Kind.SCALER_SKIPS))

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
        if self.bad_known:  # what is finite again is watched again
            at = zip(places, handles, strict=True)
            self.bad_known -= {entry.parameter(slot) for (entry, slot, _), handle in at if handle not in bad}
        read = zip(places, handles, strict=True) if bad else ()
        written = [(entry.parameter(slot), handle) for (entry, slot, _), handle in read if handle in bad]
        news = [one for one in written if one[0] not in self.bad_known]
        alarm = bool(news or states) and not self.victim
        speaks, foreseen = alarm or (self.company.kept is not None and not self.victim), self._foresight.taken(optimizer)
        met, self.victim = self.company.meet("the updated weights", speaks, self.victim, bool(bad or states))
        if met is Met.NOBODY or (met is Met.LATER and not speaks):
            return
        mine = self.company.take_kept()
        if mine is None and alarm:
            names = {id(p): entry.parameter(slot) for entry, slot, p in places}
            spoiled = news or states, weights if news else ledger
            mine = self.company.left_to_optimizer or self._foresight.found_bad(optimizer, foreseen, names, *spoiled)
        if met is Met.LATER:
            self.company.keep(mine)
            return
        self.victim = True
        self._alarm(self.company.first_of(mine or self.company.cured_lately))

    # ---- which finding was first

    def _read(self, *, thorough: bool = True) -> tuple[list[BadLeaf], list[BadLeaf]]:
        """The bad values, and those of them that have escaped; ``thorough``: buffers are read as at a step's end."""
        evidence, journal = self._evidence, self._evidence.journal
        evidence.saved.see(thorough=thorough)
        journal.read()
        evidence.saved.note(evidence.calls, lambda *given: self.victim or is_fault(evidence, *given))
        bad = journal.bad()
        reached = escaped(self._evidence, bad, self.bad_known)
        if reached and not self.victim and are_chosen(evidence, bad, reached):
            self.bad_known |= {journal.event(index).entry.parameter(slot) for index, slot in reached}
            reached = []
        return bad, reached

    def _first_of_models(self, bad: Sequence[BadLeaf], reached: Sequence[BadLeaf]) -> tuple[Finding, Judge]:
        """``first_of_models``, and the judge of the model that the finding is of."""
        others = {id(j._evidence): j for j in living if j is not self and any(call.thread == get_ident() for call in j._evidence.calls)}
        with optimizer_probe.paused():
            finding, whose = first_of_models(self._evidence, bad, reached, [(j._evidence, j._read()[0]) for j in others.values()])
        return finding, others.get(id(whose), self)

    def _find(
        self, bad: Sequence[BadLeaf], reached: Sequence[BadLeaf], alone: bool, note: str = "", unexplained: Finding | None = None
    ) -> Finding | None:
        """The finding behind an alarm; ``reached`` is empty if another rank raised it, or nothing that is left explains it."""
        mine = left = self.company.take_kept()
        if mine is None and not (reached or alone):
            mine = self.company.cured_lately
        whose = self
        fault: Exception | None = None
        try:
            if reached and left is None:
                mine, whose = self._first_of_models(bad, reached)
                mine = evaluations.traced_back(mine)
        except ours() as error:  # the others wait for an answer first
            fault = error
        asks = left is None and mine is not None and mine.replay == COMMUNICATES
        if not alone and self._ranks.are_here and self._ranks.any("a diagnosis", asks)[0]:
            with optimizer_probe.paused():
                both = diagnose_together(self._evidence, bad, reached, self._ranks)
            mine, whose = left or both, self
        mine = mine or unexplained
        if mine is not None and note:
            mine = replace(mine, note="; ".join(filter(None, (note, mine.note))), kind=Kind.SCALER_SKIPS)
        self.company.speaks = True
        found = mine if alone else self.company.first_of(mine, whose._evidence)
        if fault is not None:
            raise fault
        return found

    def _alarm(self, finding: Finding | None) -> None:
        if finding is None or (finding.rank != self._evidence.rank and finding in self.findings):
            return  # the rank that had raised the alarm could not say why, or it is known here
        self.findings.append(finding)
        self.company.publish(finding)
        self._delivery.finding(finding, speaks=self.company.speaks)
        self._evidence.note(finding=True)
        if self._options.makes_capsules and finding.rank == self._evidence.rank:
            capsule.write(finding, [self._evidence, *(j._evidence for j in living if j is not self)], self._options.log_dir)
        self._stop_in_it(finding)
        if self._options.raises:
            self.company.wait_for_reports(finding)
            self._evidence.forget()
            raise NonFiniteError(finding)

    def _stop_in_it(self, finding: Finding, error: BaseException | None = None) -> None:
        """Open the prompt that the options ask for, on the rank at fault."""
        if self._options.debugger is None or finding.rank != self._evidence.rank:
            return
        from numscope.detect import debugging

        debugging.stop(finding, [self._evidence, *(j._evidence for j in living if j is not self)], self._options.debugger, error)

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

    def _look_for_dead(self, handles: Sequence[int], *, by_hand: bool = False) -> None:
        finding = self.dead.look(handles, by_hand=by_hand)
        if finding is not None:
            self.findings.append(finding)
            self._delivery.finding(finding, speaks=agree.is_first(f"dead gradients {self._evidence.model} {finding.step}"))
