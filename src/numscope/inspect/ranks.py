"""Sites over ranks: those of one model over the ranks that train it, and tensors that others show over the ranks of one group."""

from __future__ import annotations

import json
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from torch import Tensor, nn
from torch.nn import Parameter

from numscope.distributed import agree
from numscope.distributed.agree import spread
from numscope.distributed.channel import Apart, Channel, name_of
from numscope.distributed.groups import Copies
from numscope.distributed.place import Kind
from numscope.distributed.reduce import ANSWER_S, Exchanging, Item, Reducer, Refused
from numscope.inspect.recorder import Recorder
from numscope.inspect.sites import PlannedSite
from numscope.inspect.tally import Seen
from numscope.probe.layer_names import layers_of
from numscope.records.faults import suppress
from numscope.records.layer import Layer
from numscope.records.observation import Observation
from numscope.sinks.outbox import Outbox
from numscope.summary.extras import Layout
from numscope.summary.state import merge_rows

log = logging.getLogger("numscope")

MOST_BEHIND = 100  # recorded steps for which a rank waits for the others' numbers; those of 1,000 sites take some 100 MB

Key = TypeVar("Key", bound=tuple[str, ...])

GOODBYE_S = 2.0  # for ranks that end together
_leaving: WeakSet[Outbox] = WeakSet()
_channels: WeakKeyDictionary[Any, Channel] = WeakKeyDictionary()


def _kind_of(site: PlannedSite) -> Kind:
    """Whether replicas hold it alike, so that it is no data: weights, what the optimizer gets and keeps for them."""
    return "data" if site.parameter is None or site.kind == "local_wgrad" else "gradient" if site.kind == "wgrad" else "parameter"


def say_goodbyes() -> None:
    """The process ends: ranks that still exchange hear it first."""
    end = time.monotonic() + GOODBYE_S
    for exchanges in [*_leaving]:
        with suppress(Exception):  # they are elsewhere
            exchanges.drain(max(0.0, end - time.monotonic()))


class Merging:
    """Sites' numbers while they are merged over ranks."""

    def __init__(self, parts: Sequence[tuple[PlannedSite, Seen]], exchanging: Exchanging | None) -> None:
        self._parts, self._exchanging = parts, exchanging

    @property
    def is_over(self) -> bool:
        return self._exchanging is None or self._exchanging.is_over

    def result(self) -> list[tuple[PlannedSite, Seen]]:
        """As far as they are merged; by then this rank's own."""
        if self._exchanging is None:
            return [*self._parts]
        return [
            (site, replace(seen, row=found.row, cells=found.cells, ranks=found.ranks, mine=found.writes))
            for (site, seen), found in zip(self._parts, self._exchanging.result(), strict=True)
        ]


class Unwritten(NamedTuple):
    """A step's numbers: this rank's own, and those that are being merged."""

    own: Sequence[Observation]
    merging: Merging | None
    observed: Callable[..., list[Observation]]  # makes observations of the merged ones

    @property
    def is_over(self) -> bool:
        return self.merging is None or self.merging.is_over

    def observations(self) -> list[Observation]:
        return [*self.own, *(() if self.merging is None else self.observed(self.merging.result(), reduced=True))]


class Joint:
    """Finds the local parts of distributed tensors, and merges sites over ranks. With one rank, it returns its input.

    Args:
        wrapper: what the user gave, perhaps a DDP around the model.
        recorder: has the plan, which must be the same on all ranks, and logs what can't be merged.

    *Cost:* one packed exchange a process group and call of ``begin``, on a thread: training does not wait for it.
    """

    def __init__(self, model: nn.Module, wrapper: nn.Module, recorder: Recorder) -> None:
        self._model = model
        self._wrapper = wrapper
        self._recorder = recorder
        self.prefix = ""
        self._exchanges = Outbox("numscope-ranks")
        self._under_way: deque[Exchanging] = deque()
        self._pid = os.getpid()
        self._reducer: Reducer | None = None
        self._groups: dict[int, tuple[Any, ...]] = {}  # by site: over which its elements lie spread
        self._modules: dict[Layer, nn.Module] = {}  # once there are other ranks

    def part(self, site: PlannedSite, tensor: Tensor) -> Tensor | None:
        """This rank's part of a tensor; None, logged once, if it can't be determined."""
        kind = type(tensor)
        if kind is Tensor or kind is Parameter or (reducer := self._find()) is None:
            return tensor
        try:
            local, self._groups[site.index] = reducer.places.of(tensor, _kind_of(site), site.layer.name)
        except Refused as refused:
            said = f"{self.prefix}{site.layer.name}: its {site.tensor} is left out: {refused}"
            self._recorder.say_once(("refused", self.prefix, site.key), said, logging.WARNING)
            return None
        return local

    def begin(self, parts: Sequence[tuple[PlannedSite, Seen]], step: int) -> Merging:
        """Merge each site over the ranks that share it, in the background. All ranks must call this at the same steps, with whatever they
        have; one that has come far ahead of the others waits for them no longer. Raises: what an earlier exchange has."""
        reducer = self._find()
        if reducer is None:
            return Merging(parts, None)
        while self._under_way and self._under_way[0].is_over:
            self._under_way.popleft()
        if len(self._under_way) >= MOST_BEHIND and not reducer.closed:
            reducer.close()
            said = f"other ranks are {MOST_BEHIND} recorded steps behind: from now on rank {agree.rank()} reports its own statistics"
            self._recorder.say(said, logging.WARNING)
        items = [Item(s.key, self._groups_of(s, reducer), o.row, o.cells, s.layout.is_max) for s, o in parts]
        exchanging = reducer.begin(items, step)
        if not exchanging.is_over:
            self._under_way.append(exchanging)
            self._exchanges.put(exchanging.exchange)
        return Merging(parts, exchanging)

    def settle(self, seconds: float) -> None:
        """Wait for what has begun, at most so long. Raises: what an exchange has."""
        if self._under_way and self._pid == os.getpid():
            with suppress(TimeoutError):
                self._exchanges.drain(seconds)

    def is_first(self, site: PlannedSite) -> bool:
        """Whether no rank before this one holds the same tensor."""
        reducer = self._find()
        return reducer is None or all(group.first for group in self._groups_of(site, reducer) if isinstance(group, Copies))

    def is_whole(self, site: PlannedSite) -> bool:
        """Whether this rank holds all of a parameter's elements."""
        reducer = self._find()
        return reducer is None or all(isinstance(group, Copies) for group in self._groups_of(site, reducer))

    def forget_sites(self) -> None:
        """The model's sites have changed."""
        self._groups.clear()
        self._modules = {layer: module for module, layer in layers_of(self._model).items()}

    def set_group(self, group: Any, layer: str | None = None) -> None:
        """Merge over a process group instead of those found: for all layers, or for one by name."""
        reducer = self._find()
        if reducer is not None:
            reducer.places.set_group(group, layer)
            self._groups.clear()

    @property
    def spans_models(self) -> bool:
        """Whether the ranks merged over may have other layers than this one: a user's group may hold a pipeline's stages."""
        return spread() and bool(self._recorder.groups or (self._reducer is not None and self._reducer.places.has_given))

    def close(self, failed: bool = False) -> None:
        """This rank stops observing; the others learn it at their next exchange, the first one too if this rank has ``failed``."""
        reducer = self._find() if failed else self._reducer
        if reducer is not None and self._pid == os.getpid():
            reducer.close()
            _leaving.add(self._exchanges)
            for _ in range(2):
                with suppress(Exception):  # what was under way has failed, which is raised once
                    self._exchanges.put(reducer.say_goodbye)
                    break

    def _find(self) -> Reducer | None:
        if self._reducer is None and spread():
            self.forget_sites()
            text = self._recorder.plan.text
            self._reducer = Reducer(self._model, self._wrapper, f"inspector/{sha256(text.encode()).hexdigest()[:16]}")
            for layer, group in self._recorder.groups.items():
                self._reducer.places.set_group(group, layer)
        return self._reducer

    def _groups_of(self, site: PlannedSite, reducer: Reducer) -> tuple[Any, ...]:
        groups = self._groups.get(site.index)
        if groups is None:
            kind = _kind_of(site)
            module = self._modules.get(site.layer)
            at = None if module is None else (module, site.parameter or "weight" if kind != "data" else site.kind)
            groups = self._groups[site.index] = reducer.places.default(kind, site.layer.name, at)
        return groups


def joined(parts: Mapping[Key, tuple[Seen, Layout]], group: Any, step: int) -> dict[Key, Seen]:
    """This rank's sites, merged with the same sites of the group's other ranks. All of them must call it, at the same steps.

    Ranks that are found apart each have their own numbers from then on; it is said once.

    *Cost:* one exchange of JSON: some 400 bytes a site and rank.
    """
    me = agree.rank()
    mine = [me, [[key, seen.row, seen.cells] for key, (seen, _) in parts.items()]]
    told = _told(mine, group, step)
    by_site: dict[tuple[str, ...], list[tuple[int, list[float], list[float]]]] = {}
    for rank, sites in sorted(told, key=lambda part: int(part[0])):
        for key, row, cells in sites:
            by_site.setdefault(tuple(key), []).append((rank, row, cells))
    found = {}
    for key, (seen, layout) in parts.items():
        (first, row, cells), *others = by_site[key]
        for _, other_row, other_cells in others:
            row = merge_rows(row, other_row)
            cells = layout.merge(cells, other_cells)
        found[key] = replace(seen, row=row, cells=cells, ranks=1 + len(others), mine=first == me)
    return found


def _told(mine: Any, group: Any, step: int) -> list[Any]:
    channel = _channels.get(group)
    if channel is None:
        channel = _channels[group] = Channel(f"joined/{name_of(group)}", group, ANSWER_S)
    was_open = channel.is_open
    try:
        return channel.gather("numbers of tensors handed in", step, mine)
    except Apart as apart:
        if was_open:
            log.warning("numscope: %s; from now on rank %d reports its own statistics", apart, agree.rank())
        return [json.loads(json.dumps(mine))]
