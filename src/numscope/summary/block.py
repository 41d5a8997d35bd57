"""A device's rows, and their copy on the host."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from numscope.summary import dispatch, native
from numscope.summary.state import EMPTY_ROW, ROW_BYTES, ROW_WIDTH


def untransformed() -> contextlib.AbstractContextManager[Any]:
    """Inside torch.func's transforms, the rows are tensors like everywhere else."""
    if torch._C._functorch.peek_interpreter_stack() is None:
        return contextlib.nullcontext()
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    return temporarily_clear_interpreter_stack()


def pins(device: torch.device) -> bool:
    """Whether a device copies to pinned host memory while the host goes on."""
    accelerator = torch.accelerator.current_accelerator()
    return accelerator is not None and accelerator.type == device.type


class Block:
    """Rows of one device: a float64 tensor ``[capacity, ROW_WIDTH]`` that grows by doubling."""

    __slots__ = ("address", "capacity", "device", "empty", "handles", "host", "num_read", "rows")

    def __init__(self, device: torch.device, capacity: int) -> None:
        self.device = device
        self.capacity = 0
        self.handles: list[int] = []  # row → handle
        self.rows: Tensor
        self.host: Tensor
        self.address = 0
        self.num_read = 0  # rows whose current content the host has
        self.grow(capacity)

    def grow(self, capacity: int) -> None:
        dispatch.launch_waiting()
        with untransformed(), torch._C.DisableTorchFunction(), _disable_current_modes(), torch.inference_mode(False), torch.no_grad():
            self.empty = torch.tensor(EMPTY_ROW, dtype=torch.float64, device="cpu").to(self.device, non_blocking=True)
            rows = self.empty.repeat(capacity, 1)
            if self.capacity:
                rows[: self.capacity] = self.rows
            on_host = rows
            if self.device.type != "cpu":
                on_host = torch.empty(rows.shape, dtype=torch.float64, device="cpu", pin_memory=pins(self.device))
        self.rows, self.host, self.capacity, self.address = rows, on_host, capacity, rows.data_ptr()
        self.num_read = 0

    def fetch(self) -> bool:
        """Begin to copy new rows to the host; returns whether somebody must wait for it."""
        count = len(self.handles)
        if self.device.type == "cpu" or self.num_read == count:
            return False
        with torch.no_grad():
            self.host[:count].copy_(self.rows[:count], non_blocking=True)
        self.num_read = count
        return self.host.is_pinned()

    def clear(self, first: int, count: int) -> None:
        """Make rows empty. *Cost:* one launch on a device."""
        dispatch.launch_waiting()
        self.num_read = 0
        if native.module is not None and self.device.type == "cpu":
            native.module.reset(self.address + first * ROW_BYTES, count)
        else:
            with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
                self.rows[first : first + count].copy_(self.empty)

    def view(self) -> Any:
        """The rows on the host, as a ctypes array of their float64, valid until a row is added. *Cost:* 1 µs, nothing is copied."""
        return (ctypes.c_double * (len(self.handles) * ROW_WIDTH)).from_address(self.host.data_ptr())

    def bad_rows(self) -> list[int]:
        """Rows with a nan or an inf, as of the last read; where the rows lie in host memory, as of now."""
        count = len(self.handles)
        if not count:
            return []
        if native.module is not None:
            found: list[int] = native.module.bad_rows(self.host.data_ptr(), count)
            return found
        with torch.no_grad():
            return (self.host[:count, 1:4] > 0).any(1).nonzero().flatten().tolist()
