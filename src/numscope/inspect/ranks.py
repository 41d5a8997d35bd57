"""One model's sites over the ranks that train it: finds this rank's part of a tensor, and merges sites' numbers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from torch import Tensor, nn
from torch.nn import Parameter

from numscope.distributed.agree import spread
from numscope.distributed.copies import Copies
from numscope.distributed.place import Kind
from numscope.distributed.reduce import Item, Reducer, Refused
from numscope.inspect.recorder import Recorder
from numscope.inspect.sites import Site
from numscope.inspect.tally import Seen
from numscope.probe.layer_names import layers_of
from numscope.records.layer import Layer


def _kind_of(site: Site) -> Kind:
    """What replicas hold alike is no data: weights, what the optimizer gets and keeps for them."""
    return "data" if site.parameter is None or site.kind == "local_wgrad" else "gradient" if site.kind == "wgrad" else "parameter"


class Joint:
    """Finds the local parts of distributed tensors, and merges sites over ranks. With one rank, it returns its input.

    Args:
        model: the watched module.
        wrapper: what the user gave, perhaps a DDP around it.
        recorder: has the plan, which must be the same on all ranks, and logs what can't be merged.

    Attributes:
        prefix: of layers' names in messages.

    *Cost:* one packed exchange a process group and call of ``merge``.
    """

    def __init__(self, model: nn.Module, wrapper: nn.Module, recorder: Recorder) -> None:
        self._model = model
        self._wrapper = wrapper
        self._recorder = recorder
        self.prefix = ""
        self._reducer: Reducer | None = None
        self._groups: dict[int, tuple[Any, ...]] = {}  # by site: over which its elements lie spread
        self._modules: dict[Layer, nn.Module] = {}  # once there are other ranks

    def part(self, site: Site, tensor: Tensor) -> Tensor | None:
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

    def merge(self, parts: Sequence[tuple[Site, Seen]], step: int) -> list[tuple[Site, Seen]]:
        """Each site over the ranks that share it. All ranks must call this at the same steps, with whatever they have."""
        reducer = self._find()
        if reducer is None:
            return [*parts]
        items = [Item(s.key, self._groups_of(s, reducer), o.row, o.cells, s.layout.is_max) for s, o in parts]
        return [
            (site, replace(seen, row=found.row, cells=found.cells, ranks=found.ranks, mine=found.writes))
            for (site, seen), found in zip(parts, reducer.reduce(items, step), strict=True)
        ]

    def is_first(self, site: Site) -> bool:
        """Whether no rank before this one holds the same tensor."""
        reducer = self._find()
        return reducer is None or all(group.first for group in self._groups_of(site, reducer) if isinstance(group, Copies))

    def is_whole(self, site: Site) -> bool:
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
        if reducer is not None:
            reducer.close()

    def _find(self) -> Reducer | None:
        if self._reducer is None and spread():
            self.forget_sites()
            text = self._recorder.plan.text
            self._reducer = Reducer(self._model, self._wrapper, f"inspector/{sha256(text.encode()).hexdigest()[:16]}")
            for layer, group in self._recorder.groups.items():
                self._reducer.places.set_group(group, layer)
        return self._reducer

    def _groups_of(self, site: Site, reducer: Reducer) -> tuple[Any, ...]:
        groups = self._groups.get(site.index)
        if groups is None:
            kind = _kind_of(site)
            module = self._modules.get(site.layer)
            at = None if module is None else (module, site.parameter or "weight" if kind != "data" else site.kind)
            groups = self._groups[site.index] = reducer.places.default(kind, site.layer.name, at)
        return groups
