"""Tensors that a script hands in by itself (``log_tensor_stats``), by the same configuration and into the same logs as those of layers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from numscope.config import resolve
from numscope.config.options import WatchOptions
from numscope.inspect.ranks import joined
from numscope.inspect.recorder import Recorder
from numscope.inspect.sites import Inspection, Site
from numscope.inspect.tally import Seen, Tally
from numscope.records.checks import check_one_of
from numscope.records.errors import UsageError
from numscope.records.layer import Layer
from numscope.records.observation import TENSORS, Observation
from numscope.report.delivery import Delivery
from numscope.scope.alerting import Alerting


class Scalar(float):
    """A float that scripts written for tensors can also use: ``.item()``, ``.cpu()``, ``torch.allclose(it, tensor)``."""

    def item(self) -> float:
        """The plain float."""
        return float(self)

    def float(self) -> Scalar:
        """Itself, as of a tensor; likewise ``double``, ``cpu`` and ``detach``."""
        return self

    double = cpu = detach = float

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        others = [one for one in (*args, *(kwargs or {}).values()) if isinstance(one, Tensor)]
        dtype = next((one.dtype for one in others if one.is_floating_point()), torch.float64)
        device = others[0].device if others else torch.device("cpu")

        def as_tensor(one: Any) -> Any:
            return torch.tensor(one.item(), dtype=dtype, device=device) if isinstance(one, Scalar) else one

        return function(*map(as_tensor, args), **{key: as_tensor(one) for key, one in (kwargs or {}).items()})


class GivenTensors:
    """Statistics of tensors that were handed in under a layer's and a tensor's name."""

    def __init__(self, recorder: Recorder, options: WatchOptions) -> None:
        self._recorder = recorder
        self._alerting = Alerting(options, Delivery(None, None, "", recorder.rank), None, recorder)
        self._layers: dict[str, tuple[Inspection, Tally]] = {}
        self.unmatched: list[tuple[str, ...]] = []  # for each name: sections that do not select it

    def log(self, layer: str, tensor_name: str, tensor: Tensor, *, step: int, group: Any = None, write: bool = True) -> dict[str, Scalar]:
        """The statistics that the configuration asks for, under the names that it uses; empty where it asks for none at this step.

        Args:
            layer: as selections match it.
            tensor_name: one of ``TENSORS``.
            tensor: of any shape.
            step: that it belongs to.
            group: process group over which the numbers merge; its lowest rank writes them. None: no other rank is asked.
            write: also into the logs.

        Raises: UsageError.

        *Cost:* one pass over the tensor; on a device one sync; over a group one collective.
        """
        check_one_of("tensor_name", tensor_name, TENSORS)
        if not isinstance(tensor, Tensor):
            raise UsageError(f"tensor: got {type(tensor).__name__}, expected a torch.Tensor.")
        inspection, tally = self._layers.get(layer) or self._find(layer)
        site = next((site for site in inspection.sites if site.kind == tensor_name), None)
        if site is None or not any(inspection.collects_at(site, step, reduced=reduced) for reduced in (True, False)):
            return {}
        tally.reset()
        tally.want(inspection.active(step).groups)
        tally.observe(site.index, tensor.detach())
        for name, first in site.statistics:
            cells = self._recorder.plugins.statistics[name].cells(tensor)
            if cells is not None:
                tally.merge_cells(site.index, first, cells)
        seen = tally.read().get(site.index)
        if seen is None:
            self._recorder.say_once((layer, tensor_name), f"{layer}: its {tensor_name} has no numbers to read", logging.WARNING)
            return {}
        observations = self._observations(inspection, site, seen, step, group)
        if write:
            self._recorder.write(observations)
            if self._alerting.post is not None:
                self._alerting.post(self._recorder.rules.read(observations))
        return {
            label: Scalar(float("nan") if value is None else value)
            for observation in observations
            for label, value in observation.values.items()
            if value is None or isinstance(value, int | float)
        }

    def _find(self, name: str) -> tuple[Inspection, Tally]:
        layer = Layer(name, "", name, weights=("weight",))
        resolved = resolve(self._recorder.plan, [layer], strict=False)
        self.unmatched.append(resolved.unmatched)
        inspection = Inspection(resolved.collects, [], self._recorder.plugins)
        found = self._layers[name] = (inspection, Tally([site.layout for site in inspection.sites]))
        return found

    def _observations(self, inspection: Inspection, site: Site, seen: Seen, step: int, group: Any) -> list[Observation]:
        found: dict[bool, Seen] = {}
        if inspection.collects_at(site, step, reduced=False):
            found[False] = seen
        if inspection.collects_at(site, step, reduced=True):
            key = (site.layer.name, site.tensor)
            found[True] = seen if group is None else joined({key: (seen, site.layout)}, group, step)[key]
        return [inspection.observation(site, step, part, self._recorder.rank, reduced) for reduced, part in found.items()]
