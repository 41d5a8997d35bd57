"""Values of codes that were kept: bitwise those that the cast itself gave."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import torch
from torch import Tensor

from numscope.precision.casting.cast import Cast, decode
from numscope.precision.casting.reference import as_matrix, dtype_of, scaled_back
from numscope.records.formats import Format
from numscope.summary import native

__all__ = ["values_of"]

_DTYPES: Final = frozenset({torch.float32, torch.bfloat16, torch.float16})
_num_dispatch_modes = torch._C._len_torch_dispatch_stack
_PARALLEL_NUMEL: Final = 65536  # mirrors decode.cpp


def values_of(made: Cast, like: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers of codes times their scales.

    Args:
        made: with codes.
        like: the tensor that was cast; its data is not read.
        dtype: of the values.

    *Cost:* native (codes of one byte in CPU memory): one read of the codes, one write of the values, a second one where blocks are not
    float32. Else some passes.
    """
    codes = made.codes
    assert codes is not None
    if (
        not _num_dispatch_modes()  # which would not see the memory written
        and codes.is_cpu
        and codes.itemsize == 1
        and dtype in _DTYPES
        and like.dtype is not torch.float64
        and hasattr(native.module, "cast_decode")
    ):
        fast = _looked_up(made, codes, dtype)
        if fast is not None:
            return fast
    numbers = decode(codes, made.how.format)
    if like.dtype is torch.float64:
        numbers = numbers.double()
    return scaled_back(numbers, made.scale_inv, made.how.scaling, made.columnwise).to(dtype)


def _looked_up(made: Cast, codes: Tensor, dtype: torch.dtype) -> Tensor | None:
    if native.module is None or type(codes) is not Tensor or not codes.is_cpu or codes.itemsize != 1:
        return None
    if not codes.is_contiguous() or not codes.numel() or not made.scale_inv.is_contiguous():
        return None
    scaling = made.how.scaling
    table = _numbers(made.how.format)
    scale_inv, sides = 0, (0, 0)
    if scaling.kind == "tensor":
        table = (table * made.scale_inv).to(dtype)
    else:
        scale_inv = made.scale_inv.data_ptr()
        sides = (1, 0) if scaling.kind == "row" else scaling.block
        if made.columnwise:
            sides = (sides[1], sides[0])
    values = torch.empty(codes.shape, dtype=table.dtype)
    rows, columns = as_matrix(codes).shape
    threads = 1 if codes.numel() < _PARALLEL_NUMEL else torch.get_num_threads()
    native.module.cast_decode(
        codes.data_ptr(), rows, columns, table.data_ptr(), table.itemsize, values.data_ptr(), scale_inv, *sides, threads
    )
    return values if values.dtype is dtype else values.to(dtype)


@lru_cache(maxsize=16)
def _numbers(form: Format) -> Tensor:
    """Of all 256 codes: float32."""
    dtype = dtype_of(form)
    codes = torch.arange(256, dtype=torch.uint8)
    if dtype is torch.uint8:
        codes &= (1 << form.bits) - 1
    return decode(codes if dtype is torch.uint8 else codes.view(dtype), form).contiguous()
