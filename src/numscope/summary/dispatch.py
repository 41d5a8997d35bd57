"""Chooses the fastest backend that can read a tensor, and never raises in observation.

Reading leaves the surrounding code unaffected: no autograd graph, random state, autocast, torch function or dispatch mode sees it.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils._python_dispatch import _disable_current_modes

from numscope.records.errors import UsageError
from numscope.records.faults import ours
from numscope.summary import device_batch, extra_reference, native, reference
from numscope.summary.device_batch import DeviceBatch, launch_waiting
from numscope.summary.extras import Layout
from numscope.summary.state import ROW_BYTES, Groups, Summary
from numscope.summary.unwrap import Unsummarizable, address_of, describe, plain

__all__ = ["DeviceBatch", "describe", "launch_waiting", "observe", "observe_extras", "observe_many", "read", "summarize"]

_log = logging.getLogger("numscope")
_function_mode_on = torch._C._is_torch_function_mode_enabled
_num_threads = torch.get_num_threads
_codes = native.CODES
_native = native.module
_PARALLEL_NUMEL = native.PARALLEL_NUMEL
_EXTRA_CODES = {dtype: native.CODES[dtype] for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)}
_EXTRA_PARALLEL_NUMEL = 65536  # the kernel of extra columns uses threads from here on; mirrors extras.cpp


def observe(tensor: Tensor, block: Tensor, block_address: int, row: int, groups: int) -> bool:
    """Merge a tensor's summary into ``block[row]``; returns whether the tensor could be summarized.

    Args:
        tensor: any.
        block: float64[N, 16], contiguous, on the tensor's device; its ``data_ptr()``, which callers cache, is ``block_address``.

    *Cost:* one pass over memory; in addition 0.6 µs for a contiguous tensor in CPU memory, 3 µs for a transposed one, 20 µs for one that
    must be unwrapped or copied first; on a device 2 µs and a launch, which tensors share that are observed in one ``DeviceBatch``. No host
    sync.
    """
    entry = _entry(tensor)
    if entry is not None and _native is not None:
        threads = 1 if entry[1] < _PARALLEL_NUMEL else _num_threads()
        _native.observe(*entry, block_address + row * ROW_BYTES, groups, threads)
        return True
    try:
        if _is_ordinary(tensor) and not tensor.is_cpu and device_batch.observe(tensor, block, block_address, row, groups):
            return True
    except ours(RuntimeError):  # as in ``_entry``
        pass
    return read(tensor, lambda readable: _observe_plain(readable, block, block_address, row, groups))


def observe_many(tensors: Sequence[Tensor], block: Tensor, block_address: int, rows: Sequence[int], groups: int) -> list[bool]:
    """``observe`` of many tensors, each into its row of a block: one native call, with threads balanced over the batch, or one launch.

    Returns: for each tensor whether it could be summarized.
    """
    done = [True] * len(tensors)
    packed: list[int] = []  # four numbers per tensor
    others = []
    for i, tensor in enumerate(tensors):
        entry = _entry(tensor)
        if entry is None:
            others.append(i)
        else:
            packed += (*entry, block_address + rows[i] * ROW_BYTES)
    if packed and _native is not None:
        entries = array("q", packed)
        _native.observe_many(entries.buffer_info()[0], len(entries) // 4, groups, _num_threads())
    with DeviceBatch():
        for i in others:
            done[i] = observe(tensors[i], block, block_address, rows[i], groups)
    return done


def summarize(tensor: Tensor, groups: int = Groups.ALL) -> Summary:
    """The summary of one tensor.

    Args:
        tensor: any tensor whose elements can be read.
        groups: which fields to compute.

    Raises:
        UsageError: not a tensor, or a tensor whose elements can't be read (meta, fake, quantized).

    *Cost:* one pass over memory, and a host sync for a tensor on a device.
    """
    if not isinstance(tensor, Tensor):
        raise UsageError(f"summarize: got {type(tensor).__name__}, expected a torch.Tensor. Wrap plain numbers in torch.as_tensor first.")
    with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.inference_mode(False), torch.no_grad():
        try:
            readable = plain(tensor)
            block = reference.empty_block(1, readable.device)
            _observe_plain(readable, block, block.data_ptr(), 0, groups)
            launch_waiting()
        except ours(TypeError, RuntimeError) as error:  # RuntimeError: from operations that a kind of tensor lacks
            raise UsageError(f"summarize: got {describe(tensor)}, expected a tensor whose elements can be read.") from error
        return Summary.from_row(block[0].tolist())


def observe_extras(tensor: Tensor, cells: Tensor, layout: Layout) -> bool:
    """Merge a tensor's extra columns into cells; returns whether the tensor could be read.

    A complex number is two elements, neighbors in its row. A sparse tensor's implied zeros are elements. Blocks are of the
    two-dimensional view, last dimension by all others; a tensor of fewer dimensions is one row.

    Args:
        cells: float64[layout.width], contiguous, on the tensor's device; starts as ``layout.empty()``.
        layout: extras that do not describe a tensor's values are skipped.

    *Cost:* see docs/statistics.md; in addition 15 µs per call; no sync.
    """
    return not layout.packed or read(tensor, lambda readable: _observe_plain_extras(readable, cells, layout))


def read(tensor: Tensor, into: Callable[[Tensor], object]) -> bool:
    """Pass the plain tensor on, outside of all modes that the caller is in. Returns whether it could be read; never raises."""
    try:
        with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
            into(plain(tensor))
        return True
    except ours() as error:
        _log.debug("not read: %s: %s", describe(tensor), error)
        return False


def _is_ordinary(tensor: Tensor) -> bool:
    """Whether attributes and methods of a tensor are torch's own, and no mode sees them used."""
    kind = type(tensor)
    return (kind is Tensor or kind is Parameter) and not _function_mode_on()


def _entry(tensor: Tensor) -> tuple[int, int, int] | None:
    """Address, number of elements and code of the dtype of a tensor that the CPU kernel can read as it is; None for others."""
    if _native is None or not _is_ordinary(tensor):
        return None
    try:
        code = _codes.get(tensor.dtype)
        if code is None or not tensor.is_cpu or tensor.is_neg() or not (tensor.is_contiguous() or _is_dense(tensor)):
            return None
        address, numel = address_of(tensor), tensor.numel()
    except ours(RuntimeError, ValueError):  # no memory to read: a functorch wrapper, a sparse layout, efficient zeros, a freed storage
        return None
    return (address, numel, code) if address or not numel else None


def _observe_plain(tensor: Tensor, block: Tensor, block_address: int, row: int, groups: int) -> None:
    if tensor.is_complex() and tensor.layout is torch.strided:
        tensor = torch.view_as_real(tensor)
    if tensor.is_cpu and block.is_cpu and tensor.layout is torch.strided and tensor.dtype in _codes and native.available():
        if not (tensor.is_contiguous() or _is_dense(tensor)):
            tensor = tensor.contiguous()
        threads = _num_threads()
        assert _native is not None
        _native.observe(tensor.data_ptr(), tensor.numel(), _codes[tensor.dtype], block_address + row * ROW_BYTES, groups, threads)
    elif tensor.device == block.device:
        if tensor.layout is torch.strided and device_batch.observe(tensor, block, block_address, row, groups, copy=True):
            return
        with torch.autocast(tensor.device.type, enabled=False):
            reference.observe_into(tensor, block[row], groups)
    else:
        raise Unsummarizable(f"on {tensor.device}, its row on {block.device}")


def _observe_plain_extras(tensor: Tensor, cells: Tensor, layout: Layout) -> None:
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
    if tensor.dtype not in _EXTRA_CODES:
        # fp8 and integers are rare, so a copy is good enough
        tensor = tensor.to(torch.float32 if tensor.is_floating_point() and tensor.element_size() == 1 else torch.float64)
    tensor = tensor.contiguous()
    assert _native is not None
    _native.observe_extras(
        tensor.data_ptr(),
        tensor.numel(),
        tensor.shape[-1] if tensor.dim() else 1,
        _EXTRA_CODES[tensor.dtype],
        cells.data_ptr(),
        layout.packed.buffer_info()[0],
        len(layout.packed) // 4,
        1 if tensor.numel() < _EXTRA_PARALLEL_NUMEL else _num_threads(),
    )


def _is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill a range of memory without gaps or overlaps, in any order: a summary does not depend on the order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True
