"""Delayed scaling: a tensor's scale follows from the amaxes of previous steps, so that a cast needs one pass over the tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from numscope.precision.casting.reference_cast import largest_of_group
from numscope.precision.casting.scaling import scale_of
from numscope.records.checks import check_one_of, check_whole
from numscope.records.errors import UsageError
from numscope.records.formats import Format, format_of

Algo = Literal["max", "most_recent"]
_ALGOS = ("max", "most_recent")


class History:
    """The amaxes of one operand in previous steps, and the scale that follows from them.

    ``scale`` and ``amax`` are float32[] tensors that change in place.

    Args:
        format: what the operand is rounded to.
        length: number of steps that count, including the one that has just ended.
        algo: ``max``, the largest of their amaxes, or ``most_recent``.
        margin: powers of two left free below the format's maximum.
        interval: steps from one new scale to the next.
        device: of the tensors.

    Raises: UsageError: a setting is out of range.

    *Source:* Transformer Engine's ``DelayedScaling``: the scale is 1 until the first step ends. It stays the same while the amax that
    counts is zero, infinite or NaN, and is at most float32's maximum.
    """

    __slots__ = ("_format_max", "_ring", "algo", "amax", "format", "interval", "margin", "num_steps", "scale")

    amax: Tensor  # the current step's; cast() merges into it
    scale: Tensor  # 1 at first
    num_steps: int  # that have ended

    def __init__(
        self,
        format: str | Format,
        length: int = 1024,
        algo: Algo = "max",
        margin: int = 0,
        interval: int = 1,
        device: torch.device | str = "cpu",
    ) -> None:
        check_one_of("amax_compute_algo", algo, _ALGOS)
        check_whole("amax_history_len", length, 1)
        check_whole("interval", interval, 1)
        if isinstance(margin, bool) or not isinstance(margin, int):
            raise UsageError(f"margin: got {margin!r}, expected a whole number.")
        self.format = format_of(format)
        self.algo, self.margin, self.interval, self.num_steps = algo, margin, interval, 0
        self.amax = torch.zeros((), dtype=torch.float32, device=device)
        self.scale = torch.ones_like(self.amax)
        self._format_max = torch.full_like(self.amax, self.format.max)
        self._ring = self.amax.new_zeros(length)  # the amax of step s is at s % length

    @property
    def amaxes(self) -> Tensor:
        """The amaxes of the steps that have ended, the latest first, padded with zeros: float32[length], a copy."""
        return self._ring.flip(0).roll(self.num_steps)

    def advance(self, group: object = None) -> None:
        """End a step: its amax joins the history, and the scale is updated.

        Args:
            group: process group whose largest amax counts.
        """
        advance_all([self], group)

    def to(self, device: torch.device | str) -> History:
        """Move to a device, in place."""
        for name in ("amax", "scale", "_format_max", "_ring"):
            setattr(self, name, getattr(self, name).to(device))
        return self

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint: the scale, the current amax, and the amaxes, the latest first."""
        return {"scale": self.scale.clone(), "amax": self.amax.clone(), "amaxes": self.amaxes, "num_steps": self.num_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned. A history of another length keeps the latest amaxes.

        Args:
            state: what ``state_dict`` returned.
        """
        self.num_steps = int(state["num_steps"])
        self.scale.copy_(state["scale"])
        self.amax.copy_(state["amax"])
        latest = state["amaxes"][: len(self._ring)].to(self._ring.device)
        padded = torch.cat([latest, latest.new_zeros(len(self._ring) - len(latest))])
        self._ring.copy_(padded.roll(-self.num_steps).flip(0))


def advance_all(histories: Sequence[History], group: object = None) -> None:
    """End a step of many histories together.

    Args:
        histories: on one device, each once; on all ranks of the group the same ones in the same order.
        group: process group whose largest amaxes count.

    Raises: UsageError: a history comes twice.

    *Cost:* one all-reduce of one float32 per history, and about a dozen operations on the device for all that have the same settings. No
    host sync.
    """
    if not histories:
        return
    if len(set(map(id, histories))) != len(histories):
        raise UsageError("advance_all: got a history twice, expected each once.")
    if group is not None:
        amaxes = largest_of_group(torch.stack([history.amax for history in histories]), group)
        torch._foreach_copy_([history.amax for history in histories], list(amaxes.unbind()))
    torch._foreach_copy_(
        [history._ring[history.num_steps % len(history._ring)] for history in histories], [history.amax for history in histories]
    )
    due: dict[tuple[str, int], list[History]] = {}
    for history in histories:
        history.num_steps += 1
        if history.num_steps % history.interval == 0:
            due.setdefault((history.algo, history.margin), []).append(history)
    for (algo, margin), some in due.items():
        counts = torch._foreach_max([history._ring for history in some]) if algo == "max" else [history.amax for history in some]
        format_max, previous = torch.stack([history._format_max for history in some]), torch.stack([history.scale for history in some])
        scales = scale_of(torch.stack(list(counts)), format_max, margin, previous=previous)
        torch._foreach_copy_([history.scale for history in some], list(scales.unbind()))
    torch._foreach_zero_([history.amax for history in histories])
