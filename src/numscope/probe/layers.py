"""The layer probe: makes the tensors of selected layers visible while it is armed; a model whose probe is not armed runs bare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from numscope.probe import optimizer, walk
from numscope.probe.dgrad import watch_dgrad
from numscope.probe.module import Hook, can_be_hooked, in_backward

_task = torch._C._current_graph_task_id
_grad_enabled = torch.is_grad_enabled


@dataclass(frozen=True, slots=True)
class LayerSites:
    """Where a layer's tensors go: an index for each that is wanted at this step, else None.

    Args:
        evaluation: also in forwards in evaluation mode without gradients.
    """

    activation: int | None = None
    output: int | None = None
    gradient: int | None = None
    dgrad: int | None = None
    evaluation: bool = False

    @property
    def any(self) -> bool:
        return not self.activation == self.output == self.gradient == self.dgrad is None


def first_floating(value: Any) -> Tensor | None:
    """The first floating-point or complex tensor of a nest."""
    if isinstance(value, Tensor):
        return value if value.is_floating_point() or value.is_complex() else None
    return next((t for _, t in walk.tensors(value, "") if t.is_floating_point() or t.is_complex()), None)


class LayerProbe:
    """Hooks on layers, from ``arm`` to ``disarm``.

    Args:
        tally: what compiled graphs observe into.
        observe: gets a site's index and a tensor.
        failed: gets an error of ours; the hooks are gone then.

    *Cost:* one hook call a layer call, one tensor hook for a gradient. Disarmed: none.
    """

    def __init__(self, tally: Any, observe: Callable[[int, Tensor], None], failed: Callable[[Exception], None]) -> None:
        self._tally = tally
        self._observe = observe
        self._failed = failed
        self._armed: dict[nn.Module, LayerSites] = {}
        self._handles: list[Any] = []
        self._leaf_handles: list[Any] = []
        self.paused = False

    @property
    def armed(self) -> bool:
        return bool(self._handles)

    def arm(self, layers: Mapping[nn.Module, LayerSites]) -> None:
        """Hook these layers and no others; what is hooked as wanted already stays as it is."""
        wanted = {module: sites for module, sites in layers.items() if sites.any and can_be_hooked(module)}
        if wanted == self._armed:
            return
        self.disarm()
        self._armed = wanted
        for module, sites in wanted.items():
            # First of all hooks: tensor parallelism's own hooks turn a distributed output into its local part.
            hook = Hook(self._after, sites)
            self._handles.append(module.register_forward_hook(hook, prepend=True, with_kwargs=True))

    def disarm(self) -> None:
        """Remove every hook."""
        self._armed = {}
        for handle in (*self._handles, *self._leaf_handles):
            handle.remove()
        self._handles.clear()
        self._leaf_handles.clear()

    def forget_leaves(self) -> None:
        """Hooks on leaves (a parameter returned as it is) would outlive the step."""
        while self._leaf_handles:
            self._leaf_handles.pop().remove()

    def _after(self, sites: LayerSites, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self.paused or optimizer.is_paused():
            return
        try:
            self._see(sites, module, args, kwargs, output)
        except Exception as error:
            self._fail(error)

    def _see(self, sites: LayerSites, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        grad = _grad_enabled()
        taken = first_floating(args) if args else None
        if taken is None and kwargs:
            taken = first_floating(kwargs)
        given = first_floating(output)
        if not in_backward() and (grad or module.training or sites.evaluation):  # in backward: recomputed for checkpointing
            if sites.activation is not None and taken is not None:
                self._observe(sites.activation, taken)
            if sites.output is not None and given is not None:
                self._observe(sites.output, given)
        if grad and given is not None and given.requires_grad:
            if sites.gradient is not None:
                handle = given.register_hook(Hook(self._gradient, sites.gradient))  # type: ignore[no-untyped-call]
                if given.is_leaf:
                    self._leaf_handles.append(handle)
            if sites.dgrad is not None and taken is not None:
                watch_dgrad(taken, output, partial(self._gradient, sites.dgrad))

    def _gradient(self, site: int, gradient: Tensor) -> None:
        if not self.paused and not optimizer.is_paused():
            try:
                self._observe(site, gradient)
            except Exception as error:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.paused = True
        self.disarm()
        self._failed(error)
