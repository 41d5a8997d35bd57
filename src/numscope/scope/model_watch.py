"""The watch on one model: probes show its tensors to detection and to statistics."""

from __future__ import annotations

import logging
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from numscope.alerts.checks.check import Subject
from numscope.alerts.checks.checker import CHECKS, Checker
from numscope.config.check_plan import CheckPlan
from numscope.config.options import WatchOptions
from numscope.config.rule_table import RULES
from numscope.detect.detection import Detection
from numscope.detect.experiments import Experiments
from numscope.detect.history import RunHistory
from numscope.detect.journal import Journal
from numscope.distributed.agree import num_ranks, rank
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.dynamo import drop_graphs, prepare_dynamo, release_dynamo
from numscope.probe.entry import Entry, Leaves
from numscope.probe.hook import owned_by
from numscope.probe.module import ModuleProbe
from numscope.probe.naming import class_name, peel
from numscope.probe.step import Step
from numscope.probe.swapping import allow_swaps
from numscope.records.alert import Alert
from numscope.records.errors import STOPS, AbortAfter
from numscope.records.faults import ours, suppress, told, traced
from numscope.records.finding import Finding
from numscope.records.words import without_passwords
from numscope.report.delivery import Delivery
from numscope.report.ending import at_end
from numscope.scope import signals
from numscope.scope.alerting import Alerting
from numscope.scope.numbering import Numbering
from numscope.scope.open_scopes import closed, end_all, live, opened, write_all
from numscope.storage.spool import spooled

if TYPE_CHECKING:
    from numscope.inspect.inspector import Inspector
    from numscope.inspect.recorder import Recorder

log = logging.getLogger("numscope")

_ASKED_FOR = (*STOPS, AbortAfter)


class ModelWatch:
    """The watch on one model, until ``close``; users hold it as a ``Scope``. The model keeps it alive, and it ends with the model,
    which it does not keep, unless an optimizer trains it (see ``Step.kept``) or statistics are collected of it.

    Attributes:
        numbering: knows the model's name.
        batch: outermost calls so far.
        closed: nothing is watched any more.
        ends_by_itself: with the process, if nobody closes it before.
        heirs: called with the watch when it is deleted; they take over what it has found.
        fault: the internal error that ended the watch early, or "".
        inspector: collects the statistics that ``config`` asks for; None without.
        alerting: has the alerts, and takes them to people.
        steps: of the model.
    """

    def __init__(
        self,
        model: nn.Module,
        options: WatchOptions,
        *,
        optimizer: Optimizer | None = None,
        recorder: Recorder | None = None,
        owns_recorder: bool = False,
        strict: bool = True,
        explicit: bool = False,
        called: bool = True,
    ) -> None:
        if recorder is not None and options.check is None:
            options = replace(options, check=recorder.plan.check)
        self.options = options
        self.batch = 0
        self.closed = False
        self.ends_by_itself = False
        at_end(end_all)
        self.heirs: list[Callable[[ModelWatch], None]] = []
        self.inspector: Inspector | None = None
        self.fault = ""
        root = peel(model)
        self._model = weakref.ref(root)
        self._end_with_model = weakref.finalize(root, _model_is_gone, weakref.ref(self))
        self._end_with_model.atexit = False
        self.numbering: Numbering = Numbering(class_name(root), [scope.numbering for scope in live()], self._renamed)
        first = options.first_step if recorder is None else recorder.first_step
        self.steps = Step(root, first, self._steps_failed, optimizer=optimizer, explicit=explicit)
        detecting = options.detecting
        calls_matter = detecting or bool(options.trace) or options.abort_after is not None
        if calls_matter or recorder is not None:
            prepare_dynamo()
            allow_swaps()
        if (address := options.log_dir) is not None:
            options = replace(options, log_dir=spooled(address, rank()))
        self._delivery = Delivery(
            options.json, options.log_dir, self.numbering.name, rank(),
            sarif=options.sarif, meanings={name: rule.meaning for name, rule in RULES.items()}, detecting=calls_matter,
            shown_as=None if address is None else without_passwords(address), prints_frames=options.frames is not None,
        )  # fmt: skip
        self._disown = owned_by(root, self)
        self._probe = ModuleProbe(root, _ASKED_FOR)
        self._trace = Journal() if options.trace else None
        self._detection: Detection | None = None
        self._checker: Checker | None = None
        self._experiments: Experiments | None = None
        if detecting:
            self._detection = Detection(self._probe, options, self.steps, self._delivery, model, self.failed, called)
            if options.check is not None and (plan := CheckPlan.of(options.check)).does_again:
                self._experiments = Experiments(self._detection.evidence, self._probe, plan, model, options.leaves_out)
                self.steps.add(self._experiments)
            self.steps.add(self._detection)
            if options.log_dir is not None and recorder is None:
                self._detection.evidence.history = RunHistory(options.log_dir, rank(), class_name(root), num_ranks())
        if calls_matter:
            self._probe.attach(self, deep=detecting and options.level == "modules", gradients=detecting and options.gradients)
        try:
            if recorder is not None:
                self._statistics_of = root  # theirs is the model's last step too, when it may be merged with other ranks'
                from numscope.inspect.inspector import Inspector  # loads what reads configurations, which a watch without one does not need

                journal = None if self._detection is None else self._detection.evidence.journal
                self.inspector = Inspector(self._probe, model, recorder, self.steps, journal, owns=owns_recorder, strict=strict)
            self.alerting = Alerting(options, self._delivery, self._detection, None if self.inspector is None else self.inspector.recorder)
        except BaseException:
            if self.inspector is not None:
                self.inspector.close()
            self._detach()
            raise
        if self.inspector is not None:
            self.inspector.post = self.alerting.post
            if self._experiments is not None:
                self._experiments.keep = self.inspector.keep
        if self._detection is not None and self.alerting.plan.mode != "off":
            subject = Subject(model, self._probe, self.steps, self._detection.evidence.journal, options.log_dir)
            self._checker = Checker(subject, self.alerting.desk.post, CHECKS, self.alerting.plan.rules)
            if self._experiments is not None:
                self._experiments.post = self.alerting.desk.post
        opened(self)
        if self._delivery.has_files or self.inspector is not None or options.loggers:
            signals.listen(write_all)

    def __del__(self) -> None:
        with suppress(Exception):  # it may be the interpreter's end, or a scope that was never made whole
            if not self.closed:  # no step is at work
                self._end()
            elif self.inspector is not None:
                self.inspector.close()
            for heir in self.heirs:
                heir(self)

    # ---- what a Scope shows

    @property
    def findings(self) -> list[Finding]:
        return [] if self._detection is None else self._detection.judge.findings

    @property
    def contained(self) -> list[Finding]:
        return [] if self._detection is None else self._detection.judge.contained

    @property
    def without_gradients(self) -> list[Finding]:
        """Bad results of calls without gradients, each slot's last one; among ``contained`` is each slot's first."""
        return [] if self._detection is None else self._detection.judge.evaluations.notes

    @property
    def alerts(self) -> list[Alert]:
        return self.alerting.desk.alerts

    @property
    def events(self) -> list[tuple[int, str]]:
        """(step, text) of the steps that were left out, and of remedies that stay on."""
        return [] if self._detection is None else self._detection.left_out.events

    @property
    def left_out(self) -> list[int]:
        """The steps that were left out, by a GradScaler or by the watch."""
        return [] if self._detection is None else self._detection.judge.skips.steps

    @property
    def step_number(self) -> int:
        return self.steps.number

    @property
    def num_steps(self) -> int:
        return self.steps.num_steps

    @property
    def has_trained(self) -> bool:
        """Whether a backward or a step of the model was seen."""
        return self.steps.num_steps > 0 or self.steps.had_backward or self.steps.ever_had_backward

    @property
    def could_train(self) -> bool:
        """Whether a call has returned something that backward can be called on."""
        return self._detection is not None and self._detection.had_graph

    @property
    def gaps(self) -> list[str]:
        """The gaps: what was not watched of the model, and around it."""
        return [] if self._detection is None else self._detection.gaps

    @property
    def num_tensors(self) -> int:
        return 0 if self._detection is None else self._detection.evidence.journal.num_tensors

    @property
    def nbytes(self) -> int:
        """Bytes that the ledgers take."""
        journal = self._trace if self._detection is None else self._detection.evidence.journal
        return 0 if journal is None else journal.nbytes

    def step(self) -> None:
        """The training step is over, for the scales of converted layers too.

        From the first call on, this alone ends steps; without it optimizers do.
        """
        if not self.closed:
            self.steps.step()
            converted = sys.modules.get("numscope.precision.gemm.layer_state")  # not loaded where nobody has converted a layer
            if converted is not None:
                converted.end_step(self.model)

    def close(self, error: BaseException | None = None) -> None:
        """Judge what is left, remove every hook and patch, write the files. Safe to call twice.

        Args:
            error: with which the script is ending; without it, the exception at work, if there is one.
        """
        if self.closed:
            if self.inspector is not None:  # statistics go on where detection has failed
                self.inspector.close()
            return
        error = error or sys.exc_info()[1]
        with signals.ending():
            try:
                if self._checker is not None and error is None:
                    self._checker.last()
                if self._detection is not None:
                    self._detection.close(error)
                if self._experiments is not None:
                    self._experiments.close()
                self.alerting.close(stops=error is None)
            finally:
                self._end()

    def write(self) -> None:
        """Write the files without a judgment: the process may be gone the next moment."""
        self.alerting.close(stops=False)
        self._delivery.close(self.findings, self.contained, self.events, self.num_steps, self.batch, ended=False)
        self._write_history()
        if self.inspector is not None:
            self.inspector.recorder.close()
        self.alerting.end()

    @property
    def is_in_other_thread(self) -> bool:
        """Whether a thread that still runs has used the model last, and it is not this one."""
        return self.steps.thread != threading.get_ident() and any(t.ident == self.steps.thread for t in threading.enumerate())

    def abandon(self) -> None:
        """Remove every hook without judging or writing: in a forked child, the watch belongs to the parent."""
        if self.inspector is not None:
            self.inspector.detach()
        self._detach()

    # ---- what an automatic watch needs

    @property
    def active(self) -> bool:
        """Whether an outermost call of the model is running, or is done again by the tool."""
        return self._probe.active or optimizer_probe.is_paused()

    @property
    def model(self) -> nn.Module | None:
        """The watched model; None once it is gone."""
        return self._model()

    def owns(self, module: nn.Module) -> bool:
        return module in self._probe.names

    @property
    def expects_backward(self) -> bool:
        """Whether a backward that begins now may be the model's."""
        return self._detection is None or self._detection.expects_backward

    def settle(self) -> None:
        """Judge calls whose backward can no longer come; until then a dropped model is kept alive."""
        if self._detection is not None:
            self._detection.settle()

    def adopt(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Begin with the outermost call that is already running."""
        self._probe.adopt(args, kwargs)

    # ---- called by the module probe

    def _renamed(self, name: str) -> None:
        self._delivery.model = name
        if self._detection is not None:
            self._detection.evidence.model = name

    def enter(self, module: nn.Module, entry: Entry, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self.numbering.younger:
            self.numbering.goes_on()
        if self._detection is not None:
            self._detection.enter(module, entry, self.batch, args, kwargs)
            if self._experiments is not None:
                self._experiments.began()
            if self._checker is not None:
                self._checker.enter(module, args, kwargs)
        elif self.batch in self.options.trace:
            self._probe.deepen(True)

    def leave(self, module: nn.Module, entry: Entry, output: Any, failed: bool) -> None:
        batch, self.batch = self.batch, self.batch + 1
        if self._detection is not None:
            self._detection.leave(entry, output, sys.exc_info()[1] if failed else None)
            if self._checker is not None and not failed:
                self._checker.leave(module, output)
        elif self._trace is not None and batch in self.options.trace:
            self._probe.deepen(False)
            self._delivery.trace(batch, self._trace.take_frames())
        if self._detection is None or not self._detection.pending:
            self.steps.rest()
        if self.options.abort_after is not None and batch >= self.options.abort_after:
            raise AbortAfter(batch)

    @property
    def tap(self) -> Callable[[Entry, Leaves], None]:
        journal = self._trace if self._detection is None else self._detection.evidence.journal
        assert journal is not None
        return journal.tap

    @property
    def gradient(self) -> Callable[[Entry, str, Tensor, torch.Size | None], None]:
        assert self._detection is not None
        return self._detection.evidence.journal.add_gradient

    def failed(self, error: Exception) -> None:
        """The tool itself failed: it reports this once and stops; training continues."""
        if self.fault:
            return
        self.fault = told(error)
        self._detach()
        if self.inspector is not None:
            self.inspector.go_alone()
        self.alerting.release()
        self._write_files()
        log.error("numscope is off for %s: %s", self.numbering.name, traced(error))

    def _steps_failed(self, error: Exception) -> None:
        self.failed(error)
        if self.inspector is not None:
            self.inspector.failed(error)

    # ---- the end

    def _end(self) -> None:
        self.alerting.closed = True
        if self.inspector is not None:
            self.inspector.close()
        self._detach()
        self.alerting.close(stops=False)
        self.alerting.release()
        self._write_files()

    def _detach(self) -> None:
        self.closed = True
        closed(self)
        self._end_with_model.detach()
        parts = [part for part in (self._checker, self._experiments, self._detection) if part is not None]
        for undo in (self._disown, self._probe.detach, *(part.detach for part in parts)):
            try:
                undo()
            except ours() as error:  # the rest must be undone all the same
                log.debug("while numscope went: %s", told(error))
        if self._probe.in_graphs:
            drop_graphs()
        if not live():
            release_dynamo()
            signals.unlisten()

    def _write_files(self) -> None:
        try:
            self._delivery.close(self.findings, self.contained, self.events, self.num_steps, self.batch)
        except ours() as error:
            log.error("numscope could not write its files: %s", told(error))
        self._write_history()

    def _write_history(self) -> None:
        if self._detection is not None and self._detection.evidence.history is not None:
            self._detection.evidence.history.write()

    def _root_is_gone(self) -> None:
        probe = self._probe
        self._end()
        for entry in (probe.entry_of(""), *probe.entries.values()):
            entry.weights = {}
        probe.names.clear()
        probe.entries.clear()
        if self._detection is not None:
            self._detection.evidence.saved.forget()


def _model_is_gone(ref: weakref.ref[ModelWatch]) -> None:
    """A script has dropped a model: its modules and weights go with it, though the watch may be in cycles of its own."""
    watch = ref()
    if watch is not None and not watch.closed:
        with suppress(Exception):
            watch._root_is_gone()
