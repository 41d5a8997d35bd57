"""A run that goes on from a checkpoint goes on with all of its state."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from numscope.alerts.checks import loading
from numscope.alerts.checks.check import OCCASIONS, Check, ScriptLine, Subject
from numscope.distributed.agree import num_ranks, spread
from numscope.parity.resumed import find_origin, losses
from numscope.parity.snapshot import LoopObjects, one_checksum, random_states, states_and_counts, weights_of
from numscope.parity.training_state import FOLDER, KEPT, Moment, TrainingState, name_of, read_states
from numscope.probe.inputs import Inputs
from numscope.probe.living import Living
from numscope.probe.loop_calls import LoopCall
from numscope.probe.naming import class_name
from numscope.probe.optimizers import ids_of
from numscope.probe.zero import is_spread, num_here, optimizers_of
from numscope.records.faults import suppress
from numscope.records.heap import instances_of
from numscope.records.words import few

BATCHES_BEFORE, BATCHES_AFTER = 64, 8  # a save, whose checksums are kept
_OUTSIDE = frozenset({"python", "numpy"})  # generators from which nothing but the script draws, in steps and between them
WALKS, WALK_EVERY = 4, 16  # saves at which the loop's objects are looked for: the first ones, then one of so many
PATIENCE = 8  # steps for the first batch's checksum to come from a device

_checks: Living[Resuming] = Living()  # of all models
_processes: dict[int, str] = {}  # by id; of those that this one was forked from too


def process_name() -> str:
    """Tells the processes of a run apart."""
    return _processes.setdefault(os.getpid(), f"{socket.gethostname()}-{os.getpid()}-{time.time_ns():x}")


class Resuming(Check):
    """Keeps the training's state in the run's folder at each save of a checkpoint and at the end, and compares a run that begins with the
    weights of such a state with it, at its first step. Where nothing was kept: says of a checkpoint whose tensors were loaded that the
    state of an optimizer, a scheduler or a loss scaler in it was not.

    *Cost:* with a folder, a checksum of 4,096 elements of each input a step, which other checks share. At a save one pass over weights,
    optimizers' states and copies of the model; at the first saves, and rarely later, a walk over all objects. At the first step of a run
    whose folder has states, the same once more.
    """

    name = "state not loaded"
    cheap = OCCASIONS

    def __init__(self, subject: Subject, run: str = "") -> None:
        super().__init__(subject)
        self._folder, self._from = subject.log_dir, os.path.abspath(run) if run else subject.log_dir
        self._must = bool(run)
        self._first: Moment | None = None
        self._drawn: list[str] | None = None  # torch's generators from which the first step has drawn
        self._now: TrainingState | None = None  # of a run that may go on from a state, until its first step is over
        self._states: list[TrainingState] = []
        self._is_read = False  # the optimizers' states are in ``_now``
        self._offset = 0  # steps that earlier processes have made
        self._loop: LoopObjects | None = None
        self._num_kept = 0
        self._open: tuple[TrainingState, str, LoopObjects] | None = None  # the last one kept, which batches are still to follow
        self._key: tuple[Any, ...] = ()  # of the tensors that it is of
        self._is_saved_elsewhere = False  # by another thread, since the last call
        self._files: deque[str] = deque()
        self._batches: deque[tuple[int, str]] = deque(maxlen=BATCHES_BEFORE)
        self._num_seen = 0
        self._next = Inputs()  # since the last state was kept, which may have been in the middle of a step
        self._own = ""  # checksum of the weights at the first call
        self._origin: TrainingState | None = None  # that this run goes on from
        self._not_found: TrainingState | None = None  # as this run begins, where it goes on from no state
        _checks.add(self)
        self._is_loaded = False  # from a checkpoint that has an optimizer's or a scheduler's state too
        self._unloaded: dict[str, tuple[str, str, ScriptLine]] = {}

    @property
    def is_done(self) -> bool:
        """Never: states are kept when it has spoken too."""
        return False

    # ---- occasions

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if not torch.is_grad_enabled() or torch.compiler.is_compiling() or not (self._folder or self._from):
            return
        if self._first is None:
            self._first = Moment(random_states())
            self._begin()
        if self._is_saved_elsewhere:
            self._is_saved_elsewhere = False
            self._keep(is_late=True)
        if self._open is not None:
            self._open[0].following = self._open[0].following or self._open[2].moment(with_scale=False)
            self._next.see(self.subject.num, self.subject.step, args, kwargs)
        self.subject.inputs.see(self.subject.num, self.subject.step, args, kwargs)

    def before_step(self, optimizer: Optimizer) -> None:
        if self._now is not None and not self._is_read:
            self._is_read = True
            self._add_optimizers(self._now)
        if self.subject.num == 0:
            self._find_unloaded(optimizer)

    def called(self, call: LoopCall) -> None:
        if call.kind != "save" or self._folder is None:
            return
        trained = [p for p in self.subject.parameters().values() if p.requires_grad]
        if 2 * call.args[0] >= sum(num_here(p) for p in trained) > 0:
            if self.subject.steps.thread in (None, threading.get_ident()):
                self._keep()
            else:
                self._is_saved_elsewhere = True  # the training goes on meanwhile

    def end(self, closing: bool) -> None:
        self._take_batches()
        if self._first is not None and self._drawn is None:
            self._drawn = [name for name in _drawn(self._first, random_states()) if name not in _OUTSIDE]
        if self._now is not None and (self._now.batches or self.subject.num >= PATIENCE or closing):
            self._compare(self._now)
            self._now = None
            self._states = [] if self._not_found is None else self._states
        if self._not_found is not None:
            self._look_beside(self._not_found)
        if self._now is None:
            for text, advice, line in self._unloaded.values():
                self.say(text, advice, line=line, again=True, asks=True)
            self._unloaded = {}
        if self._first is not None and self.subject.num == 0 and spread() and self.subject.rank and self._folder is not None:
            self._write(self._state())  # its generators, should rank 0 alone save

    def last(self) -> None:
        if self._folder is not None and self._first is not None and self.subject.steps.num_steps:
            self._keep()

    def close(self) -> None:
        if self._open is not None:
            state, name, _ = self._open
            self._open = None
            self._write(state, name)

    # ---- what a run goes on from

    def _begin(self) -> None:
        """The first call of a training begins."""
        if self._from is not None:
            self._states = [one for one in read_states(self._from, {0, self.subject.rank}) if one.process != process_name()]
        if self._must and not any(one.weights for one in self._states):
            self.say(f"{self._from} holds no training state, expected those of a run that saved.", "Name a run's log_dir.")
        if any(one.weights for one in self._states):
            self._now = self._state()
            self._add_weights(self._now)
            if any(map(is_spread, self.subject.parameters().values())):  # nobody hears of a step before it
                self._is_read = True
                self._add_optimizers(self._now)
            self._own = one_checksum(self.subject.model.parameters())
            loop = LoopObjects(self.subject.model, self._optimizers())
            self._now.moment, self._now.averages = loop.moment(), loop.averages()

    def _compare(self, now: TrainingState) -> None:
        assert self._from is not None
        origin = find_origin(now, self._states)
        if any(one.world > 1 and (origin is None or one.world != now.world) for one in self._states):
            self._states = read_states(self._from)  # weights may have been spread over other ranks
            origin = find_origin(now, self._states) or origin
        if origin is None:
            self._not_found = now if now.trained else None
            known = [one for one in self._states if one.model == now.model and one.weights]
            if self._must or (self._is_loaded and known and not any(one.is_late for one in known)):
                text = f"None of the {len(self._states)} states of {self._from} has the weights that this run begins with."
                of_copy = [one.step for one in known if now.trained and self._own in {value for _, value in one.averages}]
                if of_copy:
                    text = f"The run begins with the averaged copy's weights of step {of_copy[-1]}."
                loaded = "The weights that were loaded are not those that were trained: look for a copy's, or a cast at the save."
                self.say(text, loaded if self._is_loaded else "Load the checkpoint before the first step.", asks=not self._must)
            return
        self._origin, self._offset = origin.state, origin.state.step - now.step
        self._batches = deque([(step + self._offset, value) for step, value in self._batches], BATCHES_BEFORE)
        self._unloaded = {}
        found = losses(origin, now)
        if found:
            text = f"Resumed at step {origin.state.step}: {'; '.join(one.text for one in found)}."
            advice = " ".join([*dict.fromkeys(one.advice for one in found if one.advice)][:2])
            names = [name for one in found for name in one.parameters]
            about = {"resumed at": origin.state.step, "lost": [one.text for one in found]}
            asks = all(one.asks for one in found)
            self.say(text, advice, parameters=list(dict.fromkeys(names)), evidence=about, asks=asks)

    def _look_beside(self, now: TrainingState) -> None:
        """Another model of this process goes on from a state that has this one's weights too."""
        sizes = {name: one.numel for name, one in now.weights.items()}
        for origin in [one._origin for one in _checks if one._origin is not None and one._from == self._from]:
            at = [one for one in self._states if (one.process, one.step, one.model) == (origin.process, origin.step, now.model)]
            if any({name: bits.numel for name, bits in one.weights.items()} == sizes for one in at):
                own = f"{now.model} ({few(now.trained, 3)})"
                text = f"{origin.model} goes on from step {origin.step}, and no weight of {own} is what was saved then."
                self.say(text, "Save and load the state_dict of each model that is trained.", asks=True)
                self._not_found = None
                break  # once, however many models go on from it
        if self._not_found is not None and self.subject.num >= PATIENCE:
            self._not_found = None
        self._states = [] if self._not_found is None else self._states

    def _find_unloaded(self, optimizer: Optimizer) -> None:
        for (kind, loaded), (key, scale, line) in list(loading.saved.items()):
            if not self._has(loaded()):
                continue
            self._is_loaded = True
            schedulers = [each for each in instances_of(LRScheduler) if getattr(each, "optimizer", None) is optimizer]
            scalers = [each for each in instances_of(GradScaler) if each.is_enabled()] if kind == "scaler" else []
            begins = {
                "optimizer": not optimizer.state,
                "scheduler": any(each.last_epoch == 0 for each in schedulers),
                "scaler": bool(scalers) and all(each._init_scale != scale for each in scalers),  # which a load sets: no sync
            }
            if begins[kind]:
                del loading.saved[kind, loaded]
                text = f"The checkpoint whose tensors were loaded{line.at()} has {key!r}, and the {kind} of this run begins anew."
                self._unloaded[kind] = text, f"Call {kind}.load_state_dict(checkpoint[{key!r}]).", line

    def _has(self, module: nn.Module | None) -> bool:
        return module is not None and (module in self.subject.probe.names or self.subject.model in module.modules())

    # ---- what is kept

    def _keep(self, is_late: bool = False) -> None:
        """The state as it is now. ``is_late``: another thread has saved it before."""
        optimizers = self._optimizers()
        states = [t for o in optimizers for kept in o.state.values() if isinstance(kept, dict) for t in kept.values()]
        tensors = [t for t in (*self.subject.parameters().values(), *states) if isinstance(t, Tensor) and not t.is_inference()]
        key = (self.subject.steps.num_steps, *((id(t), t._version) for t in tensors))
        if self._open is not None and self._open[0].following is None and key == self._key:
            state, name, loop = self._open  # another file of the same checkpoint
            state.moment = loop.moment()
            self._write(state, name)
            return
        self.close()
        self._key = key
        state = self._state()
        state.is_late = is_late
        if self._loop is None or self._num_kept < WALKS or self._num_kept % WALK_EVERY == 0:
            self._loop = LoopObjects(self.subject.model, optimizers)
        loop, self._num_kept = self._loop, self._num_kept + 1
        self._take_batches()
        self._add_weights(state)
        self._add_optimizers(state)
        state.moment, state.averages, state.places = loop.moment(), loop.averages(), loop.places()
        state.draws = [] if is_late else [*(self._drawn or ()), *_OUTSIDE.intersection(_drawn(state.first, state.moment.random))]
        state.batches = list(self._batches)
        self._open, self._next = (state, self._write(state), loop), Inputs()

    def _state(self) -> TrainingState:
        steps = self.subject.steps
        has_stepped = steps.has_stepped or (steps.had_backward and not steps.optimizers.any)  # by an optimizer that nobody hears
        step = steps.number + has_stepped + self._offset
        own = class_name(self.subject.model), self.subject.rank, num_ranks() if spread() else 1
        return TrainingState(*own, process_name(), step, first=self._first or Moment())

    def _add_weights(self, state: TrainingState) -> None:
        state.weights = weights_of(self.subject.probe.names)
        state.trained = [name for name, one in self.subject.parameters().items() if one.requires_grad]

    def _add_optimizers(self, state: TrainingState) -> None:
        optimizers = self._optimizers()
        state.optimizers = [type(one).__name__ for one in optimizers]
        state.states, state.counts = states_and_counts(self.subject.parameters(), optimizers)

    def _optimizers(self) -> list[Optimizer]:
        """Those of the model, without a library's wrappers around them, which have the same parameters."""
        self.subject.optimizers.search()
        found: dict[frozenset[int], Optimizer] = {}
        for one in (*self.subject.optimizers.living, *optimizers_of(self.subject.parameters().values())):
            if (key := frozenset(ids_of(one))) not in found or type(one).__module__.startswith("torch."):
                found[key] = one
        return list(found.values())

    def _take_batches(self) -> None:
        inputs = self.subject.inputs
        inputs.settle()
        new = [(batch.step + self._offset, f"{batch.sum:x}") for batch in inputs.since(self._num_seen)]
        self._num_seen = inputs.num_batches
        self._batches.extend(new)
        if self._now is not None and not self._now.batches:
            self._now.batches = new
        if self._open is not None:
            state, name, _ = self._open
            self._next.settle()
            num, state.next_batches = len(state.next_batches), [f"{batch.sum:x}" for batch in self._next.batches]
            if len(state.next_batches) >= BATCHES_AFTER:
                self.close()
            elif state.next_batches and not num:
                self._write(state, name)

    def _write(self, state: TrainingState, name: str = "") -> str:
        assert self._folder is not None
        if not name:
            name = name_of(time.time_ns(), state.rank, state.step)
            self._files.append(name)
            if len(self._files) > KEPT:
                with suppress(OSError):
                    os.unlink(os.path.join(self._folder, FOLDER, self._files.popleft()))
        with suppress(OSError):  # a full disk: the run's other files say so
            state.write(self._folder, name)
        return name


def _drawn(first: Moment, now: Mapping[str, tuple[str, int]]) -> list[str]:
    return [name for name, state in now.items() if first.random.get(name) != state]
