"""Records what runs outside the watched models' calls: the loss, code between models or between parts of one, an agent's actions.

No module hook sees these few operations, and their graph is gone once backward has run. So they are recorded one by one as they run, on
one tape per thread that all models share. Their backward is observed by hooks on their autograd nodes, which are freed with the graph.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.overrides import _push_mode as push_function_mode
from torch.utils._python_dispatch import TorchDispatchMode, _push_mode

from numscope.probe import optimizer as optimizer_probe
from numscope.probe.calls import in_backward
from numscope.probe.dynamo import in_compiled
from numscope.probe.nodes import node_of
from numscope.probe.optimizer import guarded
from numscope.records.finding import Culprit
from numscope.records.site import Phase
from numscope.replay import fork
from numscope.replay.derivatives import Derivatives
from numscope.replay.log import Log, Note
from numscope.replay.modes import DISPATCH_MODES, FUNCTION_MODES, Remover, taken_off
from numscope.replay.named import Named
from numscope.replay.noting import FunctionProbe, NotingProbe
from numscope.replay.op import OpProbe
from numscope.replay.operation import full_probe, keepers
from numscope.replay.stretches import Beginnings, Stretches
from numscope.replay.tape import OpTape, State
from numscope.summary import native
from numscope.summary.ledger import Ledger

log = logging.getLogger("numscope")

MODEL_OUTPUT = "input from the model:"  # prefix of the names of operands that a model made
GRADIENT = "gradient["  # of those that ``torch.autograd.grad`` made
_LIMIT = 4096  # records on the tape; older ones are dropped
MOST_IN_A_ROW = 4096  # operations; what a longer stretch does further runs bare
_CAPACITY = 4096  # rows: 512 KiB a thread
_MAX_ROWS, _MANY_ROWS = 1 << 16, 3500  # from the latter here on the tape is reset although no step has ended
_MAX_LEFTOVER = 8
_RECENT = 64  # records that are kept in that case
_MOST_WAITS = 8  # steps of others for which the tape is kept for a user whose step doesn't end: a model that was made, called and left

keeps_frames = False  # for a prompt in them: functions' variables then live as long as the tape


class Outside:
    """The tape of one thread.

    It is kept as long as a step may need it: until a call begins after the steps of all users have ended, or all users are released. What
    runs between two steps (data, copies of the weights, weights that the script writes) belongs to the next one.

    *Cost:* about 10 µs an operation, plus one pass over each operand and result not seen before; 5 µs a function from a step's 9th stretch
    on; 1 µs where a stretch is so long that it runs on bare. Records are made of what was noted once something is bad.
    """

    closed = False  # it serves its thread to the end

    def __init__(self) -> None:
        self._ledger = Ledger(capacity=_CAPACITY)
        self._tape = OpTape(limit=_LIMIT)
        self._log = Log()  # of what is not on the tape yet
        self._derivatives = Derivatives(self._log.append, self._write_up, self.failed)
        self._users: dict[Hashable, weakref.WeakMethod[Callable[[Exception], None]]] = {}
        self._done: set[Hashable] = set()  # users whose step has ended
        self._passed: set[Hashable] = set()  # users of which a step has ended since the tape began
        self._waits: Counter[Hashable] = Counter()  # steps of others that have ended since a user's last call
        self._inside: set[Hashable] = set()  # users whose outermost call is at work: one watched model may call another
        self._named = Named()  # what the models made
        self._mode: OpProbe | FunctionProbe | None = None
        self._remover: Remover | None = None  # of a probe whose stretch became too long
        self._leftover: list[TorchDispatchMode | TorchFunctionMode] = []  # perhaps still on torch's stacks
        self._beginnings = Beginnings()
        self._has_served = False  # anybody
        self._began = 0  # autograd's sequence number
        self._past = self._since = 0  # first record since the steps of all users have ended, and since the last backward
        self._is_between = False  # two steps, or a backward and an update
        self._between_steps, self._before_step = Stretches(), Stretches()
        self._stretches = self._between_steps  # of the kind of the one at work
        self._num_looked = 0  # rows that `has_news` has looked at
        self._resumes = False  # it was watching when the outermost call at work began
        self._was_watching = False  # when the last backward began
        self._backward = self._resumes_after = False  # one is at work outside the calls, after which it is to watch
        self._resumes_own = False  # it was watching when torch began to clip gradients
        self._backward_ended: Note = (self._mark,)  # a place in the log
        self._cut_at: int | None = None  # autograd's sequence number where the stretch at work became too long
        self.is_cut = self.was_cut = False  # a stretch was, since the tape began; the one at whose end backward was called last

    @property
    def watching(self) -> bool:
        return self._mode is not None

    @property
    def tape(self) -> OpTape:
        self._write_up()
        return self._tape

    def counted(self) -> list[int]:
        """One number, known once what is logged is recorded, if ever: of all records that were on the tape up to here."""
        count = [self._tape.num_records]
        if len(self._log):  # where the notes before this one are forgotten, it is too, and the number is right
            self._log.append((lambda: count.__setitem__(0, self._tape.num_records),))
        return count

    @property
    def ledger(self) -> Ledger:
        """Rows of the tape's tensors."""
        self._write_up()
        return self._ledger

    @property
    def backward(self) -> list[State]:
        """Gradients that came out of the tape's nodes, in order."""
        return self._derivatives.gradients

    @property
    def is_behind(self) -> bool:
        """Whether some records are still to be created."""
        return len(self._log) > 0

    def has_news(self) -> bool:
        """Whether a tensor on the tape is known to be bad that was not when this was last asked."""
        if self._log.has_bad:
            self._write_up()
        begin, self._num_looked = self._num_looked, len(self._ledger)
        return self._ledger.has_bad(begin if begin <= self._num_looked else 0)

    def _write_up(self) -> None:
        if len(self._log):
            with self.asleep():
                while len(self._log):
                    put, *given = self._log.popleft()
                    put(*given)

    def call_begins(self, user: Hashable, failed: Callable[[Exception], None], *, is_step: bool = False) -> None:
        """An outermost call begins; what it does is recorded by a replay, not here.

        Args:
            user: its step may read the tape until ``release``.
            failed: is called with an internal error of the tool; it must not raise.
            is_step: it is no call: a step without one begins, perhaps with its backward.
        """
        self._pop_leftover()
        if not is_step:
            self._backward = self._resumes_after = False  # one that raised has no end
        if not self._inside:
            self._resumes = self.watching
        begins = user in self._done or user not in self._users
        ended = bool(self._done) and self._done.issuperset(self._users)
        overlap = begins and self._has_served and self._passed.issuperset(self._users)  # evaluation; models whose steps overlap for ever
        if user not in self._users:
            self._users[user] = weakref.WeakMethod(failed)
        self._has_served = True
        self.pause()
        if user not in self._users:  # an error of the tool has ended its watch
            return
        if overlap:
            self._log.keep(_RECENT)
        if ended or (overlap and len(self._ledger) + self._log.num_rows > _MANY_ROWS):
            self._users = {other: told for other, told in self._users.items() if other not in self._done or other == user}
            self._done.clear()
            self._begin_step() if ended else self.reset()
        self._done.discard(user)
        self._waits.pop(user, None)
        self._inside.add(user)

    def call_ends(self, user: Hashable, named: Iterable[tuple[str, Tensor]], watch: bool) -> None:
        """An outermost call has returned these tensors, or failed; ``watch``: a loss may follow."""
        self._inside.discard(user)
        for slot, tensor in named:
            self._named.add(tensor, f"{MODEL_OUTPUT} {slot}")
        if watch or self._resumes:
            self.begin()

    def begin_between(self, phase: Phase = Phase.SCRIPT, *, before_step: bool = False) -> None:
        """A step has ended, or a backward: record up to the next call, or up to the optimizer's step, unless that were too much."""
        if self.watching:
            return
        self._stretches = self._before_step if before_step else self._between_steps
        if self._stretches.is_left_out():
            self._stretches.num_left_out += 1
        else:
            self._stretches.num_left_out = 0
            self.begin(phase, counts=False)
            self._is_between = self.watching

    def begin_anew(self, phase: Phase) -> None:
        """The script begins, or has made an optimizer: record what comes before its first call, however much came before."""
        self.pause()
        self.begin(phase, counts=False)

    def begin(self, phase: Phase = Phase.LOSS, *, counts: bool = True) -> None:
        """Record from here on, unless a dispatch mode of the script's is active: modes end in the reverse order of their start."""
        self._pop_leftover()
        if self._backward:  # hooks watch that, and custom functions have a probe of their own
            self._resumes_after = True
        elif self._mode is None and not (
            self._inside or torch._C._len_torch_dispatch_stack() or optimizer_probe.is_paused() or in_compiled()
        ):
            if len(self._ledger) + self._log.num_rows > _MAX_ROWS:
                self.reset()
            self._beginnings.num += counts
            probe: OpProbe | FunctionProbe
            if keeps_frames or keepers:
                probe = full_probe(self._tape, self._ledger, phase=phase, names=self._named, keeps_frames=keeps_frames)
            else:
                most, end = MOST_IN_A_ROW, self._cut
                probe = NotingProbe(
                    self._tape, self._ledger, self._log, phase=phase, names=self._named, flush=self._write_up, most=most, end=end
                )
                if native.knows_torch and self._beginnings.are_many and not torch._C._len_torch_function_stack():  # as above
                    probe = FunctionProbe(probe, most=most, end=end)
            self._mode = probe
            push_function_mode(probe) if isinstance(probe, FunctionProbe) else _push_mode(probe)  # type: ignore[no-untyped-call]
            self._cut_at = None
            self._began = torch._C._autograd._get_sequence_nr()

    def _cut(self) -> None:
        """The stretch at work is too long: it runs on bare."""
        if self._mode is not None:
            self._cut_at = torch._C._autograd._get_sequence_nr()
            self.is_cut = True
            self._mode.is_on = False
            if isinstance(self._mode, OpProbe) and not torch._C._len_torch_function_stack():
                self._remover = Remover(self._mode)
                push_function_mode(self._remover)  # type: ignore[no-untyped-call]

    def pause(self) -> None:
        """Stop watching, until ``begin``."""
        mode = self.take_off()
        if mode is not None:
            self._derivatives.made(self._began, self._cut_at or torch._C._autograd._get_sequence_nr())
            if self._is_between:
                self._stretches.num_records, self._is_between = getattr(mode, "num", 0), False
            if mode.error is not None:
                self.failed(mode.error)

    def take_off(self) -> OpProbe | FunctionProbe | None:
        """Remove our mode from torch's stacks of modes. Returns: the mode that was on."""
        self._derivatives.take_off()
        mode = self._mode
        if mode is not None:
            mode.is_on = False
            # before they are forgotten here: an interrupt may come at any line
            self._leftover += [one for one in (self._remover, mode if self._remover is None else self._remover.probe) if one is not None]
            self._mode = self._remover = None
        self._pop_leftover()
        return mode

    @contextlib.contextmanager
    def asleep(self) -> Iterator[None]:
        """Don't record what the tool itself does meanwhile."""
        mode = self._mode
        was_on = mode is not None and mode.is_on  # not within another such stretch
        try:
            if mode is not None:
                mode.is_on = False
            yield
        finally:
            if mode is not None and self._mode is mode:
                mode.is_on = was_on and self._cut_at is None

    def step_ends(self, user: Hashable) -> None:
        """A user's step is over: it needs the tape only for a further backward before its next call."""
        if user in self._users and user not in self._done:
            self._waits.update(self._users.keys() - self._done - {user})
            self._done |= {user, *(other for other, steps in self._waits.items() if steps > _MOST_WAITS and other in self._users)}
            self._passed.add(user)
            if self._done.issuperset(self._users):
                if self._log.has_bad or (self._log.num_noted and self._ledger.has_bad()):  # what has made that may be kept
                    self._write_up()
                # Where only the next backward shows that a step has ended, what came before that belongs to the new one.
                self._drop_notes()
                if len(self._ledger) > _MANY_ROWS and not len(self._log):
                    self.reset()
                self._past = self._since if self._backward else self._tape.num_records
                self._derivatives.step_ends()
                self.look_again()

    def _mark(self) -> None:
        self._since = self._tape.num_records

    def _drop_notes(self) -> None:
        """Forget the notes of a step that has ended."""
        if not self._backward:
            self._log.clear()
        elif self._log.drop_to(self._backward_ended):
            self._mark()

    def look_again(self) -> None:
        """Code that nobody records has run, and may have written any memory."""
        self._now_and_then((self._tape.forget_states,))
        self._ledger.look_again()
        self._log.look_again()

    def _now_and_then(self, note: Note) -> None:
        """Do something now, and once more when records are made of the operations that were noted so far."""
        note[0]()
        if self._log.num_noted:
            self._log.append(note)

    def _begin_step(self) -> None:
        """Forget what was recorded before the last step's end."""
        if self._ledger.on_host:
            self._tape.keep(self._past, self._ledger)
        self._tape.begin_step(self._past)
        self._derivatives.begin_step()
        self._passed.clear()
        self._beginnings.step_begins()
        self._past = 0

    def release(self, user: Hashable) -> None:
        """A user needs the tape no longer. Its content is kept for the others."""
        self._inside.discard(user)
        self._done.discard(user)
        self._waits.pop(user, None)
        self._users.pop(user, None)
        if not self._users:
            self._beginnings.nobody_is_there()

    def reset(self) -> None:
        """Forget what was seen."""
        self._log.clear()
        self._tape = self._tape.successor(self._ledger if self._users and self._ledger.on_host else None)
        if len(self._ledger) > _CAPACITY:
            self._ledger = Ledger(capacity=_CAPACITY)  # one long step must not cost memory for ever
        self._ledger.reset()
        self._derivatives.reset()
        self._passed.clear()
        self._beginnings.step_begins()
        self._named.clear()
        self._past = self._since = self._tape.first
        self._num_looked = 0
        self.is_cut = False
        if self._mode is not None:
            self._mode.use(self._tape, self._ledger)

    def failed(self, error: Exception) -> None:
        """An error of the tool: turn off the watches whose steps this serves."""
        for method in tuple(self._users.values()):
            if (failed := method()) is not None:
                failed(error)

    def _pop_leftover(self) -> None:
        """Take modes off torch's stacks. A stack may be away for the time: function modes' within ``Tensor.backward``, itself such a
        function, and dispatch modes' where the garbage collector ends a watch while they are disabled. When a compiled function returns,
        torch sets back whether there are any to what was so at its call: what was on at its call stays till then, switched off.
        """
        if self._leftover and in_compiled():
            return
        for mode in tuple(self._leftover):
            if taken_off(mode, *(FUNCTION_MODES if isinstance(mode, TorchFunctionMode) else DISPATCH_MODES)):
                self._leftover.remove(mode)
                # A cycle, with the tape in it. Until here torch calls it, in C: Python's would be a frame that a warning names.
                vars(mode).pop("__torch_function__", None)
        del self._leftover[:-_MAX_LEFTOVER]

    # ---- backward

    @guarded()
    def before_backward(self, roots: Sequence[Tensor]) -> None:
        """``backward`` is about to run from these tensors."""
        if in_backward():
            self.pause()
            return
        self._was_watching, self.was_cut = self.watching, self.watching and self._cut_at is not None
        self.pause()
        self._backward = True
        outputs = {node for t in self._named.living(MODEL_OUTPUT) if (node := node_of(t)) is not None}
        probe = full_probe(self._tape, self._ledger, phase=Phase.BACKWARD, keeps_frames=keeps_frames)
        bad = [seed for seed in optimizer_probe.seeds() if self._ledger.is_bad(self._ledger.observe(seed)) is not False]
        made = [i for state in (self.states(bad) if bad else ()) for i in state.writers if i in self._tape]
        self._derivatives.begin(roots, outputs, probe, optimizer_probe.creates_graph(), [self._tape[i] for i in made], self.is_behind)

    @guarded()
    def after_gradients(self, gradients: Sequence[Tensor]) -> None:
        """A backward gave gradients that the script goes on with: a penalty's, those of a step within a step, of coordinates."""
        if self._was_watching and not in_backward():
            self._backward = False
            for i, gradient in enumerate(gradients):
                self._named.add(gradient, f"{GRADIENT}{i}]")
            self.begin() if any(g.requires_grad for g in gradients) else self.begin_between(Phase.LOSS)
            if self._mode is not None:
                self._mode.follow(gradients, self._derivatives.last)

    @guarded()
    def after_backward(self) -> None:
        """``backward``, or ``autograd.grad``, has returned."""
        if not in_backward():
            self._derivatives.end()
            self._now_and_then(self._backward_ended)
            resumes, self._backward, self._resumes_after = self._resumes_after, False, False
            if resumes:
                self.begin_between(before_step=True)

    @guarded()
    def own_begins(self) -> None:
        """Torch is about to clip or to unscale gradients."""
        self._resumes_own = self.watching
        self.pause()

    @guarded()
    def own_ends(self) -> None:
        if self._resumes_own:
            self._resumes_own = False
            self.look_again()
            self.begin_between(before_step=True)

    def came_bad(self, tensors: Sequence[Tensor], culprit: Culprit) -> None:
        """These tensors came bad out of a call whose culprit is known: whatever they make bad is that culprit's."""
        with self.asleep():
            OpProbe(self.tape, self._ledger).made(tensors, culprit)

    def states(self, tensors: Sequence[Tensor]) -> list[State]:
        """The states of those tensors that were made outside."""
        return [state for t in tensors if (state := self.tape.read_state_of(t, self._ledger)) is not None]


_threads = threading.local()


def _leave_parent() -> None:
    """A forked child, such as a data loader's worker, is not watched."""
    found: Outside | None = getattr(_threads, "outside", None)
    if found is not None and not fork.is_forking:
        found.take_off()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_parent)


def current() -> Outside:
    """The tape of this thread."""
    found: Outside | None = getattr(_threads, "outside", None)
    if found is None:
        found = _threads.outside = Outside()
    return found
