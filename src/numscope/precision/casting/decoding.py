"""The values of codes: bitwise those that the cast itself computes."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import torch
from torch import Tensor

from numscope.precision.casting.cast import Cast
from numscope.precision.casting.reference import as_matrix, decode, dtype_of, scaled_back
from numscope.records.formats import Format
from numscope.summary import native

_DTYPES: Final = frozenset({torch.float32, torch.bfloat16, torch.float16})
_num_dispatch_modes = torch._C._len_torch_dispatch_stack
_PARALLEL_NUMEL: Final = 65536  # mirrors decode.cpp


def values_of(made: Cast, like: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbers of a cast's codes times their scales, in a dtype. Of the tensor that was cast only the dtype matters.

    *Cost:* native (one-byte codes in CPU memory): one read of the codes and one write of the values, two for scaled blocks in another dtype
    than float32. Otherwise several passes.
    """
    codes = made.codes
    assert codes is not None
    if (
        not _num_dispatch_modes()  # they would not see the kernel write memory
        and codes.is_cpu
        and codes.itemsize == 1
        and dtype in _DTYPES
        and like.dtype is not torch.float64
        and native.module is not None
        and type(codes) is Tensor
        and codes.is_contiguous()
        and codes.numel()
        and made.scale_inv.is_contiguous()
    ):
        return _looked_up(made, codes, dtype)
    numbers = decode(codes, made.how.format)
    if like.dtype is torch.float64:
        numbers = numbers.double()
    return scaled_back(numbers, made.scale_inv, made.how.scaling, made.columnwise).to(dtype)


def _looked_up(made: Cast, codes: Tensor, dtype: torch.dtype) -> Tensor:
    """The same by the kernel, from a table of all codes."""
    assert native.module is not None
    scaling = made.how.scaling
    table = _numbers(made.how.format)
    scale_inv = 0
    if scaling.kind == "tensor":
        table = (table * made.scale_inv).to(dtype)
    else:
        scale_inv = made.scale_inv.data_ptr()
    sides = scaling.sides(made.columnwise)
    values = torch.empty(codes.shape, dtype=table.dtype)
    rows, columns = as_matrix(codes).shape
    threads = 1 if codes.numel() < _PARALLEL_NUMEL else torch.get_num_threads()
    native.module.cast_decode(
        codes.data_ptr(), rows, columns, table.data_ptr(), table.itemsize, values.data_ptr(), scale_inv, *sides, threads
    )
    return values if values.dtype is dtype else values.to(dtype)


@lru_cache(maxsize=16)
def _numbers(form: Format) -> Tensor:
    """The float32 numbers of all 256 codes."""
    dtype = dtype_of(form)
    codes = torch.arange(256, dtype=torch.uint8)
    if dtype is torch.uint8:
        codes &= (1 << form.bits) - 1
    return decode(codes if dtype is torch.uint8 else codes.view(dtype), form).contiguous()
