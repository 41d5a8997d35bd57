"""An asynchronous copy of a small tensor on the host."""

from __future__ import annotations

import torch
from torch import Tensor

from numscope.summary.block import pins
from numscope.summary.unseen import unseen


class HostCopy:
    """A small tensor on its way from a device. ``is_here`` asks whether it has arrived, without waiting.

    Args:
        tensor: on any device; one in CPU memory is used as it is.

    *Cost:* two copies of a few bytes, which the host does not wait for.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._host = tensor
        self._marker: Tensor | None = None
        if tensor.device.type != "cpu":
            pinned = pins(tensor.device)
            with unseen():
                self._host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=pinned)
                self._marker = torch.zeros(1, dtype=torch.int64, device="cpu", pin_memory=pinned)
                self._host.copy_(tensor, non_blocking=True)
                # Copied after it in the stream: once this has arrived, so has the tensor.
                self._marker.copy_(torch.ones(1, dtype=torch.int64, device=tensor.device), non_blocking=True)
            self._device = tensor.device

    @property
    def is_here(self) -> bool:
        return self._marker is None or bool(self._marker)

    def take(self) -> Tensor:
        """The tensor. *Cost:* a sync if it is not here yet."""
        if not self.is_here:
            torch.accelerator.current_stream(self._device).synchronize()
        return self._host
