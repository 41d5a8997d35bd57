"""The rules over each step's rows: how rows come to the board, which rules there are, and when they are asked."""

from __future__ import annotations

import ctypes
import logging
import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from numscope.alerts.board import Board, Floats, SiteKind, SitePlace
from numscope.alerts.rules.gradients import UNDERFLOW, VANISH, gradients_through_depth, gradients_underflow
from numscope.alerts.rules.growth import divergence_ahead
from numscope.alerts.rules.loss import AWAY, loss_runs_away, loss_spike
from numscope.alerts.rules.overflow import overflow_ahead
from numscope.config.alert_plan import AlertPlan
from numscope.config.options import how_to_set
from numscope.detect.journal import Event, Journal, Look
from numscope.detect.skips import LEFT_OUT, Skips
from numscope.probe import loop_calls
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.optimizers import Optimizers
from numscope.records.alert import Alert
from numscope.records.faults import ours, traced
from numscope.records.finding import Finding
from numscope.records.observation import FIELDS
from numscope.records.site import Phase, tensor_of
from numscope.summary.block import Block
from numscope.summary.ledger import UNOBSERVED
from numscope.summary.state import ROW_WIDTH

log = logging.getLogger("numscope")

MOST_SITES = 20_000  # of a step; further ones are not looked at
_NUMEL, _MIN, _MAX = (FIELDS.index(name) for name in ("numel", "min", "abs_max"))

QUIET = 16  # steps after a module was loaded, such as a target network: the losses of new targets rise
SCALE_FALLS = "scale falls"
SKIPS_WINDOW = 100  # steps
INITIAL_SCALE = 2.0**16  # torch's first scale: above it, a scale that falls has only grown too far
FALLEN = 8  # times below its highest value: a scale that grows every few steps is skipped back as often

Rule = Callable[[Board, dict[str, Any]], Iterator[Alert]]

EACH_STEP: Mapping[str, Rule] = {"loss spike": loss_spike}
EACH_TICK: Mapping[str, Rule] = {
    "overflow ahead": overflow_ahead,
    "divergence ahead": divergence_ahead,
    AWAY: loss_runs_away,
    VANISH: gradients_through_depth,
    UNDERFLOW: gradients_underflow,
}


class _Source(NamedTuple):
    """Rows of one block: where they are in it, and whose they are."""

    block: Block
    host: Tensor  # the block's memory, which moves as it grows
    amax: Floats  # of all rows
    rows: npt.NDArray[np.int64]
    sites: npt.NDArray[np.int64]  # positions in ``StepRows._at``

    @classmethod
    def of(cls, block: Block, rows: list[int], sites: list[int]) -> _Source:
        memory: Any = (ctypes.c_double * (block.capacity * ROW_WIDTH)).from_address(block.host.data_ptr())
        return cls(block, block.host, np.frombuffer(memory)[_MAX::ROW_WIDTH], np.array(rows, np.int64), np.array(sites, np.int64))


class StepRows:
    """Puts steps' rows on a board.

    *Cost:* 0.1 µs a module call and gradient where a step has the same ones as the step before, and some 50 µs; else about 5 each.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._look: Look | None = None  # of the step that the places are of
        self._at = np.zeros(0, np.int64)
        self._sources: list[_Source] = []
        self._are_single = True  # no site has several rows
        self._loss: tuple[Block, int] | None = None

    def add(self, step: int, journal: Journal) -> None:
        """A step whose rows have been read."""
        have_moved = any(source.host is not source.block.host for source in self._sources)
        if self._look is None or have_moved or not journal.looks_like(self._look):
            self._look = journal.look()
            self._find(journal.copied())
        amax = np.full(len(self._at), np.nan)
        for source in self._sources:
            found = source.amax[source.rows]
            if self._are_single:
                amax[source.sites] = found
            else:
                np.fmax.at(amax, source.sites, found)
        self._board.add(step, self._at, amax, self._loss_now())

    def _find(self, events: list[tuple[Any, ...]]) -> None:
        known: dict[SitePlace, int] = {}
        sources: dict[Block, tuple[list[int], list[int]]] = {}
        for place, block, row in _places(events):
            rows, sites = sources.setdefault(block, ([], []))
            if len(known) < MOST_SITES or place in known:
                rows.append(row)
                sites.append(known.setdefault(place, len(known)))
        losses = [event.items[0] for event in map(Event._make, events) if event.phase is Phase.LOSS]
        _, ledger, handle = losses[0] if losses else ("", None, UNOBSERVED)
        self._loss = None if ledger is None or handle == UNOBSERVED else ledger.place(int(handle))[:2]
        self._at = self._board.indexes([*known])
        self._sources = [_Source.of(block, *found) for block, found in sources.items()]
        self._are_single = sum(len(source.rows) for source in self._sources) == len(self._at)

    def _loss_now(self) -> float:
        if self._loss is None:
            return math.nan
        block, at = self._loss
        view, at = block.view(), at * ROW_WIDTH
        loss = view[at + _MIN]
        return loss / (optimizer_probe.scale() or 1.0) if view[at + _NUMEL] == 1 and math.isfinite(loss) else math.nan


def _places(events: list[tuple[Any, ...]]) -> Iterator[tuple[SitePlace, Block, int]]:
    """The sites that are put on the board: outputs and the model's inputs, parameters, gradients."""
    for event in map(Event._make, events):
        entry = event.entry
        for slot, ledger, handle in event.items:
            if ledger is None or handle == UNOBSERVED or event.phase in (Phase.LOSS, Phase.OPTIMIZER):
                continue
            block, row, dtype, shape = ledger.place(int(handle))
            if not dtype.is_floating_point:
                continue
            kind = _kind(event.phase, slot, (entry.is_root or not entry.name) and not entry.is_fed, len(shape))
            if kind is not None:
                usual = -math.log2(max(math.prod(shape[1:]), 1)) / 2 if kind is SiteKind.MATRIX else -math.inf
                name = str(dtype).removeprefix("torch.")
                yield SitePlace(entry.name, entry.cls, tensor_of(event.phase, slot), name, kind, usual), block, row


def _kind(phase: Phase, slot: str, is_root: bool, num_axes: int) -> SiteKind | None:
    if phase is Phase.BACKWARD:
        return SiteKind.GRADIENT if slot.startswith("grad output") else SiteKind.WEIGHT_GRADIENT
    if slot.startswith("output"):
        return SiteKind.OUTPUT
    if slot.startswith("input"):
        return SiteKind.DATA if is_root else None
    return SiteKind.MATRIX if num_axes >= 2 else SiteKind.VECTOR


class Scales:
    """Scale falls: GradScaler leaves out steps again and again, and lowers its scale each time.

    Until its first step it searches for its scale, which is no news down to a scale of 1.
    """

    def __init__(self, skips: Skips) -> None:
        self._skips = skips
        self._skipped: deque[int] = deque(maxlen=64)  # those that no search for the first scale explains
        self._highest = 0.0

    def skipped(self, step: int, scale: float | None, settings: dict[str, Any]) -> Iterator[Alert]:
        """A step was left out. ``scale``: by which the loss was multiplied in it; None: unknown."""
        if scale is not None and self._skips.has_stepped:
            self._highest = max(self._highest, scale)
        if not self._skips.has_stepped and (scale is None or scale >= 1):
            return
        self._skipped.append(step)
        recent = sum(one > step - SKIPS_WINDOW for one in self._skipped)
        is_low = scale is not None and scale < 1
        has_fallen = scale is None or (scale * FALLEN <= self._highest and scale < INITIAL_SCALE)
        if not is_low and (recent < settings["skips"] or not has_fallen):
            return
        left_out = sum(one > step - SKIPS_WINDOW for one in self._skips.steps[-SKIPS_WINDOW:])
        now = "" if scale is None else f", and its scale is {scale:g}" + (f", from {self._highest:g}" if self._highest > scale else "")
        value, limit = (scale, 1.0) if is_low else (float(recent), float(settings["skips"]))
        text = f"GradScaler left out {left_out} of the last {min(SKIPS_WINDOW, step + 1)} steps{now}: gradients overflow though it falls."
        advice = f"Lower the learning rate, or train in bfloat16. The operation that overflows: {how_to_set(SCALE_FALLS, {'finding': 2})}."
        yield Alert(
            step, SCALE_FALLS, "", "", value, limit, text, advice, {"skipped": recent, "scale": scale, "highest_scale": self._highest}
        )


class Engine:
    """Rules over one model's steps; detection's onlooker. An error of theirs ends them; it is said once, and detection goes on.

    Args:
        skips: detection's, of steps that were left out.
        notes: detection's, of what went bad and did not spread.

    *Cost:* on the host, about 0.3 µs a site and step and 0.1 ms; nothing on a device.
    """

    def __init__(
        self,
        plan: AlertPlan,
        post: Callable[[Iterable[Alert]], None],
        optimizers: Optimizers,
        skips: Skips,
        notes: Sequence[Finding] = (),
    ) -> None:
        self.board = Board()
        self._notes = notes
        self._optimizers = optimizers
        self._num_optimizers = 0  # that were known at the last step
        self._num_loads, self._last_load = loop_calls.num_loads(), -QUIET  # up to the last step, and the step of the last one
        self._post: Callable[[Iterable[Alert]], None] | None = post
        self._rows = StepRows(self.board)
        self._scales = Scales(skips)
        self._plan = plan
        self._each_step, self._each_tick = (
            [(rule, plan.settings(name)) for name, rule in rules.items() if plan.is_on(name)] for rules in (EACH_STEP, EACH_TICK)
        )

    def step(self, number: int, journal: Journal) -> None:
        self._ask(self.of_step, number, journal)

    def skipped(self, number: int, scale: float | None) -> None:
        self._ask(self.of_skip, number, scale)

    def _ask(self, rules: Callable[..., Iterable[Alert]], *args: Any) -> None:
        if self._post is None:
            return
        try:
            found = [*rules(*args)]
        except ours() as error:
            self._post = None
            log.error("alerts over each step's rows are off: %s", traced(error))
        else:
            self._post(found)

    def of_step(self, number: int, journal: Journal) -> Iterable[Alert]:
        """Alerts of a step, whose rows have been read."""
        with untrapped(), np.errstate(all="ignore"):  # a script may have NumPy, or the processor, raise
            num, self._num_optimizers = self._num_optimizers, self._optimizers.num_met
            if 0 < num < self._num_optimizers:
                self.board.forget_losses()
            if self._num_loads != loop_calls.num_loads():
                if number - self._last_load >= QUIET:  # else a script loads all the time, and would never be told of a spike
                    self.board.quiet_until = number + QUIET
                self._num_loads, self._last_load = loop_calls.num_loads(), number
            self.board.is_scaled = self.board.is_scaled or optimizer_probe.in_scaler()
            self._rows.add(number, journal)
            if self.board.ticks:
                rates = [group.get("lr") for optimizer in self._optimizers.living for group in optimizer.param_groups]
                self.board.rates.append(max((float(rate) for rate in rates if isinstance(rate, float | int)), default=math.nan))
            rules = self._each_step + (self._each_tick if self.board.ticks else [])
            return [alert for rule, settings in rules for alert in rule(self.board, settings)]

    def of_skip(self, number: int, scale: float | None) -> Iterable[Alert]:
        """Alerts of a step that GradScaler has left out."""
        if not self._plan.is_on(SCALE_FALLS):
            return ()
        found = self._scales.skipped(number, scale, self._plan.settings(SCALE_FALLS))
        recent = (note for note in reversed(self._notes) if note.note == LEFT_OUT and number - note.step < SKIPS_WINDOW)
        if (note := next(recent, None)) is None or note.culprit is None:
            return found
        advice = f"It is {note.culprit.op}, noted at step {note.step}. {note.culprit.advice}"
        return [replace(alert, advice=advice, text=alert.text.replace("gradients overflow", "what goes bad")) for alert in found]


def _libm() -> Any:
    """The C library's functions of ``fenv.h``; None where a script can't have set the processor's floating-point traps."""
    try:
        library: Any = ctypes.CDLL("libm.so.6")
        return library if sys.platform == "linux" and library.fegetexcept and library.feholdexcept and library.fesetenv else None
    except (OSError, AttributeError):
        return None


_LIBM = _libm()
_ENVIRONMENT_BYTES = 64  # more than glibc's fenv_t on any processor


@contextmanager
def untrapped() -> Iterator[None]:
    """No floating-point trap strikes inside, where nans are compared; traps, flags and rounding mode are as before afterwards."""
    if _LIBM is None or not _LIBM.fegetexcept():
        yield
        return
    environment = ctypes.create_string_buffer(_ENVIRONMENT_BYTES)
    _LIBM.feholdexcept(environment)
    try:
        yield
    finally:
        _LIBM.fesetenv(environment)
