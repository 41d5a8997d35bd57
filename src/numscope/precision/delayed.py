"""Delayed scaling: a tensor's scale from the amaxes of the steps before, so that one pass over the tensor is enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch

from numscope.errors import UsageError
from numscope.formats import Format, format_of
from numscope.precision.scaling import scale_of

__all__ = ["History", "advance_all"]

_ALGOS = ("max", "most_recent")


class History:
    """The amaxes of one operand's last steps, and the scale that follows from them.

    Args:
        format: what the operand is rounded to.
        length: steps that count, the one just over included.
        algo: the largest of them, or the last one.
        margin: powers of two left free below the format's maximum.
        interval: steps from one new scale to the next.
        device: of the tensors.

    *Source:* Transformer Engine's ``DelayedScaling``: the scale is 1 until the first step is over; an amax of zero, infinity or NaN keeps
    the scale; an infinite scale is float32's maximum.
    """

    __slots__ = ("algo", "amax", "amaxes", "format", "interval", "length", "margin", "num_steps", "scale")

    def __init__(
        self,
        format: str | Format,
        length: int = 1024,
        algo: Literal["max", "most_recent"] = "max",
        margin: int = 0,
        interval: int = 1,
        device: torch.device | str = "cpu",
    ) -> None:
        if algo not in _ALGOS:
            raise UsageError(f"amax_compute_algo: got {algo!r}, expected one of {', '.join(_ALGOS)}.")
        for name, value in (("amax_history_len", length), ("interval", interval)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name}: got {value!r}, expected a whole number from 1.")
        self.format = format_of(format)
        self.length, self.algo, self.margin, self.interval = length, algo, margin, interval
        self.num_steps = 0
        self.scale = torch.ones((), dtype=torch.float32, device=device)
        self.amax = torch.zeros((), dtype=torch.float32, device=device)  # of the current step; cast() merges into it
        self.amaxes = torch.zeros(length, dtype=torch.float32, device=device)  # a ring: step n is at n % length

    def advance(self, group: object = None) -> None:
        """End a step: its amax joins the history, and the scale follows.

        Args:
            group: process group whose largest amax counts.
        """
        advance_all([self], group)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: the scale, and the amaxes with the latest first."""
        latest_first = self.amaxes.roll(-(self.num_steps % self.length)).flip(0)
        return {"scale": self.scale.clone(), "amax": self.amax.clone(), "amaxes": latest_first, "num_steps": self.num_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave; a history of another length keeps the latest amaxes.

        Args:
            state: as ``state_dict`` gave it.
        """
        self.scale.copy_(state["scale"])
        self.amax.copy_(state["amax"])
        latest = state["amaxes"][: self.length].flip(0)
        self.num_steps = state["num_steps"]
        self.amaxes.zero_()
        self.amaxes[self.length - len(latest) :] = latest.to(self.amaxes.device)
        self.amaxes.copy_(self.amaxes.roll(self.num_steps % self.length))


def advance_all(histories: Sequence[History], group: object = None) -> None:
    """End a step of many histories together.

    Args:
        histories: of one device; on all ranks of the group the same ones in the same order.
        group: process group whose largest amaxes count.

    *Cost:* one all-reduce of as many float32 as there are histories; no host sync.
    """
    if not histories:
        return
    amaxes = torch.stack([history.amax for history in histories])
    if group is not None:
        import torch.distributed as dist

        dist.all_reduce(amaxes, op=dist.ReduceOp.MAX, group=group)
    for history, amax in zip(histories, amaxes.unbind(), strict=True):
        history.amaxes[history.num_steps % history.length] = amax
        history.num_steps += 1
        history.amax.zero_()
        if history.num_steps % history.interval == 0:
            counts = history.amaxes.amax() if history.algo == "max" else amax
            history.scale.copy_(scale_of(counts, history.format.max, history.margin, previous=history.scale))
