"""Tensors that only a module's own call shows: parameters' gradients of one backward, and the attention that it returns."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from numscope.probe import optimizer
from numscope.probe.calls import guard, in_backward, is_traced
from numscope.probe.dynamo import is_exporting, listen, never_traced, run_plainly, unlisten
from numscope.probe.hook import GONE, Hook, hook_calls, hook_gradient, new_id, unhook_calls
from numscope.probe.layer_names import own_parameters
from numscope.probe.module import ModuleProbe


@dataclass(slots=True)
class OwnSites:
    """Where what one module shows goes.

    Args:
        gradients: parameters' names, each with its site.
        attention: the site of its attention probabilities; None: not wanted.
        evaluation: also in evaluation mode without gradients.
    """

    gradients: dict[str, int] = field(default_factory=dict)
    attention: int | None = None
    evaluation: bool = False


_NONE = OwnSites()


def _mark(calls: str, entry: str, training: bool, grad: bool) -> str:
    return _calls[calls].mark(entry, training, grad)


_calls: weakref.WeakValueDictionary[str, OwnCalls] = weakref.WeakValueDictionary()
_numbers = itertools.count()  # not given twice
_mark._dynamo_marked_constant = True  # type: ignore[attr-defined]  # runs while dynamo traces, see probe/compiled.py


class OwnCalls:
    """Hooks on the modules of one model, from ``arm`` to ``disarm``.

    A gradient is shown as one backward makes it: before it is added to those of earlier ones, and before ranks reduce it. FSDP2 puts whole
    parameters in place of sharded ones for a module's call, so that parameters are looked up there too.

    Args:
        probe: of the model.
        show: takes a site and its tensor.
        failed: takes an error of the tool; the hooks are gone then.
    """

    def __init__(self, probe: ModuleProbe, show: Callable[[int, Tensor], None], failed: Callable[[Exception], None]) -> None:
        self._probe, self._show, self._failed, self._key = probe, show, failed, new_id()
        self._name = str(next(_numbers))
        _calls[self._name] = self
        self._sites: Mapping[nn.Module, OwnSites] = {}
        self._in_graphs: Mapping[nn.Module, OwnSites] = {}
        self._hooked: set[nn.Module] = set()
        self._before_hook, self._after_hook = Hook(self._before), Hook(self._after)  # always these two: compiled code is guarded by them
        self._leaves: dict[tuple[int, int], tuple[Tensor, Callable[[], None]]] = {}  # by site and id, with what removes the hook

    def arm(self, modules: Mapping[nn.Module, OwnSites], in_graphs: Mapping[nn.Module, OwnSites]) -> None:
        """Show these modules' tensors and no others; ``in_graphs``: what later calls may ask for, as in ``ModuleProbe.arm``."""
        self.forget_step()
        self._sites, self._in_graphs = modules, in_graphs
        if in_graphs:
            listen(self)
        wanted = {module for module in modules if not isinstance(module, torch.jit.ScriptModule)}
        wanted |= self._probe.traced & set(in_graphs)
        for module in self._hooked - wanted:
            unhook_calls(module, self._key)
        for module in wanted - self._hooked:
            hook_calls(module, self._key, self._before_hook, self._after_hook, always=False, first=True)
        self._hooked = wanted
        self.begin_step()  # also of a module that another one computes for, which never calls it

    def disarm(self) -> None:
        """Show nothing more."""
        self.arm({}, {})
        unlisten(self)

    def compiled(self, module: nn.Module, shell: nn.Module | None) -> None:
        """A module was compiled: it gets the hooks for all steps."""
        self.arm(self._sites, self._in_graphs)

    def forget_step(self) -> None:
        """Parameters that were looked up in calls may be others in the next step."""
        for _, remove in self._leaves.values():
            remove()
        self._leaves.clear()

    def begin_step(self) -> None:
        """Hook the parameters of the step to come."""
        for module in self._sites:
            self._hook_parameters(module)

    def _hook_parameters(self, module: nn.Module) -> None:
        sites = self._sites.get(module, _NONE)
        own = own_parameters(module) if sites.gradients else {}
        for name, site in sites.gradients.items():
            parameter = own.get(name)
            if parameter is not None and parameter.requires_grad and (site, id(parameter)) not in self._leaves:
                self._leaves[site, id(parameter)] = parameter, hook_gradient(parameter, Hook(self._gradient, site, parameter))

    @run_plainly
    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        if kwargs is not None and not torch.compiler.is_compiling() and torch.is_grad_enabled() and not optimizer.is_paused():
            self._guard(self._hook_parameters, module)

    @run_plainly
    def _after(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any = GONE) -> None:
        if torch.compiler.is_compiling():
            if is_exporting():
                return
            mark = _mark(self._name, self._probe.entries[module].key, module.training, torch.is_grad_enabled())
            found = attention_in(module, output) if mark else None
            if found is not None:
                self._probe.tap(module, mark, found)
            return
        sites = self._sites.get(module, _NONE)
        if output is GONE or sites.attention is None or optimizer.is_paused() or is_traced() or in_backward():
            return
        if torch.is_grad_enabled() or module.training or sites.evaluation:
            found = attention_in(module, output)
            if found is not None:
                self._guard(self._show, sites.attention, found)

    def mark(self, entry: str, training: bool, grad: bool) -> str:
        """The site, as text, of a module's attention where dynamo traces it; "" where nothing is wanted."""
        entries = self._probe.entries
        sites = next((sites for module, sites in self._in_graphs.items() if entries[module].key == entry), _NONE)
        return "" if sites.attention is None or not (grad or training or sites.evaluation) else str(sites.attention)

    @never_traced
    def _gradient(self, site: int, parameter: Tensor, gradient: Tensor | None) -> None:
        # Megatron's fused kernel has added the gradient to main_grad itself; what autograd has is a placeholder.
        fused = getattr(parameter, "grad_added_to_main_grad", False)
        if gradient is not None and not fused and not optimizer.is_paused():
            self._guard(self._show, site, gradient)

    def _guard(self, call: Callable[..., None], *args: Any) -> None:
        guard(self._fail, (), call, *args)

    def _fail(self, error: Exception) -> None:
        self.disarm()
        self._failed(error)


def attention_in(module: nn.Module, output: Any) -> Tensor | None:
    """The attention probabilities that a module returns; None if it returns nothing that can be them.

    They are the output of a module whose class's name has ``softmax`` in it, else the last tensor of a tuple after the first, if its last
    dimension but one is as long as some dimension of the first. Tensors that are nested deeper, such as a cache, are none.
    """
    if isinstance(output, Tensor):
        is_softmax = "softmax" in type(module).__name__.lower()
        return output if is_softmax and output.is_floating_point() else None
    items: Iterable[Any] = output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple | list) else ()
    found = [item for item in items if isinstance(item, Tensor)]
    if len(found) < 2 or found[-1].dim() < 2 or not found[-1].is_floating_point() or found[-1].shape[-2] not in found[0].shape[:-1]:
        return None
    return found[-1]
