"""A scope watches one model: probes fill its journal, the step's end reads it, what is wrong becomes a finding.

The host reads numbers once a step, when the gradients are final and no weight has been touched. On CPU reading waits for nothing.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim import Optimizer

from numscope.config.options import WatchOptions
from numscope.detect.backward import Loss
from numscope.detect.evidence import Evidence
from numscope.detect.judge import Judge
from numscope.detect.parameters import Trained
from numscope.distributed import agree
from numscope.probe import optimizer as optimizer_probe
from numscope.probe import walk
from numscope.probe.dynamo import drop_graphs, prepare_dynamo, release_dynamo
from numscope.probe.entry import Entry, Leaves
from numscope.probe.module import Hook, ModuleProbe, in_backward
from numscope.probe.naming import peel
from numscope.probe.optimizers import ids_of
from numscope.records.errors import AbortAfter, NonFiniteError
from numscope.records.finding import Finding
from numscope.records.site import Phase
from numscope.replay.capture import Call
from numscope.replay.loss import MODEL_OUTPUT
from numscope.report.delivery import Delivery

if TYPE_CHECKING:
    from numscope.inspect.inspector import Inspector
    from numscope.inspect.recorder import Recorder

log = logging.getLogger("numscope")

REPLAY_BYTES = 256 << 20  # arguments and output gradients kept for a replay; beyond it a step's oldest calls are forgotten
_ASKED_FOR = (NonFiniteError, AbortAfter)

_live: list[Scope] = []


class Scope:
    """What ``watch`` returns: the watch on one model, until ``close``.

    Attributes:
        events: (step, text) of the steps that GradScaler left out.
        batch: outermost calls so far.
        closed: nothing is watched any more.
        inspector: collects the statistics that ``config`` asks for; None without.
    """

    def __init__(
        self,
        model: nn.Module,
        options: WatchOptions,
        *,
        optimizer: Optimizer | None = None,
        recorder: Recorder | None = None,
        strict: bool = True,
        explicit: bool = False,
    ) -> None:
        self.options = options
        self.events: list[tuple[int, str]] = []
        self.batch = 0
        self.closed = False
        self._has_failed = False
        self._model = peel(model)
        self._detecting = options.on_nonfinite is not None and not options.trace
        self.inspector: Inspector | None = None
        if recorder is not None or options.config is not None:
            from numscope.inspect.inspector import Inspector  # loads what reads configurations, which a watch without one does not need

            self.inspector = Inspector(self._model, model, recorder or options, explicit=explicit, strict=strict)
        calls_matter = self._detecting or bool(options.trace) or options.abort_after is not None
        if calls_matter or self.inspector is not None:
            prepare_dynamo()
        deep = self._detecting and options.level == "modules"
        gradients = options.gradients and self._detecting
        self._probe = ModuleProbe(self._model, self, deep=deep, gradients=gradients, errors=_ASKED_FOR, hooked=calls_matter)
        self._modules = tuple(self._probe.names)
        self._step = Evidence.of(self._probe, options.frames, self.failed)
        self._trained = Trained(self._probe, self._step.journal, optimizer)
        self._delivery = Delivery(options.json, options.log_dir if calls_matter else None, self._step.model, self._step.rank)
        self._ranks = agree.Ranks(self._model, model)
        self._judge = Judge(self._step, self._probe, options, self._delivery, self._ranks)
        self._stepped = False  # an optimizer has stepped since the last outermost call began
        self._judged = False  # this step has been
        self._loss: Loss | None = None  # what backward was called on, until a gradient says that it is this model's
        self._in_loss = False  # the loss was being computed when the last backward began
        if self._detecting:
            self._judge.bad_from_start = self._trained.bad_now()
        if calls_matter:
            optimizer_probe.listen(self)
        _live.append(self)

    # ---- what users call

    @property
    def findings(self) -> list[Finding]:
        """What escaped, in order; with ``on_nonfinite="raise"`` the same is raised."""
        return self._judge.findings

    @property
    def contained(self) -> list[Finding]:
        """What was non-finite and went nowhere, a note a site."""
        return self._judge.contained

    @property
    def step_number(self) -> int:
        """Training steps so far."""
        return self._step.step

    @property
    def nbytes(self) -> int:
        """Bytes that the ledgers take."""
        return self._step.journal.nbytes + self._probe.compiled.nbytes

    def step(self) -> None:
        """Say that a training step is over, where no torch optimizer says it."""
        if self.inspector is not None:
            self.inspector.step()
        if self._detecting:
            self._guard(self._end_of_step)

    def close(self) -> None:
        """Judge what is left, remove every hook and patch, write the files. Safe to call twice."""
        if self.closed:
            return
        try:
            self._step.stretch.end()
            if self._detecting and sys.exc_info()[0] is None and (self._stepped or (self._step.calls and not self._judged)):
                self._guard(self._end_of_step, True)
        finally:
            if self.inspector is not None:
                self.inspector.close()
            self._detach()
            self._write_files()

    def abandon(self) -> None:
        """Take every hook away, write and judge nothing: in a forked child, where the watch is the parent's."""
        if self.inspector is not None:
            self.inspector.detach()
        self._detach()

    def __enter__(self) -> Scope:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what an automatic watch needs

    @property
    def active(self) -> bool:
        """Whether the model's outermost call is running, or is done again by the tool."""
        return self._probe.active or self._probe.paused

    @property
    def model(self) -> nn.Module:
        return self._model

    def owns(self, module: nn.Module) -> bool:
        """Whether a module is part of the watched model."""
        return module in self._probe.names

    def adopt(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Begin with the outermost call that is already on its way."""
        if self._probe.hooked:
            self._probe.adopt(args, kwargs)

    # ---- what the module probe tells

    def enter(self, module: nn.Module, entry: Entry, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        for scope in tuple(_live):
            scope._step.stretch.end()
        if not self._detecting:
            if self.batch in self.options.trace:
                self._probe.deepen()
            return
        if self._step.calls:
            self._between_calls()
        if self._probe.refresh():
            self._modules = tuple(self._probe.names)
            self._trained.find()
        self._step.journal.call = self.batch
        self._step.calls.append(Call.capture(module, self.batch, args, kwargs, self._step.buffers, self._modules))
        self._judged = False

    def leave(self, module: nn.Module, entry: Entry, output: Any, failed: bool) -> None:
        batch, self.batch = self.batch, self.batch + 1
        if not self._detecting:
            self._print_trace(batch)
        elif failed:
            if self._step.calls:  # none where the step before was found bad as this call began
                self._step.calls.pop()
        else:
            self._watch_outputs(entry, output)
        if self.options.abort_after is not None and batch >= self.options.abort_after:
            raise AbortAfter(batch)

    def tap(self, entry: Entry, phase: Phase, weights: Mapping[str, Tensor | None], leaves: Leaves) -> None:
        if entry.is_root:
            self._absorb_graphs()
        if self._loss is not None and phase is Phase.BACKWARD:
            self._own_loss()
        self._step.journal.add(entry, phase, weights, leaves)

    def failed(self, error: Exception) -> None:
        """The tool itself failed: it says so once and is gone; training goes on."""
        if self._has_failed:
            return
        self._has_failed = True
        self._detach()
        self._judge.part(self._trained.ids)
        self._write_files()
        name = self._step.model
        log.error("numscope is off for %s: %s: %s\n%s", name, type(error).__name__, error, "".join(traceback.format_exception(error)))

    # ---- what the optimizer probe tells

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        self._in_loss = self._step.stretch.watching
        self._step.stretch.end()
        if self._detecting and not in_backward() and all(call.thread == get_ident() for call in self._step.calls):
            self._guard(self._see_loss, roots)

    def after_gradients(self, gradients: Sequence[Tensor]) -> None:
        if self._in_loss and self._step.calls and not in_backward():  # a gradient penalty: the loss goes on
            self._guard(self._step.stretch.begin, {id(g): f"gradient[{i}]" for i, g in enumerate(gradients)})

    def before_step(self, optimizer: Optimizer) -> None:
        if self._detecting:
            self._guard(self._if_mine, self._before_step, optimizer)

    def after_step(self, optimizer: Optimizer) -> None:
        if self._detecting and not in_backward():
            self._guard(self._if_mine, self._after_step, optimizer)

    def skipped_step(self, optimizer: Optimizer) -> None:
        if self._detecting:
            self._guard(self._if_mine, self._skipped_step, optimizer)

    # ---- the course of a step

    def _watch_outputs(self, entry: Entry, output: Any) -> None:
        call = self._step.calls[-1]
        found = walk.tensors(output, "output")
        call.outputs = [(slot, weakref.ref(t)) for slot, t in found]
        self._absorb_graphs()
        if not self._probe.deep or self._probe.compiled.places:
            self._step.journal.add(entry, Phase.FORWARD, {}, list(found))
        live = [(slot, t) for slot, t in found if t.requires_grad and not t.is_leaf]
        call_ref = weakref.ref(call)
        for slot, t in live:
            t.register_hook(Hook(self._keep_gradient, call_ref, entry, slot))  # type: ignore[no-untyped-call]
        if live:
            self._step.stretch.begin({id(t): f"{MODEL_OUTPUT} {slot}" for slot, t in found})
        elif not call.grad_enabled and self._step.journal.on_host:
            self._judge.judge(alone=True)  # no backward can follow; one rank may be evaluating by itself
            self._forget()

    def _absorb_graphs(self) -> None:
        """What compiled graphs have seen comes before the event of the call around them. Off the host it waits for the judge."""
        if self._probe.compiled.places and self._step.journal.on_host:
            self._step.journal.absorb(self._probe.compiled)

    def _keep_gradient(self, call_ref: weakref.ref[Call], entry: Entry, slot: str, gradient: Tensor | None) -> None:
        call = call_ref()
        if gradient is not None and call is not None and not self._probe.paused:
            if self._loss is not None:
                self._guard(self._own_loss)
            if not self._probe.deep:
                self._guard(self._step.journal.add, entry, Phase.BACKWARD, {}, [(entry.gradient_slot(slot), gradient)])
            self._guard(call.keep, slot, gradient, REPLAY_BYTES)

    def _see_loss(self, roots: Sequence[Tensor]) -> None:
        """Among several models it is known by the first gradient whose loss it is."""
        if self._stepped and not self._step.calls:  # a forward that no hook saw; before the loss gets a row of the new step
            self._judged = False
            self._next_step()
        if not self._step.calls and not self._journals_anything():
            return
        self._loss = Loss.look_at(roots, self._step, [scope._step for scope in _live if scope is not self])
        if len(_live) == 1 or not self._step.calls:
            self._own_loss()

    def _own_loss(self) -> None:
        """The backward at work is this model's."""
        loss, self._loss = self._loss, None
        if self._stepped:  # backward again without a new forward
            self._stepped = self._judged = False
        if loss is not None:
            loss.charge(self._step)

    def _journals_anything(self) -> bool:
        """Whether this model has a part in the step at work. If it runs in a graph compiled after ``watch``, get at its calls."""
        if self._probe.root_was_traced and self._probe.find_shells():
            self._step.stretch.end()
        return bool(self._step.journal.events) or self._probe.root_was_traced

    def _between_calls(self) -> None:
        """A call begins and the one before is not judged: a micro-batch is over, or a step that no optimizer ended."""
        step = self._step
        last = step.calls[-1]
        if self._stepped:
            self._next_step()
            return
        if last.had_backward:
            self._trained.search()
        if not last.had_backward:
            if all(ref() is None for _, ref in last.outputs):  # nobody can call backward on it any more
                self._judge.judge(alone=True)
                self._forget()
        elif not self._trained.has_optimizer:
            self._end_of_step()
        elif self._step.journal.on_host and not step.journal.any_bad():
            step.journal.reset()
            step.stretch.reset()
            while len(step.calls) > 1 and sum(c.nbytes for c in step.calls) > REPLAY_BYTES:
                del step.calls[0]

    def _before_step(self, optimizer: Optimizer) -> None:
        self._trained.meet(optimizer)
        if in_backward():  # an optimizer that steps inside backward: its own gradients are judged, the step goes on
            handles = self._see_gradients(ids_of(optimizer))
            if self._step.journal.any_bad():
                self._judge.judge(handles, alone=True)
            return
        self._judge.stepped(optimizer)
        if not self._stepped:  # a second optimizer of the same step finds nothing new
            self._stepped = self._judged = True
            with self._ranks.owed():
                mine, scaled = None, None
                if optimizer_probe.in_scaler():
                    mine = ids_of(optimizer)
                    scaled = self._see_gradients(self._trained.ids - mine)
                handles = self._see_gradients(mine)
                try:
                    self._judge.judge(handles, scaled=scaled)
                except NonFiniteError:
                    self._stepped = False  # the step never happened
                    raise
            for call in self._step.calls:
                call.gradients.clear()

    def _after_step(self, optimizer: Optimizer) -> None:
        with self._ranks.owed():
            places = self._trained.see_weights(ids_of(optimizer))
            if self._step.journal.on_host:  # elsewhere they are read with the next step's rows: no second sync
                self._judge.judge_update(optimizer, places)

    def _skipped_step(self, optimizer: Optimizer) -> None:
        """Ranks agree on what GradScaler leaves out: gradients are reduced before it looks at them."""
        self._step.stretch.end()
        if not self.events or self.events[-1][0] != self.step_number:  # once, however many optimizers
            self.events.append((self.step_number, "GradScaler left the step out: a gradient was not finite"))
            self._delivery.event(*self.events[-1])
        self._stepped = self._judged = True
        with self._ranks.owed():
            self._judge.skipped(optimizer, self._see_gradients(ids_of(optimizer)))

    def _end_of_step(self, closing: bool = False) -> None:
        """A step is over that no optimizer of torch ended."""
        self._step.stretch.end()
        trained = bool(self._step.calls) and self._step.calls[-1].had_backward
        if not self._judged:
            self._judged = True
            with self._ranks.owed() if trained and not closing else contextlib.nullcontext():
                self._judge.judge(self._see_gradients(None) if trained else (), alone=closing or not trained)
        if not self._trained.has_optimizer:
            self._step.journal.weights.recheck()
        if trained or self._stepped:
            self._next_step()
        else:
            self._forget()

    def _next_step(self) -> None:
        self._step.step += 1
        self._forget()

    def _forget(self) -> None:
        self._stepped = False
        self._loss = None
        self._step.forget()

    def _see_gradients(self, only: set[int] | None) -> list[int]:
        return self._trained.see_gradients(only) if self.options.gradients else []

    # ---- small things

    def _if_mine(self, then: Callable[[Optimizer], None], optimizer: Optimizer) -> None:
        if self._trained.updated_by(optimizer):
            then(optimizer)

    def _print_trace(self, batch: int) -> None:
        if batch in self.options.trace:
            self._probe.flatten()
            self._delivery.trace(batch, self._step.journal.take_frames())

    def _guard(self, call: Callable[..., object], *args: Any) -> None:
        """Run a piece of the tool; what goes wrong in it never reaches the training script."""
        if self.closed:
            return
        try:
            call(*args)
        except _ASKED_FOR:
            raise
        except Exception as error:
            self.failed(error)

    def _detach(self) -> None:
        self.closed = True
        self._probe.paused = True
        if self in _live:
            _live.remove(self)
        unlisten = partial(optimizer_probe.unlisten, self)
        for undo in (self._step.stretch.end, self._probe.detach, unlisten, self._judge.close, self._step.forget):
            try:
                undo()
            except Exception as error:  # the rest must be undone all the same
                log.debug("while numscope went: %s: %s", type(error).__name__, error)
        if self._probe.compiled.places:
            drop_graphs()
        if not _live:
            release_dynamo()

    def _write_files(self) -> None:
        try:
            self._delivery.close(self.findings, self.contained, self.events, self.step_number, self.batch)
        except Exception as error:
            log.error("numscope could not write its files: %s: %s", type(error).__name__, error)


def live() -> tuple[Scope, ...]:
    """Scopes at work in this process, in the order of watching."""
    return tuple(_live)
