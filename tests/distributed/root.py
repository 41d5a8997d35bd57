"""A custom function whose forward is right and whose backward divides by zero."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.tape import line_of


class Root(torch.autograd.Function):
    """Its backward divides by the root, which is zero where the input is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.abs()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient / (x * 0)  # the division


DIVISION = __file__, line_of("the division", __file__)
