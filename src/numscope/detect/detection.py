"""Detection on one model: fills the step's journal, and calls the judge wherever a step is decided."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from numscope.config.options import WatchOptions
from numscope.detect.derived_outputs import DerivedOutputs
from numscope.detect.evidence import REPLAY_BYTES, Evidence
from numscope.detect.judge import Judge, living
from numscope.detect.left_out import LeftOutSteps
from numscope.detect.optimizer_states import OptimizerStates
from numscope.detect.parameters import Parameters
from numscope.distributed.agree import Ranks
from numscope.probe import compiled, walk
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.calls import finalizing, in_backward, unheard
from numscope.probe.entry import Entry
from numscope.probe.hook import Hook, hook_gradient
from numscope.probe.module import ModuleProbe
from numscope.probe.nodes import MOST_HOOKED
from numscope.probe.optimizer import guarded
from numscope.probe.optimizers import ids_of
from numscope.probe.step import Step, StepReader
from numscope.records.errors import STOPS
from numscope.records.faults import is_out_of_memory, suppress
from numscope.records.site import Phase
from numscope.replay import loop, outside
from numscope.replay.capture import FORWARD, Call
from numscope.replay.tape import UNOBSERVED, State
from numscope.report.delivery import Delivery

_LOSS = Entry("", "")


class Detection(StepReader):
    """Looks for non-finite values in one model's steps.

    Args:
        probe: shows the model's tensors.
        options: what is watched, and what a finding causes.
        steps: the model's steps.
        delivery: receives the findings.
        wrapper: what the user gave, perhaps a DDP around the model.
        failed: is called with an internal error of the tool; it must not raise.
        called: False if there is no model to call; then everything that runs is watched operation by operation.

    Attributes:
        ranks: the ranks that train the model together.
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
        self.failed = failed
        self._called = called
        self.closed = False
        self.evidence = Evidence.of(probe, options, steps)
        self._parameters = Parameters(probe, self.evidence.journal)
        self.ranks = Ranks(probe.root, wrapper, lambda: steps.number)
        self.judge = Judge(self.evidence, probe, options, delivery, self.ranks)
        self._judged = False  # this step has been
        self._stale = False  # the calls are the step's before; a further backward through them may follow
        # what backward was called on, until a gradient shows that it is this model's: rows in the journal, states on the tape, and
        # whether it gives parameters their gradients
        self._loss: tuple[list[tuple[str, int]], list[State], bool] | None = None
        self._accumulated = False  # a backward of this step gave parameters their gradients
        self._freed = False  # an output's graph is gone since the calls were last looked through
        self._derived = DerivedOutputs(probe, self._gradient_arrived, self.failed)
        self._states = OptimizerStates()
        self._gradients: list[int] = []  # handles of those that this step's optimizers get
        self.left_out = LeftOutSteps(self.evidence, options, self.judge.skips, self.ranks, delivery)
        self._had_long_loss = False  # operations of it were not written down
        self.had_graph = False  # a call has returned something that backward can be called on
        if options.debugger is not None:
            outside.keeps_frames = True
        with unheard():
            self.judge.bad_known = self._parameters.bad_now()
        loop.listen()

    @guarded(*STOPS)
    def close(self, error: BaseException | None) -> None:
        """Judge what is left.

        Args:
            error: the exception that is ending the script; None if the script continues.
        """
        self.evidence.outside.pause()
        if error is None:
            self._steps.end(True) if self.pending else self.judge.between_steps()
            self.judge.has_ended()
        elif not isinstance(error, STOPS):
            self.judge.died(error)

    def detach(self) -> None:
        """Remove everything without judging. Safe to call twice."""
        if not self.closed:
            self.closed = True
            self.judge.close()
            self.left_out.healing.close()
            self._derived.stop()
            if not living:  # first: what follows may fail
                self.evidence.outside.take_off()
                loop.unlisten()
            self._steps.remove(self)
            self.evidence.outside.release(id(self.evidence))
            self.evidence.forget()
            self._parameters.places = []
            if not living:
                self.evidence.outside.reset()

    @property
    def pending(self) -> bool:
        """Whether the step at work is still to be judged."""
        return self._steps.has_stepped or bool(self.evidence.calls and not (self._judged or self._stale))

    @property
    def gaps(self) -> list[str]:
        """The gaps: what was not watched of the model, and around it."""
        name, found = self.evidence.model, []
        if self._probe.in_graphs and not compiled.GRADIENTS and (self._steps.num_steps or self._steps.had_backward):
            found.append(f"gradients within compiled graphs of {name}, but for those of its weights: torch shows them from 2.11 on")
        if self._probe.was_crowded:
            found.append(f"gradients of outputs in {name} past the first {MOST_HOOKED:,} calls before a backward")
        if self._had_long_loss:
            found.append(f"operations past the first {outside.MOST_IN_A_ROW:,} in a row outside of {name}")
        return found

    @property
    def expects_backward(self) -> bool:
        """Whether the step at work has calls of the model."""
        return bool(self.evidence.calls) and not self._stale

    @guarded(*STOPS)
    def settle(self) -> None:
        """Judge the calls of the current step whose backward can no longer come; later, the model may be gone."""
        if self.evidence.calls and not self._steps.had_backward and self.evidence.journal.on_host:
            self._drop_gone()
        if not self.pending:
            self._steps.rest()

    @guarded()
    def _graph_gone(self, _: object) -> None:
        """An output's graph is gone, and perhaps the model with it."""
        self._freed = True
        self._let_go()

    def _let_go(self) -> None:
        """Keep a past step's calls, and the model, no longer, unless a graph of the calls lives, or there is something to judge."""
        if any(map(Call.has_graph, self.evidence.calls)):
            return
        if self._stale:
            self.evidence.calls.clear()
        if self._steps.keeps and not self._steps.awaits_optimizer and self.evidence.journal.on_host and not self.evidence.journal.any_bad():
            self._steps.rest()
        for call in () if self._steps.keeps else self.evidence.calls:
            call.let_go()

    # ---- called by the module probe

    def enter(self, module: nn.Module, entry: Entry, batch: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """An outermost call begins."""
        evidence = self.evidence
        self._steps.forward_begins()
        self._steps.keep()
        is_first, self._stale = self._stale, False
        if is_first:
            evidence.forget()
        elif evidence.calls:
            self._between_calls()
        evidence.outside = outside.current()
        evidence.outside.call_begins(id(evidence), self.failed)
        self.judge.evaluations.last = None
        if is_first or len(evidence.calls) == 0:
            self.judge.between_steps()
        if self._probe.refresh():
            self._parameters.find()
        evidence.journal.call = batch
        evidence.calls.append(Call.capture(module, entry.name, batch, args, kwargs, evidence.buffers))
        self._judged = False

    def leave(self, entry: Entry, output: Any, error: BaseException | None) -> None:
        """The outermost call has returned, or raised."""
        evidence = self.evidence
        if error is not None:
            evidence.outside.call_ends(id(evidence), (), watch=False)
            if evidence.calls:
                evidence.calls[-1].raised = isinstance(error, Exception)  # not itself: its frames hold the call's tensors
                if is_out_of_memory(error):  # the script may try again with less, and needs the room
                    self._drop(evidence.calls[-1])
                    self._steps.rest()
            self._let_go()
            return
        if not evidence.calls:  # the step before was found bad as this call began
            evidence.outside.call_ends(id(evidence), (), watch=False)
            return
        call = evidence.calls[-1]
        found, call_ref = walk.tensors(output, "output"), weakref.ref(call)
        call.outputs = [(slot, weakref.ref(t)) for slot, t in found]
        if not self._probe.deep:
            evidence.journal.add(entry, Phase.FORWARD, {}, list(found))
        live = [(slot, t) for slot, t in found if t.requires_grad and not t.is_leaf]
        if self._probe.is_crowded and len(evidence.calls) > 1:
            call.graph += evidence.calls[-2].graph  # a long row of calls: as long as the one before
        for slot, t in () if self._probe.is_crowded else live:
            hook = Hook(self._keep_gradient, call_ref, entry, slot)
            hook_gradient(t, hook)
            call.graph.append(weakref.ref(hook, finalizing(self._graph_gone)))
        call.awaits_backward = bool(live)
        self.had_graph = self.had_graph or bool(live)
        evidence.outside.call_ends(id(evidence), found, watch=True)
        if not live and not call.grad_enabled and evidence.journal.on_host:
            self.judge.evaluated(call)  # no backward can follow; one rank may be evaluating by itself
            self._drop(call)

    @guarded(*STOPS)
    def _keep_gradient(self, call_ref: weakref.ref[Call], entry: Entry, slot: str, gradient: Tensor | None) -> None:
        call = call_ref()
        if call is None or optimizer_probe.is_paused():
            return
        call.awaits_backward = False
        if gradient is None:  # of an output of a compiled graph that nothing was computed from
            return
        self._gradient_arrived()
        if not self._probe.deep:
            self.evidence.journal.add_gradient(entry, entry.gradient_slot(slot), gradient)
        call.keep((FORWARD, slot), gradient, REPLAY_BYTES)

    def _between_calls(self) -> None:
        """A further call begins in the same step. The previous one was a micro-batch, or its output is not used for a backward."""
        evidence = self.evidence
        last = evidence.calls[-1]
        if not last.had_backward:
            self._drop_gone()
        elif evidence.journal.on_host and not evidence.journal.any_bad():
            self.judge.between_steps()  # of SAM the first half, which moves the weights
            evidence.journal.reset()
            evidence.num_dropped = 0
            evidence.roots.clear()
            while len(evidence.calls) > 1 and sum(c.nbytes for c in evidence.calls) > REPLAY_BYTES:
                del evidence.calls[0]

    def _drop_gone(self) -> None:
        """Judge and drop calls whose graph is gone, so that no backward can follow."""
        if not self._freed and self.evidence.calls[-1].graph:  # an agent makes hundreds of calls before its backward
            return
        self._freed = False
        gone = [call for call in self.evidence.calls if not call.had_backward and all(ref() is None for ref in call.graph)]
        if gone:
            self.judge.alone()
        for call in gone:
            self._drop(call)

    def _drop(self, call: Call) -> None:
        """Drop a judged call without a backward; earlier calls of the step may still get theirs."""
        evidence = self.evidence
        with suppress(ValueError):  # another thread that shares the model has dropped it
            evidence.calls.remove(call)
        if not evidence.calls and not self._steps.had_backward:
            evidence.forget(leaves_tape=True)

    # ---- called by the step

    @guarded(*STOPS)
    def begin(self) -> None:
        if self._called and self.evidence.outside is outside.current():
            self.evidence.outside.begin_between()
        elif not self._called:
            self.evidence.outside, key = outside.current(), id(self.evidence)
            self.evidence.outside.call_begins(key, self.failed, is_step=True)
            self.evidence.outside.call_ends(key, (), watch=True)

    @guarded(*STOPS)
    def before_backward(self, roots: Sequence[Tensor]) -> None:
        """Look at the loss. If several models are watched, the first gradient that arrives shows whose loss it is.

        *Cost:* one pass over the roots.
        """
        calls = self.evidence.calls
        self._probe.backward_begins()
        self._had_long_loss = self._had_long_loss or outside.current().was_cut
        if in_backward() or any(call.thread != get_ident() for call in calls):
            return
        self._derived.stop()  # the last one has raised
        for call in calls:
            call.begin_backward()
        if optimizer_probe.creates_graph():
            self._derived.follow(calls)
        if calls or len(self.evidence.journal) or not self._called:
            if self._accumulated and all(p.grad is None for p in self._probe.root.parameters() if p.is_leaf):
                self.evidence.num_dropped = len(self.evidence.journal)
            slots = [f"loss[{i}]" if len(roots) > 1 else "loss" for i in range(len(roots))]
            ledger, tape = self.evidence.journal.ledger, self.evidence.outside
            handles = [ledger.observe(root) for root in roots]
            is_bad = any(handle != UNOBSERVED and ledger.is_bad(handle) for handle in handles)
            is_finite = tape.is_behind and ledger.on_host and not is_bad and UNOBSERVED not in handles
            self._loss = [*zip(slots, handles, strict=True)], [] if is_finite else tape.states(roots), optimizer_probe.accumulates()
            self.evidence.journal.before_gradient = self._own_loss
            if (len(living) == 1 or not calls) and not (is_bad and not self.evidence.concerns(roots, self._probe.root)):
                self._own_loss()

    @guarded(*STOPS)
    def after_backward(self) -> None:
        """The script's own code may change gradients, or weights, before an optimizer steps."""
        if in_backward():
            return
        self._derived.stop()
        self.judge.foresee()
        if self.evidence.outside is outside.current():
            if self._steps.had_backward and optimizer_probe.accumulates() and not self._steps.optimizers.any:
                self.judge.dead.see([p for _, _, p in self._parameters.places])
            self.evidence.outside.look_again()
            self.evidence.outside.begin_between(before_step=True)

    def _gradient_arrived(self) -> None:
        if self._loss is not None:
            self._own_loss()

    def _own_loss(self) -> None:
        """The running backward belongs to this model."""
        loss, self._loss = self._loss, None
        self.evidence.journal.before_gradient = None
        self._judged = self._stale = False
        if loss is not None:
            evidence, (handles, roots, accumulates) = self.evidence, loss
            self._accumulated = self._accumulated or accumulates
            evidence.steps.had_backward = True
            for call in evidence.calls:
                call.had_backward = True
            if handles:  # none where it begins inside the graph, as a backward for weights' gradients alone does
                evidence.journal.add_handles(_LOSS, Phase.LOSS, evidence.journal.ledger, handles)
            evidence.roots += roots

    @guarded(*STOPS)
    def before_step(self, optimizer: Optimizer) -> None:
        self.evidence.outside.pause()
        self._parameters.follow(optimizer)
        if in_backward():  # an optimizer that steps inside backward: its own gradients are judged, the step goes on
            handles = self._see_gradients(ids_of(optimizer))
            if self.evidence.journal.any_bad():
                self.judge.alone(handles)
            return
        was_judged, self._judged = self._judged, True
        if was_judged and not self.left_out.asked:  # a second optimizer of the same step finds nothing new
            self.left_out.stepped(optimizer)
            return
        is_scaled = optimizer_probe.in_scaler()
        others = self._see_gradients(self._parameters.ids - ids_of(optimizer)) if is_scaled else None
        gradients = self._see_gradients(ids_of(optimizer) if is_scaled or was_judged else None)
        left_out = self.left_out.decide(optimizer, gradients, goes_on=was_judged)
        if not was_judged:
            self.judge.before_step(optimizer, gradients, others, left_out)
        if left_out or self.judge.leaves_out:
            self.left_out.withhold(optimizer, None if was_judged else self.judge.unused)
        if was_judged:
            return
        self.judge.between_steps()
        if self._states.may_spoil(optimizer, self.evidence.journal.ledger, self._gradients):
            self.judge.update_comes(optimizer, {id(p): entry.parameter(slot) for entry, slot, p in self._parameters.places})
        self.evidence.note()
        self.evidence.journal.ledger.look_again()
        for call in self.evidence.calls:
            call.gradients.clear()

    @guarded(*STOPS)
    def after_closure(self, optimizer: Optimizer) -> None:
        """A closure has run once more within its step, on each rank as often as it needs. A line search tries steps that are too long."""
        if not (self.ranks.together or optimizer.param_groups[0].get("line_search_fn")):
            self.evidence.outside.pause()
            self.judge.alone(self._see_gradients(None))

    @guarded(*STOPS)
    def after_step(self, optimizer: Optimizer) -> None:
        if in_backward():
            return
        self.left_out.give_back()
        places, handles = self._parameters.see_weights(ids_of(optimizer))
        if self.evidence.journal.on_host:  # elsewhere they are read with the next step's rows: no second sync
            states = self._states.see(optimizer, places, self.evidence.journal.ledger, self._gradients) if optimizer.state else []
            self.judge.after_step(optimizer, places, handles, states, self._states.ledger)

    @guarded(*STOPS)
    def skipped_step(self, optimizer: Optimizer) -> None:
        """All ranks skip the same steps, because gradients are reduced before GradScaler looks at them."""
        self.evidence.outside.pause()
        self.left_out.happened("GradScaler")
        self._judged = True
        self.judge.skipped(optimizer, self._see_gradients(ids_of(optimizer)))
        self.left_out.is_left_out(self.judge.unused)
        self.evidence.note()
        self.evidence.journal.ledger.look_again()

    @guarded(*STOPS)
    def end(self, closing: bool) -> None:
        """The step is over: judge it unless an optimizer's step already did."""
        self.evidence.outside.pause()
        journal, trained = self.evidence.journal, self._steps.had_backward
        was_first = not self._judged and journal.on_host and journal.any_bad()
        try:
            if not was_first:
                self.judge.between_steps()
            if not self._judged:
                self._judged = True
                gradients = self._see_gradients(None) if trained else ()
                self.judge.end_of_step(gradients, trained=trained, alone=closing or not trained)
                if trained and not (closing and self._steps.optimizers.any):  # else it is no step: no optimizer has stepped
                    self.evidence.note()
            if was_first:
                self.judge.between_steps()
        finally:
            if self._parameters.are_gathered or not self._steps.optimizers.any:
                self.evidence.journal.weights.recheck()
            self.round()

    @guarded(*STOPS)
    def give_up(self) -> None:
        if self.pending and not in_backward():
            self.judge.alone()
        self._let_go()

    @guarded(*STOPS)
    def round(self) -> None:
        """The step is over; its calls are kept until the next one begins, for a further backward through them."""
        self.evidence.forget_rows()
        self._loss = self.evidence.journal.before_gradient = None
        self._judged = self._accumulated = False
        self._gradients = []
        self._stale = True
        self._let_go()

    def _see_gradients(self, only: set[int] | None) -> list[int]:
        self._gradients = self._parameters.see_gradients(only) if self._options.gradients else []
        return self._gradients
