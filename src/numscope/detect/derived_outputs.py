"""Gradients that a model's calls give, as outputs of these calls: a later backward may begin from them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

from torch import Tensor

from numscope.detect.evidence import REPLAY_BYTES
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.hook import Hook, hook_gradient
from numscope.probe.module import ModuleProbe
from numscope.probe.naming import named_state
from numscope.probe.optimizer import guarded
from numscope.records.errors import STOPS
from numscope.replay.capture import Call, Place

MOST_CALLS = 16  # the last ones of a step that are followed: a line search makes hundreds, whose graphs are gone


class DerivedOutputs:
    """Hooks what calls were given, and the weights, for as long as a backward runs that can be differentiated.

    Args:
        probe: of the model.
        arrived: is called when such an output has received a gradient.
        failed: is called with an internal error of the tool; it must not raise.

    *Cost:* about 2 µs a tensor and call, of 16 calls at most, for each backward with ``create_graph``, and the same for each gradient.
    """

    closed = False

    def __init__(self, probe: ModuleProbe, arrived: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        self._probe, self._arrived, self.failed = probe, arrived, failed
        self._hooked: list[tuple[Tensor, Callable[[], None]]] = []  # and what removes the hook

    def follow(self, calls: Sequence[Call]) -> None:
        """A backward begins, which makes a graph of its gradients."""
        weights = [(f"{module}.{slot}".lstrip("."), t) for module, slot, t in named_state(self._probe.names, buffers=False)]
        for call in calls[-MOST_CALLS:]:
            for slot, tensor in (*call.given, *weights):
                if tensor.requires_grad:
                    self._hooked.append((tensor, hook_gradient(tensor, Hook(self._made, weakref.ref(call), slot))))

    def stop(self) -> None:
        """The backward is over, or another one begins. Safe to call twice."""
        while self._hooked:
            tensor, remove = self._hooked.pop()
            remove()
            if tensor.is_leaf and not tensor._backward_hooks:
                tensor._backward_hooks = None

    @guarded(*STOPS)
    def _made(self, call_ref: weakref.ref[Call], slot: str, gradient: Tensor | None) -> None:
        call = call_ref()
        if call is not None and gradient is not None and gradient.grad_fn is not None and call.gradients and call.gradients[-1]:
            hook_gradient(gradient, Hook(self._keep, call_ref, (len(call.gradients) - 1, slot)))

    @guarded(*STOPS)
    def _keep(self, call_ref: weakref.ref[Call], place: Place, gradient: Tensor | None) -> None:
        call = call_ref()
        if call is not None and gradient is not None and not optimizer_probe.is_paused():
            self._arrived()
            call.keep(place, gradient, REPLAY_BYTES)
