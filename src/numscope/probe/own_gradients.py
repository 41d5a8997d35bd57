"""Parameters' gradients of one backward: before they are added to those of earlier ones, and before ranks reduce them."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from numscope.probe.dynamo import never_traced
from numscope.probe.entry import LayerSites
from numscope.probe.hook import Hook, hook_gradient
from numscope.probe.layer_names import own_parameters


class OwnGradients:
    """Hooks on parameters, until ``forget``. FSDP2 puts whole parameters in place of sharded ones for a module's call, so they are looked
    up there too.

    Args:
        show: takes a site and its tensor.
    """

    def __init__(self, show: Callable[[int, Tensor], None]) -> None:
        self._show = show
        self._hooked: dict[tuple[int, int], tuple[Tensor, Callable[[], None]]] = {}  # by site and id, with what removes the hook

    def hook(self, module: nn.Module, sites: LayerSites) -> None:
        """Hook a module's parameters as they are now."""
        own = own_parameters(module) if sites.parameters else {}
        for name, site in sites.parameters:
            parameter = own.get(name)
            if parameter is not None and parameter.requires_grad and (site, id(parameter)) not in self._hooked:
                self._hooked[site, id(parameter)] = parameter, hook_gradient(parameter, Hook(self._came, site, parameter))

    def forget(self) -> None:
        """Those that were looked up in calls may be others in the next step."""
        while self._hooked:
            self._hooked.popitem()[1][1]()

    @never_traced
    def _came(self, site: int, parameter: Tensor, gradient: Tensor | None) -> None:
        # Megatron's fused kernel has added the gradient to main_grad itself; what autograd has is a placeholder.
        if gradient is not None and not getattr(parameter, "grad_added_to_main_grad", False):
            self._show(site, gradient)
