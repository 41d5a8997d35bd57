"""The compiled CPU kernel, if it was built."""

from __future__ import annotations

import logging
from types import ModuleType
from typing import TypeVar

import torch

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

if module is not None:
    _C, _base = torch._C, torch.Tensor
    module.know_torch(
        *(_base, torch.nn.Parameter),
        *(_base.is_neg, _base.is_contiguous, _base.numel, _base.data_ptr, _base.detach, _base.is_floating_point, _base.is_inference),
        _base._is_view,
        *(_C._is_torch_function_mode_enabled, _C._autograd._get_sequence_nr, _C._get_tracing_state, _C._get_dispatch_mode),
        *(_C._TorchDispatchModeKey.PROXY, _C._current_graph_task_id, torch.is_grad_enabled),
        *CODES,
    )

T = TypeVar("T", bound=type)


def in_c(cls: T) -> T:
    """The class with those of its methods that the extension has too, in a type of the same name, taken from there: they do the same,
    without a Python frame. Where nothing is compiled, the class itself.
    """
    overlay = getattr(module, cls.__name__, None)
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
            "the native kernel was not built (no C++ compiler at install time?): tensors are summarized by torch, some 30 times slower. "
            "Install a C++ compiler and reinstall numscope."
        )
    return module is not None
