"""The compiled CPU kernel, if it was built."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from types import ModuleType
from typing import TypeVar

import torch

from numscope.records.faults import ours

try:
    from numscope.summary import _native

    module: ModuleType | None = _native
except ImportError:
    module = None

# Order mirrors enum Dtype in csrc/summary.h
CODES: dict[torch.dtype, int] = {
    torch.float32: 0,
    torch.float64: 1,
    torch.bfloat16: 2,
    torch.float16: 3,
    torch.float8_e4m3fn: 4,
    torch.float8_e5m2: 5,
    torch.float8_e4m3fnuz: 6,
    torch.float8_e5m2fnuz: 7,
    torch.int64: 8,
    torch.int32: 9,
    torch.int16: 10,
    torch.int8: 11,
    torch.uint8: 12,
    torch.bool: 13,
}
PARALLEL_NUMEL = 262144  # the kernel uses threads from here on; mirrors observe.cpp

# Functions of torch's stable interface in C (from 2.10 on), in the order of csrc/python.cpp.
_STABLE = ("device_type", "layout", "dtype", "is_contiguous", "numel", "storage_offset", "storage_size", "dim", "sizes", "strides")


def _addresses() -> list[int]:
    """Addresses of these functions in the library that torch has loaded. Raises OSError or AttributeError where it has none."""
    suffix = "dylib" if sys.platform == "darwin" else "so"
    library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", f"libtorch_cpu.{suffix}"))
    names = [f"aoti_torch_{name}" if name.startswith("is_") else f"aoti_torch_get_{name}" for name in _STABLE]
    return [ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in (*names, "torch_get_const_data_ptr")]


knows_torch = False  # whether C can read tensors' attributes; else the Python methods run
if module is not None:
    _C, _base = torch._C, torch.Tensor
    module.know_torch(
        *(_base, torch.nn.Parameter),
        *(_base.is_neg, _base.is_contiguous, _base.numel, _base.detach, _base.is_floating_point, _base.untyped_storage),
        _base._is_view,
        *(_C._is_torch_function_mode_enabled, _C._autograd._get_sequence_nr, _C._get_tracing_state),
        *(_C._len_torch_dispatch_stack, _C._get_dispatch_mode),
        *(_C._TorchDispatchModeKey.PROXY, _C._TorchDispatchModeKey.FAKE, _C._current_graph_task_id, torch.is_grad_enabled),
        *CODES,
    )
    try:
        module.know_stable(*_addresses(), *(torch.empty(0, dtype=dtype, device="cpu") for dtype in CODES))
        knows_torch = True
    except ours(OSError, AttributeError) as error:
        logging.getLogger("numscope").debug("torch's stable interface was not found: %s", error)

T = TypeVar("T", bound=type)


def in_c(cls: T) -> T:
    """Replaces methods of a class by those of the same names in the extension's type of the same name: they do the same without a Python
    frame. Without the extension, returns the class itself.
    """
    overlay = getattr(module, cls.__name__, None) if knows_torch else None
    if overlay is None:
        return cls
    about = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(cls)(cls.__name__, (overlay, cls), about)


_said = False


def available() -> bool:
    """Whether the kernel was built; if not, logs it once."""
    global _said
    if module is None and not _said:
        _said = True
        logging.getLogger("numscope").warning(
            "numscope works without its native kernel, which was not built (no C++ compiler at install time?): tensors are summarized by "
            "torch, some 30 times slower. Install a C++ compiler and reinstall numscope."
        )
    return module is not None
