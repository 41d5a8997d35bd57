"""Lets all ranks agree before any of them acts: whether some rank's step is bad, and which rank's was first.

Questions are asked where the ranks synchronize anyway: at the optimizer's step and after it. They are never asked in an evaluation or when
a watch is closed, since a rank may be alone there. They travel on a channel of our own. A rank that is at another place, or does not
answer, ends it: from then on each rank judges its steps alone, and waits for nobody.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import nn

from numscope.distributed.channel import Apart, Channel, members, name_of, store
from numscope.distributed.megatron import layout_of
from numscope.records.faults import ours, suppress
from numscope.records.heap import instances_of

log = logging.getLogger("numscope")

PATIENCE_S = 15.0  # to wait for other ranks to watch the same model; ranks that train together arrive within the same step
REPORT_S = 5.0  # to wait for the failing rank to print its report
ANSWER_S = 10.0  # to wait for an answer: ranks come from the same reduction of gradients
STAGES_S = 60.0  # the same between a pipeline's stages: the last one is done while gradients are on their way to the first
DIAGNOSIS_S = 300.0  # to wait where a rank has raised an alarm: others may do calls again meanwhile
_POLL_S = 0.02
_STAGE = "torch.distributed.pipelining.stage"  # not imported: a process that runs a pipeline has already loaded it

_watches: Counter[str] = Counter()  # by kind, how many this process has begun


def rank() -> int:
    """This process's global rank; before a process group exists, the rank that torchrun assigned."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    given = os.environ.get("RANK", "0")
    return int(given) if given.isdecimal() else 0


def spread() -> bool:
    """Whether this process trains together with other ranks. Those of torch's fake backend don't exist."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1 and dist.get_backend() != "fake"


def num_ranks() -> int:
    """How many ranks this process trains with, itself among them."""
    return dist.get_world_size() if spread() else 1


def is_first(what: str) -> bool:
    """Whether no rank has asked this before, as far as can be known. *Cost:* a round trip to the job's store; none in a single process."""
    if not spread():
        return True
    try:
        return bool(store().add(f"numscope/first/{what}", 1) == 1)
    except ours():  # the store disappears with the rank that hosts it
        return True


def has_group() -> bool:
    """Whether this process has a process group, perhaps of itself alone."""
    return dist.is_available() and dist.is_initialized()


def among(group: Any = None) -> Any:
    """The given process group, else the group of all ranks; None if this process is its only member."""
    if not spread():
        return None
    group = dist.group.WORLD if group is None else group
    return group if dist.get_world_size(group) > 1 else None


@dataclass(frozen=True, slots=True)
class Stage:
    """A model's place in a pipeline.

    Args:
        index: of the stage, from the input to the loss.
        row: which of this rank's stages it is; each rank of the group has one in each row.
    """

    index: int
    row: int
    group: Any


class Ranks:
    """The ranks that train one model together, and the questions they ask each other.

    Their groups are looked up at the first question, when wrappers are in place: DDP's group, those of the meshes over which FSDP2 or
    tensor parallelism distributes the parameters, and that of a pipeline, whose ranks watch its other stages. If only some ranks watch a
    model, each rank judges it alone.

    Args:
        model: the watched module.
        wrapper: the module that the user passed, perhaps a DDP around the model.
        step: gives the number of the step at work.

    Attributes:
        stage: the model's place in a pipeline, known from the first question on.

    *Cost:* a question is one collective of a few numbers per group; none in a single process.
    """

    def __init__(self, model: nn.Module, wrapper: nn.Module, step: Callable[[], int]) -> None:
        self._model = model
        self._wrapper = wrapper
        self._step = step
        self.stage: Stage | None = None
        self._ddp: Any = None
        self._channels: list[Channel] | None = None
        self._pid = os.getpid()
        self._key = f"numscope/{watch_name(model)}"
        self._arrived = False
        if spread():
            self._arrive()

    @property
    def together(self) -> bool:
        """Whether there are other ranks to ask. There are none within and after ``ddp.join()``: a rank without inputs does not answer."""
        if not spread():
            return False
        if self._channels is None:
            self._channels = [*self._find_channels()]
        return bool(self._channels) and not getattr(getattr(self._ddp, "_join_config", None), "enable", False)

    def any(self, purpose: str, *flags: bool, patience: float = DIAGNOSIS_S) -> tuple[bool, ...]:
        """For each of up to three flags, whether it is set on any rank. All ranks must ask, for the same purpose.

        Ranks that are found apart are no longer asked: a warning is logged once, and the flags are this rank's own.
        """
        values = [float(flag) for flag in flags]
        try:
            for channel in self._channels or () if self.together else ():
                values = channel.meet(purpose, self._step(), values, max(patience, channel.patience))
        except Apart as apart:
            self._part(apart)
            return flags
        return tuple(value > 0 for value in values)

    def gather(self, purpose: str, value: Any) -> list[Any]:
        """The JSON-ready values of all ranks, including this one. All ranks must ask."""
        found = [value]
        try:
            for channel in self._channels or () if self.together else ():
                found = [one for part in channel.gather(purpose, self._step(), found, DIAGNOSIS_S) for one in part]
        except Apart as apart:
            self._part(apart)
            return [value]
        return found

    def close(self) -> None:
        """Ask and answer no more. The other ranks learn it at their next question."""
        if self._channels is None and spread() and os.getpid() == self._pid:  # a forked child has its parent's connection to the store
            self._arrive("gone")
        for channel in self._channels or ():
            channel.close()
        self._channels = []

    def _part(self, apart: Apart) -> None:
        log.warning("numscope: %s: from now on rank %d judges its steps alone", apart, rank())
        self.close()

    def wait_for_report(self, mine: bool, what: str = "reported", forever: bool = False) -> None:
        """Wait for the report before this rank ends: a launcher may kill all ranks as soon as one has ended, in the middle of the report.

        Args:
            mine: this rank has printed it.
            what: the report to wait for, the same on all ranks.
            forever: somebody looks around in the other rank.
        """
        if not self.together:
            return
        with suppress(Exception):  # the store disappears with the rank that hosts it
            key = f"{self._key}/{what}"
            if mine:
                store().set(key, what)
            end = time.monotonic() + REPORT_S
            while not store().check([key]) and (forever or time.monotonic() < end):
                time.sleep(_POLL_S)

    def _find_channels(self) -> Iterator[Channel]:
        if not spread():
            return
        groups: list[Any] = []
        for parameter in self._model.parameters():
            mesh = getattr(parameter, "device_mesh", None)
            if mesh is not None:
                groups += [g for g in mesh.get_all_groups() if g not in groups]
        self._ddp = find_ddp(self._model, self._wrapper)
        group = getattr(self._ddp, "process_group", None)
        if group is not None and group not in groups:
            groups.append(group)
        layout = layout_of(self._model)
        groups += [] if layout is None else [g for g in layout.groups if g not in groups]
        if not self._arrived:
            self._arrive()
        for group in groups:
            if dist.get_world_size(group) > 1 and self._all_watch(self._key, group, "it"):
                yield Channel(f"{self._key}/{name_of(group)}/channel", group, ANSWER_S)
        stage = self.stage = stage_of(self._model)
        if stage is not None and dist.get_world_size(stage.group) > 1:
            key = f"numscope/{numbered(f'stages {stage.row} of {name_of(stage.group)}')}"
            self._arrive(key=key)
            if self._all_watch(key, stage.group, "every stage"):
                yield Channel(f"{key}/channel", stage.group, STAGES_S)

    def _arrive(self, how: str = "watched", key: str = "") -> None:
        self._arrived = True
        with suppress(Exception):  # the store disappears with the rank that hosts it
            store().set(f"{key or self._key}/{dist.get_rank()}", how)

    def _all_watch(self, key: str, group: Any, what: str) -> bool:
        """Whether every rank of a group watches this model, or its stage of a pipeline."""
        ranks = members(group)
        keys = [f"{key}/{r}" for r in ranks]
        if together(f"{key}/{','.join(map(str, ranks))}", keys) and b"gone" not in store().multi_get(keys):
            return True
        log.warning(
            "numscope: %s is watched on rank %d, not on all of ranks %s: each watch judges alone. Watch %s on every rank.",
            type(self._model).__name__,
            rank(),
            list(ranks),
            what,
        )
        return False


def numbered(kind: str) -> str:
    """A name that is the same on all ranks for what each of them does equally often: its kind, and how often it was done so far."""
    _watches[kind] += 1
    return f"{kind}-{_watches[kind]}"


def watch_name(model: nn.Module, purpose: str = "") -> str:
    """A name that is the same on all ranks for the same watch: its purpose, the kind of model, and the number of such watches so far."""
    names = ",".join(name for name, _ in model.named_parameters())
    return numbered(f"{purpose}{type(model).__name__}-{hashlib.sha1(names.encode(), usedforsecurity=False).hexdigest()[:16]}")


def find_ddp(model: nn.Module, wrapper: nn.Module) -> Any:
    """The DDP around the model, inside it, or around a larger model. *Cost:* in the last case, one walk over all objects."""
    kind = nn.parallel.DistributedDataParallel
    for module in (wrapper, *model.modules()):
        if isinstance(module, kind):
            return module
    for candidate in instances_of(kind):
        if any(m is model for m in candidate.modules()):
            return candidate
    return None


def stage_of(model: nn.Module) -> Stage | None:
    """The stage that a model is, or is part of; None outside pipelines. *Cost:* where pipelining is loaded, one walk over all objects."""
    known = sys.modules.get(_STAGE)
    for stage in () if known is None else instances_of(known.PipelineStage):
        if any(module is model for module in stage.submod.modules()):
            return Stage(stage.stage_index, stage.stage_index // stage.group_size, stage.group or dist.group.WORLD)
    return None


def together(place: str, keys: Sequence[str]) -> bool:
    """Whether all ranks have arrived, each of which sets a key. The first rank decides for all, so that no rank waits for an absent one.

    Args:
        place: the store's key for the verdict, the same on all ranks; each can be used once.
    """
    met = store()
    end = time.monotonic() + PATIENCE_S
    pause = _POLL_S / 100  # ranks mostly arrive at the same moment
    while not (complete := met.check(list(keys))) and not met.check([f"{place}/verdict"]) and time.monotonic() < end:
        time.sleep(pause)
        pause = min(2 * pause, _POLL_S)
    if met.add(f"{place}/first", 1) == 1:
        met.set(f"{place}/verdict", "together" if complete else "alone")
    return bool(met.get(f"{place}/verdict") == b"together")
