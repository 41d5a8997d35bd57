"""The ranks that train one model together: whether one of them has something to say, and what they ask each other then.

Ranks come together where they synchronize anyway: at the optimizer's step and after it, never in an evaluation or when a watch is closed,
since a rank may be alone there. A step in which nobody has anything to say costs them nothing: ``meeting``. Ranks that hold a part of the
weights each can do a step again only together and only before the weights move, so they ask each other at each place, on a channel of our
own. A rank that is elsewhere, or does not answer, ends that: from then on each judges its steps alone, and waits for nobody.
"""

from __future__ import annotations

import hashlib
import json
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

from numscope.distributed.channel import Apart, Channel, members, name_of, rest, store
from numscope.distributed.meeting import DIAGNOSIS_S, Meeting, Meetings, Met
from numscope.distributed.megatron import layout_of
from numscope.records.faults import ours, suppress
from numscope.records.heap import instances_of
from numscope.records.weak import Weak

log = logging.getLogger("numscope")

PATIENCE_S = 15.0  # to wait for other ranks to watch the same model; ranks that train together arrive within the same step
REPORT_S = 5.0  # to wait for the failing rank to print its report
ANSWER_S = 10.0  # to wait for an answer: ranks come from the same reduction of gradients
STAGES_S = 60.0  # the same between a pipeline's stages: the last one is done while gradients are on their way to the first
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

    Their groups are looked up at the first place of a step, when wrappers are in place: DDP's group, those of the meshes over which FSDP2
    or tensor parallelism distributes the parameters, and that of a pipeline, whose ranks watch its other stages.

    Args:
        model: the watched module.
        wrapper: the module that the user passed, perhaps a DDP around the model.
        step: gives the number of the step at work.

    Attributes:
        stage: the model's place in a pipeline, known from the first place on.

    *Cost:* none while nobody has anything to say; where weights are spread over ranks, one collective of a few numbers per group and place.
    """

    _model: Weak[nn.Module] = Weak()
    _wrapper: Weak[nn.Module] = Weak()

    def __init__(self, model: nn.Module, wrapper: nn.Module, step: Callable[[], int]) -> None:
        self._model = model
        self._wrapper = wrapper
        self._step = step
        self.stage: Stage | None = None
        self._ddp: Any = None
        self._shared: Channel | None = None
        self._channels: list[Channel] | None = None  # None: not looked up yet
        self._meetings: Meetings | None = None
        self._first_place = 0.0
        self._num_told = 0  # findings that all ranks know, which were asked
        self._pid = os.getpid()
        self._key = f"numscope/{watch_name(model)}"
        self._arrived = False
        if spread():
            self._arrive()

    @property
    def together(self) -> bool:
        """Whether there are other ranks. There are none within and after ``ddp.join()``: a rank without inputs does not answer."""
        if not spread():
            return False
        if self._channels is None:
            self._find()
        others = bool(self._channels) or (self._meetings is not None and self._meetings.is_open)
        return others and not getattr(getattr(self._ddp, "_join_config", None), "enable", False)

    @property
    def are_here(self) -> bool:
        """Whether the other ranks are at the same place as this one, to answer questions."""
        return self.together and (bool(self._channels) or self._now is not None)

    @property
    def have_to_be_asked(self) -> bool:
        """Whether weights are spread over the ranks: they ask each other at a place, whether one of them has something to say or not."""
        return self.together and bool(self._channels)

    def at(self, place: str, speaks: bool, *, asks: bool = True) -> Met:
        """This rank is at a place of its step, as all ranks are in turn.

        Args:
            speaks: it has something to say.
            asks: ranks that have to be asked are asked here, else at a later place.
        """
        if not self.together:
            return Met.NOBODY
        if self._meetings is None:
            return Met.HERE if asks else Met.LATER if speaks else Met.NOBODY
        if self._first_place and time.monotonic() - self._first_place > PATIENCE_S:
            self._miss()
        return self._meetings.at(place, speaks)

    def any(self, purpose: str, *flags: bool, patience: float = DIAGNOSIS_S) -> tuple[bool, ...]:
        """For each of up to three flags, whether it is set on any rank. All ranks must ask, for the same purpose.

        Ranks that are found apart are no longer asked: a warning is logged once, and the flags are this rank's own.
        """
        if self._now is not None:
            told = self._settle([*flags] if True in flags else None, _any_of)
            return (*map(bool, told),) if told else (False,) * len(flags)
        values = [float(flag) for flag in flags]
        try:
            for channel in self._channels or () if self.together else ():
                values = channel.meet(purpose, self._step(), values, max(patience, channel.patience))
        except Apart as apart:
            self._part(apart)
            return flags
        return tuple(value > 0 for value in values)

    def gather(self, purpose: str, value: Any) -> list[Any]:
        """The JSON-ready values of all ranks that have one, including this one. All ranks must ask."""
        if self._now is not None:
            return list(self._settle(value, list) or ())
        own = found = [] if value is None else [value]
        try:
            for channel in self._channels or () if self.together else ():
                found = [one for part in channel.gather(purpose, self._step(), found or None, DIAGNOSIS_S) for one in part]
        except Apart as apart:
            self._part(apart)
            return own
        return found

    def least(self, purpose: str, key: list[Any] | None, value: Any) -> Any:
        """The JSON-ready value of the rank with the least key, on all ranks that ask; None where no rank has one. Keys differ."""
        if self._now is not None:
            first = self._settle(key, lambda keys: min(keys, default=None))
            return self._settle(value if key is not None and key == first else None, lambda values: values[0] if values else None)
        self._num_told += 1
        return min(self.gather(purpose, None if key is None else [key, value]), key=lambda one: one[0], default=(None, None))[1]

    def share(self, purpose: str, value: Any) -> list[Any]:
        """The JSON-ready values of the ranks that have one, where gradients that they have averaged bring all of them: DDP's.

        Returns: this rank's own where there are no others; nothing where they don't answer.
        """
        if not spread():
            return [] if value is None else [value]
        group = getattr(self._ddp, "process_group", None) if self.together else None
        if group is None:
            return []
        self._shared = self._shared or Channel(f"{self._key}/shared", group, DIAGNOSIS_S)
        try:
            return self._shared.gather(purpose, self._step(), value, DIAGNOSIS_S)
        except Apart as apart:
            log.warning("numscope: %s: %s is not shared", apart, purpose)
            return []

    @property
    def first(self) -> int:
        """The lowest of the ranks that are here."""
        return rank() if self._now is None else self._now.first

    def publish(self, finding: Any, *, is_kept: bool) -> None:
        """Leave a finding, JSON-ready, for ranks whose training ends before they can meet; ``is_kept``: until they ask each other."""
        if self._meetings is not None:
            self._meetings.publish(finding)
        elif is_kept and self._channels:
            with suppress(Exception):  # the store disappears with the rank that hosts it
                store().compare_set(f"{self._key}/found/{self._num_told}", "", json.dumps(finding))

    def missed(self) -> list[Any]:
        """Findings of others that this rank's training has ended too early to hear."""
        return self.published() if self._meetings is None or not self.together else self._meetings.missed()

    def published(self) -> list[Any]:
        """Findings of another rank that has to be asked, since it was asked last. *Cost:* one request to the store."""
        with suppress(Exception):  # the store disappears with the rank that hosts it
            if self._channels and os.getpid() == self._pid and store().check([f"{self._key}/found/{self._num_told}"]):
                return [json.loads(store().get(f"{self._key}/found/{self._num_told}"))]
        return []

    def close(self) -> None:
        """Ask and answer no more. The other ranks learn it at their next question."""
        if os.getpid() != self._pid:  # a forked child has its parent's connection to the store
            self._channels, self._meetings = [], None
            return
        if self._channels is None and spread():
            self._arrive("gone")
        for channel in (*(self._channels or ()), *([] if self._shared is None else [self._shared])):
            channel.close()
        self._channels = []
        if self._meetings is not None:
            self._miss()
            self._meetings.close()
            self._meetings = None

    @property
    def _now(self) -> Meeting | None:
        return None if self._meetings is None else self._meetings.now

    def _settle(self, value: Any, choose: Callable[[Sequence[Any]], Any]) -> Any:
        assert self._meetings is not None and self._meetings.now is not None
        try:
            return self._meetings.now.settle(value, choose)
        except ours() as error:  # the store disappears with the rank that hosts it
            self._meetings.part(str(error).splitlines()[0] if str(error) else type(error).__name__)
            return choose([] if value is None else [value])

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
        if not self.are_here:
            return
        with suppress(Exception):  # the store disappears with the rank that hosts it
            key = f"{self._key}/{what}" if self._now is None else f"numscope/{what}/{self._now.ring}"
            if mine:
                store().set(key, what)
            end = time.monotonic() + REPORT_S
            while not store().check([key]) and (forever or time.monotonic() < end):
                time.sleep(_POLL_S)

    # ---- which ranks they are

    def _find(self) -> None:
        """Look the model's groups up. Where weights are spread over ranks these are asked on channels."""
        self._channels = []
        groups: list[Any] = []
        model: nn.Module | None = self._model
        if model is None:  # it is gone before its first place
            return
        for parameter in model.parameters():
            mesh = getattr(parameter, "device_mesh", None)
            if mesh is not None:
                groups += [g for g in mesh.get_all_groups() if g not in groups]
        layout = layout_of(model)
        is_spread = bool(groups) or layout is not None
        self._ddp = find_ddp(model, self._wrapper)
        for group in (getattr(self._ddp, "process_group", None), *([] if layout is None else layout.groups)):
            groups += [group] if group is not None and group not in groups else []
        groups = [g for g in groups if dist.get_world_size(g) > 1]
        stage = self.stage = stage_of(model)
        stages = stage is not None and dist.get_world_size(stage.group) > 1
        row = f"stages {stage.row} of {name_of(stage.group)}" if stage is not None and stages else ""
        if is_spread:
            self._channels = [*self._open_channels(groups, row)]
        elif groups or row:
            labels = {f"{self._key}/{name_of(g)}": dist.get_world_size(g) for g in groups}
            if stage is not None and row:
                labels[numbered(row)] = dist.get_world_size(stage.group)
            self._first_place = time.monotonic()
            try:
                self._meetings = Meetings(labels, STAGES_S if row else ANSWER_S)
            except ours() as error:  # the store disappears with the rank that hosts it
                log.warning("numscope: rank %d judges its steps alone: %s: %s", rank(), type(error).__name__, error)

    def _open_channels(self, groups: Sequence[Any], row: str) -> Iterator[Channel]:
        if not self._arrived:
            self._arrive()
        for group in groups:
            if self._all_watch(self._key, group, "it"):
                yield Channel(f"{self._key}/{name_of(group)}/channel", group, ANSWER_S)
        if self.stage is not None and row:
            key = f"numscope/{numbered(row)}"
            self._arrive(key=key)
            if self._all_watch(key, self.stage.group, "every stage"):
                yield Channel(f"{key}/channel", self.stage.group, STAGES_S)

    def _miss(self) -> None:
        """Say once if some rank of the model's groups has never watched it."""
        if self._first_place and self._meetings is not None and self._meetings.in_step:
            self._first_place = 0.0
            with suppress(Exception):  # the store disappears with the rank that hosts it
                if self._meetings.num_missing:
                    group = getattr(self._ddp, "process_group", None) if self.stage is None else self.stage.group
                    self._say_missing("it" if self.stage is None else "every stage", members(group))

    def _all_watch(self, key: str, group: Any, what: str) -> bool:
        """Whether every rank of a group watches this model, or its stage of a pipeline."""
        ranks = members(group)
        keys = [f"{key}/{r}" for r in ranks]

        def have_gone() -> bool:
            return store().check([f"{key}/gone"]) and b"gone" in store().multi_get([one for one in keys if store().check([one])])

        if together(f"{key}/{name_of(group)}", len(ranks), have_gone) or (store().check(keys) and not have_gone()):  # late, but they watch
            return True
        self._say_missing(what, ranks)
        return False

    def _arrive(self, how: str = "watched", key: str = "") -> None:
        self._arrived = True
        with suppress(Exception):  # the store disappears with the rank that hosts it
            store().set(f"{key or self._key}/{dist.get_rank()}", how)
            if how == "gone":
                store().set(f"{self._key}/gone", "")

    def _say_missing(self, what: str, ranks: Sequence[int]) -> None:
        log.warning(
            "numscope: %s is watched on rank %d, not on all of ranks %s: what the others do is not judged. Watch %s on every rank.",
            type(self._model).__name__,
            rank(),
            list(ranks),
            what,
        )


def _any_of(flags: Sequence[Sequence[bool]]) -> list[bool]:
    return [any(column) for column in zip(*flags, strict=True)]


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


def arrive(place: str, num: int) -> None:
    """Count this rank among those that have come to a place; ``place``: a key of the store, the same on all ``num`` ranks, used once."""
    if store().add(f"{place}/here", 1) == num:
        store().compare_set(f"{place}/verdict", "", "together")


def together(place: str, num: int, gone: Callable[[], bool] = lambda: False) -> bool:
    """Whether all ranks come to a place in time. One decides for all, so that no rank waits for an absent one.

    Args:
        gone: whether it is known that some rank won't come.

    *Cost:* a few requests to the store, and some twenty a second while ranks are awaited.
    """
    met, verdict = store(), f"{place}/verdict"
    arrive(place, num)
    end = time.monotonic() + PATIENCE_S
    pause = _POLL_S / 100  # ranks mostly arrive at the same moment
    while not met.check([verdict]):
        if time.monotonic() > end or gone():
            met.compare_set(verdict, "", "alone")
        else:
            rest(time.sleep, pause)
            pause = min(2 * pause, _POLL_S)
    return bool(met.get(verdict) == b"together")
