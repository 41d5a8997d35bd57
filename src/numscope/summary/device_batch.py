"""Reads many tensors in a device's memory with one launch of the device's kernel."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from numscope.records.faults import ours
from numscope.summary import reference
from numscope.summary.native import CODES
from numscope.summary.state import ROW_BYTES, KernelInput

Launch = Callable[[Sequence[KernelInput], int], None]

_MAX_STRIDED = 1 << 31  # elements, with the gaps between: the kernel counts in 32 bits where it divides
_log = logging.getLogger("numscope")


@cache  # asked at each launch
def _cuda(device: torch.device) -> Launch:
    from numscope.summary import triton_launch  # asks for triton

    return triton_launch.launcher_of(device)


KERNELS: dict[str, Callable[[torch.device], Launch]] = {"cuda": _cuda}  # by type of device
_CODES = {dtype: code for dtype, code in CODES.items() if dtype.is_floating_point}
_refused: set[tuple[str, torch.dtype]] = set()


class _Waiting(threading.local):
    """Tensors that wait for a thread's next launch."""

    depth = 0

    def __init__(self) -> None:
        self.tensors: dict[tuple[torch.device, int, bool], list[tuple[KernelInput, Tensor, Tensor, int]]] = {}


_waiting = _Waiting()


class DeviceBatch:
    """A context in which tensors observed on a device wait; when the outermost one ends, they are read in one launch per device."""

    def __enter__(self) -> None:
        _waiting.depth += 1

    def __exit__(self, *_: object) -> None:
        _waiting.depth -= 1
        if not _waiting.depth:
            launch_waiting()


def launch_waiting() -> None:
    """Read the waiting tensors now, as before rows are moved or read."""
    if _waiting.tensors:
        waiting, _waiting.tensors = _waiting.tensors, {}
        for (device, groups, _), found in waiting.items():
            try:
                KERNELS[device.type](device)([entry for entry, _, _, _ in found], groups)
            except ours() as error:  # triton is not installed, or there is no compiler; nothing has been written
                dtypes = {tensor.dtype for _, tensor, _, _ in found}
                _log.warning("no kernel summarizes %s on %s, torch does: %s", ", ".join(sorted(map(str, dtypes))), device, error)
                _refused.update((device.type, dtype) for dtype in dtypes)
                with torch._C.DisableTorchFunction(), torch.no_grad(), torch.autocast(device.type, enabled=False):
                    for _, tensor, block, row in found:
                        reference.observe_into(tensor, block[row], groups)


def observe(tensor: Tensor, block: Tensor, block_address: int, row: int, groups: int, copy: bool = False) -> bool:
    """Merge a plain tensor's summary into ``block[row]`` with the device's kernel, in one launch with other tensors observed now.

    Returns: whether it can; if not, nothing is done. ``copy``: a tensor may be copied if its elements are not in equal rows.

    *Cost:* one pass over memory, 2 µs of the host and a part of a launch; no sync.
    """
    device = tensor.device
    code = _CODES.get(tensor.dtype)
    if code is None or device.type not in KERNELS or tensor.is_neg() or (_refused and (device.type, tensor.dtype) in _refused):
        return False
    numel = tensor.numel()
    if not numel:
        return True
    steps: tuple[int, ...] = ()
    if not tensor.is_contiguous():
        found = _steps(tensor)
        if found is None or (found and max(numel, numel // found[0] * found[1]) >= _MAX_STRIDED):
            if not copy:
                return False
            tensor, found = tensor.contiguous(), ()
        steps = found
    address = tensor.data_ptr()
    if not address:  # without memory
        return False
    entry = (address, block_address + row * ROW_BYTES, numel, code, *steps)
    waiting = _waiting
    key = device, groups, numel < _MAX_STRIDED
    together = waiting.tensors.get(key)
    if together is None:
        waiting.tensors[key] = [(entry, tensor, block, row)]
    else:
        together.append((entry, tensor, block, row))
    if not waiting.depth:
        launch_waiting()
    return True


def _steps(tensor: Tensor) -> tuple[int, ...] | None:
    """A row's length and both steps, if the elements are equal rows; nothing if they fill memory without gaps; None for other layouts.

    A summary does not depend on the order, so that dimensions are taken in that of memory.
    """
    rows: list[tuple[int, int]] = []  # stride, size: from the innermost
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if rows and stride == rows[-1][0] * rows[-1][1]:
                rows[-1] = rows[-1][0], rows[-1][1] * size
            else:
                rows.append((stride, size))
    if not rows or (len(rows) == 1 and rows[0][0] == 1):
        return ()
    if len(rows) > 2:
        return None
    (col_stride, cols), (row_stride, _) = rows[0], rows[-1] if len(rows) == 2 else (0, 1)
    return cols, row_stride, col_stride
