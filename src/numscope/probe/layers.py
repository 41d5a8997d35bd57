"""The layer probe: makes the tensors of selected layers visible while it is armed; a model whose probe is not armed runs bare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from numscope.probe import optimizer, walk
from numscope.probe.compiled_layers import enroll, tap_dgrad, tap_forward, tap_gradient
from numscope.probe.dgrad import InputEdge, input_edge, watch_dgrad
from numscope.probe.module import Hook, can_be_hooked, in_backward

_grad_enabled = torch.is_grad_enabled
_jit_tracing = torch._C._get_tracing_state

# Inside compiled graphs a layer's own part of a gradient is read where the layer takes its input, and that must be one place.
_USES_INPUT_ONCE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.LayerNorm)


def _uses_input_once(kind: type[nn.Module]) -> bool:
    """Those, what ``numscope.precision`` makes of them, and its own GEMM layers."""
    return getattr(kind, "_numscope_origin", kind) in _USES_INPUT_ONCE or hasattr(kind, "_numscope_gemm")


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


def own_base(output: Any, inputs: Iterable[Any]) -> Tensor | None:
    """What a layer computed, if it hands out nothing but a view of all of it, as Linear does of inputs with three dimensions.

    A module that then works in place gives the view another past, and a hook on it would hear nothing. Not where it is an input's memory.
    """
    if type(output) is not Tensor or not output._is_view() or not output.is_contiguous():
        return None
    base: Tensor | None = output._base
    if base is None or base.grad_fn is None or base.numel() != output.numel() or not base.is_contiguous():
        return None
    return None if any(isinstance(t, Tensor) and (t is base or t._base is base) for t in inputs) else base


class LayerProbe:
    """Hooks on layers, from ``arm`` to ``disarm``.

    Args:
        observe: gets a site's index and a tensor.
        failed: gets an error of ours; the hooks are gone then.

    *Cost:* one hook call a layer call, one tensor hook for a gradient. Disarmed: none.
    """

    def __init__(self, observe: Callable[[int, Tensor], None], failed: Callable[[Exception], None]) -> None:
        self._observe = observe
        self._failed = failed
        self._armed: dict[nn.Module, LayerSites] = {}
        self._handles: list[Any] = []
        self._leaf_handles: list[Any] = []
        # of the calls at work, by thread: where their inputs stood
        self._edges: dict[tuple[nn.Module, int], list[InputEdge | None]] = {}
        self._number = enroll(self)  # what compiled graphs know this probe by
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
            self._handles.append(module.register_forward_hook(Hook(self._after, sites), prepend=True, with_kwargs=True))
            if sites.dgrad is not None:
                self._handles.append(module.register_forward_pre_hook(Hook(self._before, sites), with_kwargs=True))

    def disarm(self) -> None:
        """Remove every hook."""
        self._armed = {}
        for handle in (*self._handles, *self._leaf_handles):
            handle.remove()
        self._handles.clear()
        self._leaf_handles.clear()

    def forget_step(self) -> None:
        """What would outlive the step: hooks on leaves (a parameter returned as it is), inputs of calls that raised."""
        while self._leaf_handles:
            self._leaf_handles.pop().remove()
        self._edges.clear()

    def observe(self, site: int, tensor: Tensor | None) -> None:
        """What a compiled graph, or a gradient, shows. None: an output that gets no gradient, of a node with several."""
        if tensor is not None and not self.paused and not optimizer.is_paused():
            try:
                self._observe(site, tensor)
            except Exception as error:
                self._fail(error)

    def _observe_as(self, site: int, shape: torch.Size, gradient: Tensor | None) -> None:
        self.observe(site, None if gradient is None else gradient.reshape(shape))

    # ---- hooks

    def _before(self, sites: LayerSites, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if torch.compiler.is_compiling():
            if torch.compiler.is_exporting():
                return None
            if sites.dgrad is not None and args and isinstance(args[0], Tensor) and _uses_input_once(type(module)):
                return (tap_dgrad(self._number, sites.dgrad, args[0]), *args[1:]), kwargs
            return None
        if not self.paused and not optimizer.is_paused() and _jit_tracing() is None:
            taken = first_floating(args) if args else None
            taken = first_floating(kwargs) if taken is None and kwargs else taken
            self._edges.setdefault((module, get_ident()), []).append(None if taken is None else input_edge(taken))
        return None

    def _after(self, sites: LayerSites, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if torch.compiler.is_compiling():
            if not torch.compiler.is_exporting():  # what is exported is to run where there is no numscope
                self._trace(sites, module, args, kwargs, output)
            return
        if self.paused or optimizer.is_paused() or _jit_tracing() is not None:
            return
        try:
            self._see(sites, module, args, kwargs, output)
        except Exception as error:
            self._fail(error)

    def _see(self, sites: LayerSites, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        grad = _grad_enabled()
        edges = self._edges.get((module, get_ident())) if sites.dgrad is not None else None
        edge = edges.pop() if edges else None
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
                whole = own_base(output, (*args, *kwargs.values()))
                if whole is not None:
                    whole.register_hook(Hook(self._observe_as, sites.gradient, given.shape))  # type: ignore[no-untyped-call]
                else:
                    handle = given.register_hook(Hook(self.observe, sites.gradient))  # type: ignore[no-untyped-call]
                    if given.is_leaf:
                        self._leaf_handles.append(handle)
            if sites.dgrad is not None and edge is not None:
                watch_dgrad(edge, output, partial(self.observe, sites.dgrad))

    def _trace(self, sites: LayerSites, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Dynamo is tracing this call: put operators into the graph."""
        taken = first_floating(args) if args else None
        taken = first_floating(kwargs) if taken is None and kwargs else taken
        given = first_floating(output)
        if torch.is_grad_enabled() or module.training or sites.evaluation:
            if sites.activation is not None and taken is not None:
                tap_forward(self._number, sites.activation, taken)
            if sites.output is not None and given is not None:
                tap_forward(self._number, sites.output, given)
        if sites.gradient is not None and given is not None:
            tap_gradient(self._number, sites.gradient, given)

    def _fail(self, error: Exception) -> None:
        self.paused = True
        self.disarm()
        self._failed(error)
