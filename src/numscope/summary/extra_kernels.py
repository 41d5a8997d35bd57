"""Computes a tensor's extra columns: natively in CPU memory, else with torch. Reading leaves the surrounding code unaffected."""

from __future__ import annotations

import logging

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils._python_dispatch import _disable_current_modes

from numscope.summary import extra_reference, native
from numscope.summary.extras import Layout
from numscope.summary.unwrap import describe, plain

_PARALLEL_NUMEL = 65536  # the kernel uses threads from here on; mirrors extras.cpp
_function_mode_on = torch._C._is_torch_function_mode_enabled
_log = logging.getLogger("numscope")
_NATIVE = {dtype: native.CODES[dtype] for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)}


def observe_extras(tensor: Tensor, cells: Tensor, layout: Layout) -> bool:
    """Merge a tensor's extra columns into cells.

    A complex number is two elements, neighbors in its row. A sparse tensor's implied zeros are elements. Blocks are of the
    two-dimensional view, last dimension by all others; a tensor of fewer dimensions is one row.

    Args:
        tensor: any.
        cells: float64[layout.width], contiguous, on the tensor's device; starts as ``layout.empty()``.
        layout: extras whose source is not a tensor are skipped.

    Returns:
        Whether the tensor could be read.

    *Cost:* see docs/statistics.md; in addition 2 µs per call for a contiguous tensor in CPU memory, 15 µs for others; no sync.
    """
    if not layout.packed:
        return True
    kind = type(tensor)
    try:
        if (kind is Tensor or kind is Parameter) and native.module is not None and not _function_mode_on():
            known = tensor.dtype in _NATIVE and tensor.is_cpu and cells.is_cpu
            if known and tensor.is_contiguous() and not tensor.is_neg() and tensor.data_ptr():
                _observe_native(tensor, cells, layout)
                return True
    except RuntimeError:  # no memory to read: a functorch wrapper, a sparse layout, a tensor of efficient zeros
        pass
    try:
        with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
            _observe_plain(plain(tensor), cells, layout)
        return True
    except Exception as error:
        _log.debug("extra columns not taken: %s: %s", describe(tensor), error)
        return False


def _observe_plain(tensor: Tensor, cells: Tensor, layout: Layout) -> None:
    if tensor.numel() == 0:
        return
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor).flatten(-2)
    if not (tensor.is_cpu and cells.is_cpu and native.available()):
        with torch.autocast(tensor.device.type, enabled=False):
            extra_reference.observe_into(tensor, cells, layout)
        return
    if tensor.dtype not in _NATIVE:
        # fp8 and integers are rare, so a copy is good enough
        tensor = tensor.to(torch.float32 if tensor.is_floating_point() and tensor.element_size() == 1 else torch.float64)
    _observe_native(tensor.contiguous(), cells, layout)


def _observe_native(tensor: Tensor, cells: Tensor, layout: Layout) -> None:
    assert native.module is not None
    numel, specs = tensor.numel(), layout.packed
    if numel:
        native.module.observe_extras(
            tensor.data_ptr(),
            numel,
            tensor.shape[-1] if tensor.dim() else 1,
            _NATIVE[tensor.dtype],
            cells.data_ptr(),
            specs.buffer_info()[0],
            len(specs) // 4,
            1 if numel < _PARALLEL_NUMEL else torch.get_num_threads(),
        )
