"""Gradients as backward makes them, where the script's own code updates the weights: it may clear them before a step's end is known."""

from __future__ import annotations

from torch.nn import Parameter

from numscope.detect.parameters import Parameters
from numscope.probe.optimizers import gradient_of
from numscope.summary.ledger import UNOBSERVED, Ledger


class Made:
    """Whether all gradients that a step's backwards have made are zero.

    Where gradients are still there at the step's end nothing is read for it, but in the first step. Else one gradient is read after each
    backward; all are if none is known that is not zero.

    Args:
        parameters: the model's.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._ledger = Ledger()
        self._wanted = True
        self._witness: Parameter | None = None  # its gradient was not zero when it was last looked at
        self._seen: list[tuple[Parameter, int]] = []  # of this step, with the handles of their gradients

    def see(self) -> None:
        """A backward has returned."""
        if self._wanted:
            chosen = [p for _, _, p in self._parameters.places] if self._witness is None else [self._witness]
            if any(getattr(p, "_post_accumulate_grad_hooks", None) for p in chosen):
                return  # the script takes gradients as they come, and may have cleared them
            found = [(p, gradient) for p in chosen if (gradient := gradient_of(p)) is not None]
            handles = self._ledger.observe_many([gradient for _, gradient in found])
            self._seen += [(p, handle) for (p, _), handle in zip(found, handles, strict=True) if handle != UNOBSERVED]

    def were_zero(self) -> bool | None:
        """None: unknown. *Cost:* off the host a sync."""
        if not self._seen:
            self._witness = None
            return None
        self._ledger.read()
        was_all = self._witness is None
        self._witness = next((p for p, handle in self._seen if not self._ledger.are_zero([handle])), None)
        return False if self._witness is not None else True if was_all else None

    def round(self, wanted: bool) -> None:
        """A step is over; ``wanted``: nothing was left of its gradients."""
        self._wanted = wanted
        self._seen.clear()
        self._ledger.reset()
