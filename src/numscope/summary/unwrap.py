"""From any tensor to a plain tensor whose elements can be read."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from numscope.records.faults import ours

_MAX_NESTING = 8
_functorch = torch._C._functorch


class Unsummarizable(TypeError):
    """A tensor whose elements can't be read; the message describes it."""


def address_of(tensor: Tensor) -> int:
    """Where a strided tensor's elements begin; 0 if it has none, or its storage was freed or cut short."""
    length = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    is_whole = (tensor.storage_offset() + length) * tensor.itemsize <= tensor.untyped_storage().nbytes()
    return tensor.data_ptr() if is_whole else 0


def plain(tensor: Tensor) -> Tensor:
    """The plain tensor with a tensor's elements, detached.

    It is the local part of a DTensor, the awaited result of an asynchronous collective, the values of a jagged tensor, and the dequantized
    tensor or only inner tensor of a wrapper subclass.

    Raises:
        Unsummarizable: the tensor is meta, fake, lazy, inside a functorch transform, quantized, or of an unknown wrapper subclass, or its
            storage was freed.
    """
    for _ in range(_MAX_NESTING):
        if is_wrapped(tensor) or is_lazy(tensor) or tensor.device.type == "meta" or is_fake(tensor) or _is_quantized(tensor):
            raise Unsummarizable(describe(tensor))
        if not torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python):
            tensor = tensor.detach()  # a subclass that only changes the type: its memory is an ordinary tensor's
            if tensor._is_zerotensor():  # it has no memory
                return torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            if tensor.layout is not torch.strided:
                return tensor
            if tensor.numel() and not tensor.is_nested and not address_of(tensor):
                raise Unsummarizable(describe(tensor))
            return tensor.resolve_conj().resolve_neg()
        tensor = _inner(tensor)
    raise Unsummarizable(describe(tensor))


def _inner(tensor: Any) -> Tensor:  # Any, since only some subclasses have these attributes
    kind = type(tensor)
    names = {base.__name__ for base in kind.__mro__}  # compared by name: importing torch.distributed.tensor would load all of it
    inner: Tensor
    if "DTensor" in names:
        inner = tensor._local_tensor
    elif "AsyncCollectiveTensor" in names:
        inner = tensor.trigger_wait()
    elif "NestedTensor" in names:
        inner = tensor._values
    elif kind.dequantize is not Tensor.dequantize:
        inner = tensor.dequantize()
    else:
        parts = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]] if is_traceable_wrapper_subclass(tensor) else []
        if len(parts) != 1 or parts[0].shape != tensor.shape:
            raise Unsummarizable(describe(tensor))
        inner = parts[0]
    return inner


def is_wrapped(tensor: Tensor) -> bool:
    """Whether a transform of torch's has made it, such as vmap, or ``autograd.grad`` with ``is_grads_batched``: it has no memory."""
    return bool(_functorch.is_functorch_wrapped_tensor(tensor) or _functorch.is_legacy_batchedtensor(tensor))


def is_fake(tensor: Tensor) -> bool:
    return any(base.__name__ in ("FakeTensor", "FunctionalTensor") for base in type(tensor).__mro__)


def _is_quantized(tensor: Tensor) -> bool:
    return not torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python) and tensor.is_quantized


def describe(tensor: object) -> str:
    """A tensor, or another value, in a few words: ``meta tensor float32[2, 3]``. Never raises."""
    if not isinstance(tensor, Tensor):
        return f"{type(tensor).__name__}, not a tensor"
    try:
        with torch._C.DisableTorchFunction():
            return f"{_kind(tensor)} {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    except ours():  # an uninitialized parameter has no shape; others may lack more
        return f"{type(tensor).__name__} of unknown shape"


def _kind(tensor: Tensor) -> str:
    if is_wrapped(tensor):
        return "functorch tensor"
    if is_fake(tensor):
        return "fake tensor"
    if tensor.device.type == "meta":
        return "meta tensor"
    if _is_quantized(tensor):
        return "quantized tensor"
    if tensor.layout is not torch.strided:
        return f"{str(tensor.layout).removeprefix('torch.')} tensor"
    kind = type(tensor)
    return "tensor" if kind in (Tensor, torch.nn.Parameter) else kind.__name__
