"""What a module's own call alone shows: the parameters whose gradients one backward makes, and the attention that it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from numscope.probe import optimizer
from numscope.probe.calls import in_backward, is_traced
from numscope.probe.hook import Hook, hook_calls, hook_gradient, new_id, unhook_calls
from numscope.probe.layer_names import own_parameters


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


class OwnCalls:
    """Hooks on the modules of one model, from ``arm`` to ``disarm``.

    A gradient is shown as one backward makes it: before it is added to those of earlier ones, and before ranks reduce it. FSDP2 puts whole
    parameters in place of sharded ones for a module's call, so that parameters are looked up there too.

    Args:
        show: takes a site and its tensor.
        failed: takes an error of the tool; the hooks are gone then.
    """

    def __init__(self, show: Callable[[int, Tensor], None], failed: Callable[[Exception], None]) -> None:
        self._show, self._failed, self._key = show, failed, new_id()
        self._hooked: dict[nn.Module, OwnSites] = {}
        self._leaves: dict[tuple[int, int], tuple[Tensor, Callable[[], None]]] = {}  # by site and id, with what removes the hook

    def arm(self, modules: Mapping[nn.Module, OwnSites]) -> None:
        """Show these modules' tensors and no others."""
        self.disarm()
        for module, sites in modules.items():
            if isinstance(module, torch.jit.ScriptModule):
                continue
            self._hooked[module] = sites
            self._hook_parameters(module, sites)  # of a module that another one computes for, which never calls it
            hook_calls(module, self._key, Hook(self._before, sites), Hook(self._after, sites), always=False, first=True)

    def disarm(self) -> None:
        """Show nothing more."""
        for module in self._hooked:
            unhook_calls(module, self._key)
        self._hooked = {}
        self.forget_step()

    def forget_step(self) -> None:
        """Parameters that were looked up in calls may be others in the next step."""
        for _, remove in self._leaves.values():
            remove()
        self._leaves.clear()

    def begin_step(self) -> None:
        """Hook the parameters of the step to come."""
        for module, sites in self._hooked.items():
            self._hook_parameters(module, sites)

    def _hook_parameters(self, module: nn.Module, sites: OwnSites) -> None:
        own = own_parameters(module) if sites.gradients else {}
        for name, site in sites.gradients.items():
            parameter = own.get(name)
            if parameter is not None and parameter.requires_grad and (site, id(parameter)) not in self._leaves:
                self._leaves[site, id(parameter)] = parameter, hook_gradient(parameter, Hook(self._gradient, site, parameter))

    def _before(self, sites: OwnSites, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if sites.gradients and not torch.compiler.is_compiling() and torch.is_grad_enabled() and not optimizer.is_paused():
            self._guard(self._hook_parameters, module, sites)

    def _after(self, sites: OwnSites, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if sites.attention is None or torch.compiler.is_compiling() or optimizer.is_paused() or is_traced() or in_backward():
            return
        if torch.is_grad_enabled() or module.training or sites.evaluation:
            found = attention_in(module, output)
            if found is not None:
                self._guard(self._show, sites.attention, found)

    def _gradient(self, site: int, parameter: Tensor, gradient: Tensor | None) -> None:
        # Megatron's fused kernel has added the gradient to main_grad itself; what autograd has is a placeholder.
        fused = getattr(parameter, "grad_added_to_main_grad", False)
        if gradient is not None and not fused and not torch.compiler.is_compiling() and not optimizer.is_paused():
            self._guard(self._show, site, gradient)

    def _guard(self, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except Exception as error:
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
