"""The current step's evidence, kept for the judge."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from numscope.config.options import WatchOptions
from numscope.detect.buffers import Buffers
from numscope.detect.history import RunHistory
from numscope.detect.journal import NUM_FRAMES, Journal
from numscope.distributed import agree
from numscope.distributed.agree import Ranks
from numscope.probe.living import Beside
from numscope.probe.module import ModuleProbe
from numscope.probe.naming import class_name, named_state
from numscope.probe.nodes import holds, trains
from numscope.probe.step import Step
from numscope.records.finding import Culprit, Finding, Kind, Numbers
from numscope.records.site import Phase, Site
from numscope.replay import outside
from numscope.replay.call import NOT_WANTED, replay_call
from numscope.replay.capture import BufferCopies, Call
from numscope.replay.outside import Outside
from numscope.replay.stages import CHANGED, FINITE, FORWARD_FINITE, REPRODUCED, Replay
from numscope.replay.tape import Rewritten, State

REPLAY_BYTES = 256 << 20  # arguments and output gradients kept for a replay; beyond it a step's oldest calls are forgotten
_REDONE = "The script has written {} since: this is the call done again as they are now, and what depends on them has no numbers below."
BadLeaf = tuple[int, str]  # index of event, slot


@dataclass(slots=True, eq=False)
class Evidence:
    """All that is kept of the step at work, for the judge.

    Args:
        outside: the tape of the thread that calls the model.
        roots: what backward was called on, as the tape saw it made.
        foreseen: what a diagnosis before weights could be written has shown.
        num_dropped: how many events came before a backward that found no gradients: ``zero_grad`` dropped what they led to.
        past: the tape's gradients at the step's begin, and how many they were.
        history: what is kept of earlier steps, for a run's folder.
    """

    model: str
    probe: ModuleProbe
    names: Mapping[nn.Module, str]
    journal: Journal
    buffers: BufferCopies
    saved: Buffers
    frames: int
    replays: bool
    rank: int
    steps: Step
    outside: Outside
    calls: list[Call] = field(default_factory=list)
    roots: list[State] = field(default_factory=list)
    num_dropped: int = 0
    foreseen: Replay | None = None
    past: tuple[list[State], int] = field(default_factory=lambda: ([], 0))
    history: RunHistory | None = None
    born: tuple[Outside | None, list[int]] = (None, [0])  # the tape of the thread where the watch began, and its first record since
    trials: int = 3  # findings against which remedies may yet be tried
    _rates: Beside[Optimizer, list[Any]] = field(default_factory=Beside)  # of the last update, by group

    @classmethod
    def of(cls, probe: ModuleProbe, options: WatchOptions, steps: Step) -> Evidence:
        """Of the model that a probe is on."""
        buffers, journal = BufferCopies(probe.names), Journal()
        found = class_name(probe.root), probe, probe.names, journal, buffers, Buffers(probe, journal, buffers)
        tape = outside.current()
        return cls(*found, options.frames or NUM_FRAMES, options.replay, agree.rank(), steps, tape, born=(tape, tape.counted()))

    def finding(self, index: int, slot: str, replay: str, culprit: Culprit | None = None, **more: Any) -> Finding:
        """The finding of one tensor in the journal; ``more``: fields of ``Finding`` that it has otherwise."""
        site, numbers, frames = self.journal.site(index, slot), self.journal.numbers(index, slot), self.journal.frames(index, self.frames)
        return replace(self.found(site, numbers, culprit, replay), **{"batch": self.journal.event(index).call, "frames": frames, **more})

    def found(self, site: Site, numbers: Numbers | None, culprit: Culprit | None, replay: str = REPRODUCED) -> Finding:
        """A finding of this step, without frames."""
        step, batch, kind = self.step, self.journal.call, kind_of(numbers)
        return Finding(step, batch, site.phase, self.rank, site, kind, False, culprit, replay, model=self.model, numbers=numbers)

    @property
    def first_record(self) -> int:
        """Of the tape, since the model is watched; a thread that trains it has a tape of its own."""
        tape, count = self.born
        return count[0] if tape is self.outside else 0

    @property
    def not_kept(self) -> str:
        """Why a call can't be done again that is not among ``calls``."""
        if self.probe.in_function:
            return f"not reproduced: {self.model} was called inside a compiled function. Compile the model itself, torch.compile(model)"
        return "not reproduced: the call's arguments were not kept"

    def replay(self, call: Call, *, backward: bool, ranks: Ranks | None = None, forks: bool = False, saved: Collection[str] = ()) -> Replay:
        """``replay_call``, unless the user wants none; ``saved``: names of further buffers that the call may have made bad."""
        if not self.replays:
            return Replay(None, NOT_WANTED)
        if not call.is_kept:
            return Replay(None, self.not_kept)
        if isinstance(call.replayed, Replay) and ranks is None:
            return call.replayed
        bad, suspects = self._gave_bad(call), {*self.saved.bad, *saved}
        call.rewritten = self.rewritten()
        done = replay_call(call, self.buffers, backward=backward, ranks=ranks, gave_bad=bad, forks=forks, saved=suspects)
        done.call = call
        return Replay(None, CHANGED) if call.rewritten is not None and done.status in (FINITE, FORWARD_FINITE) else done

    def rewritten(self) -> Rewritten | None:
        """The weights that were written since their rows were, as by a script that normalizes them before the optimizer's step."""
        known = self.journal.weights
        names = [f"{module}.{slot}".lstrip(".") for module, slot, p in named_state(self.names, buffers=False) if known.is_stale(p)]
        if not names:
            return None
        what = f"{', '.join(names[:2])}{f' and {len(names) - 2} more' if len(names) > 2 else ''}"
        return Rewritten(frozenset(names), _REDONE.format(what))

    def _gave_bad(self, call: Call) -> bool:
        for index, slot in self.journal.bad():
            event, numbers = self.journal.event(index), self.journal.numbers(index, slot)
            if event.call == call.index and event.phase is Phase.FORWARD and event.entry.name == call.name and slot.startswith("output"):
                if numbers is not None and (numbers.num_nan or numbers.num_pos_inf):  # -inf alone is how scores are masked
                    return True
        return False

    def concerns(self, roots: Sequence[Tensor], model: nn.Module) -> bool:
        """Whether backward from some tensors passes through the model, as far as can be told. *Cost:* a walk over the graph."""
        outputs = [ref() for call in self.calls if any(one() for one in call.graph) for _, ref in call.outputs]
        if trains(roots, model) or not self.steps.optimizers.any or any(t is None for t in outputs):
            return True
        return holds(roots, [t.grad_fn for t in outputs if t.grad_fn is not None])

    @property
    def step(self) -> int:
        """Number of the step at work."""
        return self.steps.number

    @property
    def backward(self) -> list[State]:
        """The gradients of this step that came out of operations outside the model, in order."""
        gradients, num_past = self.past
        return self.outside.backward[num_past:] if gradients is self.outside.backward else self.outside.backward

    def read(self) -> None:
        """Bring all rows to the host. *Cost:* nothing on CPU; elsewhere a sync a device."""
        self.journal.read()
        self.outside.ledger.read()

    def note(self, finding: bool = False) -> None:
        """The step's rows, which have been read, are history."""
        if self.history is not None:
            self.history.note(self.step, self.journal, self.steps.optimizers.living, self.num_dropped)
            if finding:
                self.history.found()

    def forget_rows(self) -> None:
        """The step is over; a further backward through its calls may follow."""
        self.journal.reset()
        self.roots.clear()
        self.saved.bad.clear()
        self.foreseen = None
        self.num_dropped = 0
        self.past = self.outside.backward, len(self.outside.backward)
        self.outside.step_ends(id(self))

    def updated_by(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped. A learning rate that is a tensor may lie on a device, and is not read."""
        self._rates[optimizer] = [group.get("lr") for group in optimizer.param_groups]

    def rate(self, parameter: Parameter) -> float | None:
        """The learning rate at which a parameter was last updated, where it is known."""
        for optimizer, rates in self._rates.items():
            for group, rate in zip(optimizer.param_groups, rates, strict=False):
                if isinstance(rate, float | int) and any(p is parameter for p in group["params"]):
                    return rate
        return None

    def forget(self, leaves_tape: bool = False) -> None:
        """No backward through its calls can follow; ``leaves_tape``: what came of them may be another model's data."""
        self.calls.clear()
        if leaves_tape:
            self.outside.release(id(self))
        self.forget_rows()


def kind_of(numbers: Numbers | None) -> Kind:
    return Kind.INF if numbers is not None and not numbers.num_nan else Kind.NAN
