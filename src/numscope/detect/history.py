"""Statistics of a run that nobody configured: detection's rows, in the run's folder, so that one can see how a bad number grew.

Of the last steps each is kept, of those before fewer the older they are, within bounds of steps and bytes. Nothing is computed for it:
each step's rows are copied as they are, and made into observations when they are written: after a finding, at the end, and a few every
half a minute for those who look on.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch.optim import Optimizer

from numscope.detect.journal import Event, Journal
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.optimizers import settings_of
from numscope.records.faults import ours, suppress, told
from numscope.records.observation import FIELDS, Observation
from numscope.records.site import tensor_of
from numscope.summary.ledger import Kept, Ledger
from numscope.summary.state import Summary, fields_of, merge_rows

NEAR, FAR = 16, 64  # steps kept: each of the last ones, and at most so many of those before
NBYTES = 32 << 20  # of memory
NUM_WRITES = 8  # after so many findings only the end is written
NUM_FIRST = 10  # steps before the first are written for those who look on
LIVE_S = 30.0
_NUMEL, _MAX = (FIELDS.index(name) for name in ("numel", "max"))
_NUM_LIVE = 2000  # layers' calls that are written then
_MISSING = "pyarrow is not installed. Install it: pip install 'numscope[runs]'."

_folders: dict[tuple[str, int], _Folder] = {}  # by process

log = logging.getLogger("numscope")


@dataclass(slots=True)
class _Folder:
    """Shared by the models of a process: with a sink of its own, a later one would begin an attempt."""

    models: Counter[str] = field(default_factory=Counter)  # how many of each class have had a history
    sink: Any = None
    has_failed: bool = False


class _Step(NamedTuple):
    number: int
    events: list[tuple[Any, ...]]
    rows: dict[Ledger, Kept]
    settings: Mapping[str, list[float]]  # the optimizers', see ``settings_of``
    scale: float  # by which a GradScaler multiplied the losses
    num_dropped: int  # events whose gradients ``zero_grad`` has dropped: losses among them are another model's

    @property
    def nbytes(self) -> int:
        return sum(kept.nbytes for kept in self.rows.values())


class RunHistory:
    """The rows of a model's steps, near ones and a few far ones.

    Args:
        folder: of the run.
        rank: this process's.
        model: its class, which stands for a layer without a name.
        num_ranks: where there are many, each writes more rarely for those who look on.

    *Cost:* a copy of a step's rows, 128 bytes a tensor, and of two lists, which keep 350 bytes a tensor alive. A file of at most 2,000 rows
    (20 ms) at the tenth step, then after 2 s, 3 s and so on up to 30 s; from an hour on, each time the run is 1 % longer.
    """

    def __init__(self, folder: str, rank: int, model: str, num_ranks: int = 1) -> None:
        self._folder, self._rank, self._model = os.path.abspath(folder), rank, model  # the script may change its folder
        self._num_ranks = num_ranks
        self._shared = _folders.setdefault((os.path.realpath(folder), os.getpid()), _Folder())
        models = self._shared.models
        first = not models
        models[model] += 1
        number = models[model]
        self._prefix = "" if first else f"{model}." if number == 1 else f"{model}_{number}."
        self._near: list[_Step] = []
        self._far: list[_Step] = []
        self._stride = 1  # of the far steps, in steps that came to be far
        self._num_past = 0
        self._num_writes = 0
        self._written: set[tuple[int, str, str]] = set()  # of the steps at which something was found: they may go on
        self._began, self._next, self._rarer = time.monotonic(), 0.0, max(1.0, num_ranks / 32)
        self._shown: set[int] = set()  # steps that were written while they were kept
        self._further: list[Observation] = []  # to be written with the next steps
        with suppress(Exception):  # something else stands there
            if importlib.util.find_spec("pyarrow") is None:
                self._say(_MISSING)

    def note(self, step: int, journal: Journal, optimizers: Iterable[Optimizer] = (), num_dropped: int = 0) -> None:
        """Keep a step as it has been read so far; what was kept of the same step before is replaced, but for the settings of its
        optimizers: a schedule may have gone on since.
        """
        settings: Mapping[str, list[float]] = {}
        scale = 1.0
        if self._near and self._near[-1].number == step:
            before = self._near.pop()
            settings, scale = before.settings, before.scale
        elif self._near:
            self._show()
        rows = {ledger: ledger.keep() for ledger in (journal.ledger, journal.weights.ledger)}
        scale = optimizer_probe.scale() or scale
        self._near.append(_Step(step, journal.copied(), rows, settings or settings_of(optimizers), scale, num_dropped))
        if len(self._near) > NEAR:
            self._pass_on()
        while sum(one.nbytes for one in (*self._near, *self._far)) > NBYTES and len(self._near) > 1:
            self._thin() if self._far else self._near.pop(0)

    def keep(self, rows: Sequence[Observation]) -> None:
        """Write further rows when steps are written."""
        self._further += [row._replace(layer=self._prefix + row.layer) for row in rows]

    def _show(self) -> None:
        """Write the last steps for those who look on, if it is time. They are complete, as another one begins."""
        now = time.monotonic()
        age = now - self._began
        if now < self._next or (age < LIVE_S and not self._next and len(self._near) < NUM_FIRST):
            return
        self._next = now + self._rarer * max(min(LIVE_S, max(2.0, age / 2)), age / 100)
        news: list[_Step] = []
        for one in reversed(self._near):
            if one.number in self._shown or (news and sum(len(each.events) for each in (*news, one)) > _NUM_LIVE):
                break
            news.insert(0, one)
        self._shown.update(one.number for one in news)
        self._store(news, remembers=False)

    def _pass_on(self) -> None:
        """The oldest of the near steps becomes a far one, or goes."""
        oldest, self._num_past = self._near.pop(0), self._num_past + 1
        if self._num_past % self._stride == 0:
            self._far.append(oldest)
        if len(self._far) > FAR:
            self._thin()

    def _thin(self) -> None:
        """Every other far step goes; the newest stays."""
        self._far = self._far[-1::-2][::-1] if len(self._far) > 1 else []
        self._stride *= 2

    def found(self) -> None:
        """There is a finding: write what led to it, since the run may be killed."""
        self._num_writes += 1
        if self._num_writes <= NUM_WRITES:
            self.write()

    def write(self) -> None:
        """Write what is kept, and keep it no longer. Never raises."""
        steps, self._near, self._far = [*self._far, *self._near], [], []
        self._store([one for one in steps if one.number not in self._shown], remembers=True)

    def _store(self, steps: Sequence[_Step], *, remembers: bool) -> None:
        shared = self._shared
        if not steps:
            return
        try:
            if shared.sink is None:
                from numscope.sinks.parquet import ParquetSink

                shared.sink = ParquetSink(
                    self._folder, self._rank, {"config": "", "config_source": "detection", "world_size": self._num_ranks}
                )
            for step in steps:
                seen = {(one.step, one.layer, one.tensor): one for one in self._observations(step)}
                shared.sink.write([one for key, one in seen.items() if key not in self._written])
                self._written |= seen.keys() if remembers else set()
            shared.sink.write(self._further)
            self._further = []
            shared.sink.write_part()
        except ours() as error:  # whatever it is: the run goes on
            self._say(_MISSING if isinstance(error, ImportError) else f"{self._folder} can't be written: {told(error)}")

    def _say(self, why: str) -> None:
        shared = self._shared
        log.log(logging.DEBUG if shared.has_failed else logging.WARNING, "no history beside the findings: %s", why)
        shared.has_failed = True  # said once

    def _observations(self, step: _Step) -> Iterator[Observation]:
        """One for each tensor of each layer, its calls merged; losses are averaged."""
        found: dict[tuple[str, str], tuple[str, str, list[float], int]] = {}
        losses: dict[tuple[str, str], list[Sequence[float]]] = {}
        for index, event in enumerate(map(Event._make, step.events)):
            layer, cls = (event.entry.name or self._model, event.entry.cls) if event.entry.cls else ("loss", "loss")
            if cls == "loss" and index < step.num_dropped:
                continue
            layer = self._prefix + layer
            for slot, ledger, handle in event.items:
                if ledger is None or ledger not in step.rows:  # an optimizer's state, which has rows only where it is bad
                    continue
                key = layer, tensor_of(event.phase, slot)
                dtype, row = step.rows[ledger].row(int(handle))
                if cls == "loss" and row[_NUMEL] == 1:
                    losses.setdefault(key, []).append(row)
                    found[key] = cls, dtype, _mean(losses[key], step.scale), len(losses[key])
                elif key in found:
                    _, _, before, calls = found[key]
                    found[key] = cls, dtype, merge_rows(before, row), calls + 1
                else:
                    found[key] = cls, dtype, row, 1
        for order, ((layer, tensor), (cls, dtype, row, calls)) in enumerate(found.items()):
            fields = dict(zip(FIELDS, fields_of(row), strict=True))
            extras = step.settings if cls == "loss" else {}
            yield Observation(step.number, layer, cls, tensor, dtype, order, self._rank, 1, calls, fields, extras)


def _mean(losses: Sequence[Sequence[float]], scale: float) -> list[float]:
    """The row of the mean of losses of one element each, divided by a scale; the first one that is not finite stands for all."""
    bad = [row for row in losses if not math.isfinite(row[_MAX])]
    if bad or (len(losses) == 1 and scale == 1):
        return list((bad or losses)[0])
    mean = sum(row[_MAX] for row in losses) / len(losses) / scale
    return Summary(1, num_zero=int(not mean), min=mean, max=mean, abs_min=abs(mean) or None, abs_max=abs(mean)).to_row()
