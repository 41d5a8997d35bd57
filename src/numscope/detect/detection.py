"""Detection on one model: fills the step's journal, and has the judge read it wherever a step is decided."""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from numscope.config.options import WatchOptions
from numscope.detect.backward import Loss
from numscope.detect.evidence import Evidence
from numscope.detect.judge import Judge, living
from numscope.detect.parameters import Parameters
from numscope.distributed.agree import Ranks
from numscope.probe import optimizer as optimizer_probe
from numscope.probe import walk
from numscope.probe.calls import in_backward
from numscope.probe.entry import Entry, Leaves
from numscope.probe.hook import Hook
from numscope.probe.module import ModuleProbe
from numscope.probe.optimizers import ids_of
from numscope.probe.step import Step
from numscope.records.errors import NonFiniteError
from numscope.records.site import Phase
from numscope.replay import outside
from numscope.replay.capture import Call
from numscope.report.delivery import Delivery

REPLAY_BYTES = 256 << 20  # arguments and output gradients kept for a replay; beyond it a step's oldest calls are forgotten


class Detection:
    """Reads one model's steps for what is not finite.

    Args:
        probe: shows the model's tensors.
        options: what is watched, and what happens at a finding.
        steps: the model's steps.
        delivery: told of findings.
        wrapper: what the user gave, perhaps a DDP around the model.
        failed: told of an error of the tool's own; it must not raise.
        called: False where there is no model to call: all that runs is watched op by op.
    """

    def __init__(
        self,
        probe: ModuleProbe,
        options: WatchOptions,
        steps: Step,
        delivery: Delivery,
        wrapper: nn.Module,
        failed: Callable[[Exception], None],
        called: bool,
    ) -> None:
        self._probe = probe
        self._options = options
        self._steps = steps
        self._delivery = delivery
        self._failed = failed
        self._called = called
        self.closed = False
        self.events: list[tuple[int, str]] = []
        self._modules = tuple(probe.names)
        self.evidence = Evidence.of(probe, options.frames, steps)
        self._parameters = Parameters(probe, self.evidence.journal)
        self._ranks = Ranks(probe.root, wrapper)
        self.judge = Judge(self.evidence, probe, options, delivery, self._ranks)
        self._judged = False  # this step has been
        self._stale = False  # the calls are the step's before; a further backward through them may follow
        self._loss: Loss | None = None  # what backward was called on, until a gradient says that it is this model's
        self._freed: deque[object] = deque(maxlen=1)  # not empty: an output's graph is gone since the calls were last looked through
        self.had_graph = False  # a call has returned something that backward can be called on
        self.judge.bad_from_start = self._parameters.bad_now()
        outside.backward.enter()

    def close(self, error: BaseException | None) -> None:
        """Judge what is left.

        Args:
            error: with which the script is ending; None where it goes on.
        """
        self.evidence.outside.pause()
        if error is not None and not isinstance(error, NonFiniteError):
            self._guard(self.judge.died, error)
        elif error is None and self.pending:
            self._guard(self._steps.end, True)

    def detach(self) -> None:
        """Take all away, judge nothing. Safe to call twice."""
        if not self.closed:
            self.closed = True
            self.judge.close()
            if not living:  # first: what follows may fail
                self.evidence.outside.take_off()
            self._steps.remove(self)
            outside.backward.leave()
            self.evidence.outside.release(id(self.evidence))
            self.evidence.forget()
            if not living:
                self.evidence.outside.reset()

    @property
    def pending(self) -> bool:
        """Whether the step at work is still to be judged."""
        return self._steps.has_stepped or bool(self.evidence.calls and not (self._judged or self._stale))

    @property
    def expects_backward(self) -> bool:
        """Whether the step at work has calls of the model."""
        return bool(self.evidence.calls) and not self._stale

    def settle(self) -> None:
        """Judge what of the step at work can have no backward any more; the model may be gone otherwise."""
        if self.evidence.calls and not self._steps.had_backward and self.evidence.journal.on_host:
            self._guard(self._drop_gone)
        if not self.pending:
            self._steps.rest()

    def part(self) -> None:
        """This watch has failed: the other ranks hear of it when they ask next."""
        self.judge.part(self._parameters.ids)

    # ---- what the module probe tells

    def enter(self, module: nn.Module, entry: Entry, batch: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """An outermost call begins."""
        evidence = self.evidence
        self._steps.forward_begins()
        self._steps.keep()
        if self._stale:
            self._stale = False
            evidence.forget()
        elif evidence.calls:
            self._between_calls()
        evidence.outside = outside.current()
        evidence.outside.call_begins(id(evidence), self._failed)
        if self._probe.refresh():
            self._modules = tuple(self._probe.names)
            self._parameters.find()
        evidence.journal.call = batch
        evidence.calls.append(Call.capture(module, entry.name, batch, args, kwargs, evidence.buffers, self._modules))
        self._judged = False

    def leave(self, entry: Entry, output: Any, error: BaseException | None) -> None:
        """The outermost call has returned, or raised."""
        evidence = self.evidence
        if error is not None:
            evidence.outside.call_ends(id(evidence), (), watch=False)
            if evidence.calls:
                evidence.calls[-1].error = error if isinstance(error, Exception) else None
            return
        if not evidence.calls:  # the step before was found bad as this call began
            evidence.outside.call_ends(id(evidence), (), watch=False)
            return
        call = evidence.calls[-1]
        found = walk.tensors(output, "output")
        call.outputs = [(slot, weakref.ref(t)) for slot, t in found]
        if not self._probe.deep:
            evidence.journal.add(entry, Phase.FORWARD, {}, list(found))
        live = [(slot, t) for slot, t in found if t.requires_grad and not t.is_leaf]
        call_ref = weakref.ref(call)
        for slot, t in live:
            hook = Hook(self._keep_gradient, call_ref, entry, slot)
            t.register_hook(hook)  # type: ignore[no-untyped-call]
            call.graph.append(weakref.ref(hook, self._freed.append))
        call.awaits_backward = bool(live)
        self.had_graph = self.had_graph or bool(live)
        evidence.outside.call_ends(id(evidence), found, watch=True)
        if not live and not call.grad_enabled and evidence.journal.on_host:
            self.judge.alone()  # no backward can follow; one rank may be evaluating by itself
            self._drop(call)

    def tap(self, entry: Entry, leaves: Leaves) -> None:
        """A module was called."""
        self.evidence.journal.add(entry, Phase.FORWARD, entry.weights, leaves)

    def gradient(self, entry: Entry, slot: str, gradient: Tensor, shape: torch.Size | None) -> None:
        """The gradient of a module's output came."""
        if self._loss is not None:
            self._own_loss()
        self.evidence.journal.add_gradient(entry, slot, gradient, shape)

    def _keep_gradient(self, call_ref: weakref.ref[Call], entry: Entry, slot: str, gradient: Tensor | None) -> None:
        call = call_ref()
        if call is None or self.closed or self._probe.paused:
            return
        call.awaits_backward = False
        if gradient is None:  # of an output of a compiled graph that nothing was computed from
            return
        if self._loss is not None:
            self._guard(self._own_loss)
        if not self._probe.deep:
            self._guard(self.evidence.journal.add_gradient, entry, entry.gradient_slot(slot), gradient)
        self._guard(call.keep, slot, gradient, REPLAY_BYTES)

    def _between_calls(self) -> None:
        """A call begins in the same step: the one before was a micro-batch, or nobody called backward on it."""
        evidence = self.evidence
        last = evidence.calls[-1]
        if not last.had_backward:
            self._drop_gone()
        elif evidence.journal.on_host and not evidence.journal.any_bad():
            evidence.journal.reset()
            evidence.roots.clear()
            while len(evidence.calls) > 1 and sum(c.nbytes for c in evidence.calls) > REPLAY_BYTES:
                del evidence.calls[0]

    def _drop_gone(self) -> None:
        """Judge and drop calls that nobody can call backward on any more."""
        if not self._freed and self.evidence.calls[-1].graph:  # an agent makes hundreds of calls before its backward
            return
        self._freed.clear()
        gone = [call for call in self.evidence.calls if not call.had_backward and all(ref() is None for ref in call.graph)]
        if gone:
            self.judge.alone()
        for call in gone:
            self._drop(call)

    def _drop(self, call: Call) -> None:
        """A call that is judged, and after which no backward can come; earlier ones of the step may still wait for theirs."""
        evidence = self.evidence
        evidence.calls.remove(call)
        if not evidence.calls and not self._steps.had_backward:
            evidence.forget(leaves_tape=True)

    # ---- what the step tells

    def begin(self) -> None:
        if not self._called:
            self._guard(self._watch_all)

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        calls = self.evidence.calls
        if not in_backward() and all(call.thread == get_ident() for call in calls):
            self._guard(self._see_loss, roots)

    def before_step(self, optimizer: Optimizer) -> None:
        self._guard(self._before_step, optimizer)

    def after_step(self, optimizer: Optimizer) -> None:
        if not in_backward():
            self._guard(self._after_step, optimizer)

    def skipped_step(self, optimizer: Optimizer) -> None:
        self._guard(self._skipped_step, optimizer)

    def round(self) -> None:
        self._guard(self._forget_rows)

    def end(self, closing: bool) -> None:
        """The step is over: judge it, where no optimizer's step had it judged."""
        self._guard(self._end, closing)

    def _watch_all(self) -> None:
        key = id(self.evidence)
        self.evidence.outside = outside.current()
        self.evidence.outside.call_begins(key, self._failed)
        self.evidence.outside.call_ends(key, (), watch=True)

    def _see_loss(self, roots: Sequence[Tensor]) -> None:
        """Among several models it is known by the first gradient whose loss it is."""
        if self._called and not self.evidence.calls and not self.evidence.journal.events:
            return
        self._loss = Loss.look_at(roots, self.evidence)
        if len(living) == 1 or not self.evidence.calls:
            self._own_loss()

    def _own_loss(self) -> None:
        """The backward at work is this model's."""
        loss, self._loss = self._loss, None
        self._judged = self._stale = False
        if loss is not None:
            loss.charge(self.evidence)

    def _before_step(self, optimizer: Optimizer) -> None:
        self.evidence.outside.pause()
        self._parameters.follow(optimizer)
        if in_backward():  # an optimizer that steps inside backward: its own gradients are judged, the step goes on
            handles = self._see_gradients(ids_of(optimizer))
            if self.evidence.journal.any_bad():
                self.judge.alone(handles)
            return
        self.judge.stepped(optimizer)
        if self._judged:  # a second optimizer of the same step finds nothing new
            return
        self._judged = True
        with self._ranks.owed():
            if optimizer_probe.in_scaler():
                mine = ids_of(optimizer)
                others = self._see_gradients(self._parameters.ids - mine)
                self.judge.before_step(self._see_gradients(mine), scaled=others)
            else:
                self.judge.before_step(self._see_gradients(None))
        self.evidence.journal.ledger.look_again()
        for call in self.evidence.calls:
            call.gradients.clear()

    def _after_step(self, optimizer: Optimizer) -> None:
        with self._ranks.owed():
            places = self._parameters.see_weights(ids_of(optimizer))
            if self.evidence.journal.on_host:  # elsewhere they are read with the next step's rows: no second sync
                self.judge.after_step(optimizer, places)

    def _skipped_step(self, optimizer: Optimizer) -> None:
        """Ranks agree on what GradScaler leaves out: gradients are reduced before it looks at them."""
        self.evidence.outside.pause()
        if not self.events or self.events[-1][0] != self._steps.number:  # once, however many optimizers
            self.events.append((self._steps.number, "GradScaler left the step out: a gradient was not finite"))
            self._delivery.event(*self.events[-1])
        self._judged = True
        with self._ranks.owed():
            self.judge.skipped(optimizer, self._see_gradients(ids_of(optimizer)))
        self.evidence.journal.ledger.look_again()

    def _end(self, closing: bool) -> None:
        self.evidence.outside.pause()
        trained = self._steps.had_backward
        try:
            if not self._judged:
                self._judged = True
                with self._ranks.owed() if trained and not closing else contextlib.nullcontext():
                    self.judge.end_of_step(self._see_gradients(None) if trained else (), alone=closing or not trained)
        finally:
            if self._parameters.are_gathered or not self._steps.optimizers.any:
                self.evidence.journal.weights.recheck()
            self._forget_rows()

    def _forget_rows(self) -> None:
        """The step is over; its calls stay, for a further backward through them, until the next one begins."""
        self.evidence.forget_rows()
        self._loss = None
        self._judged = False
        self._stale = True

    def _see_gradients(self, only: set[int] | None) -> list[int]:
        return self._parameters.see_gradients(only) if self._options.gradients else []

    def _guard(self, call: Callable[..., object], *args: Any) -> None:
        """Run a piece of the tool; what goes wrong in it never reaches the training script."""
        if self.closed:
            return
        try:
            call(*args)
        except NonFiniteError:
            raise
        except Exception as error:
            self._failed(error)
