"""Casts made on paper for statistics: what current and block scaling would do to a tensor, without changing the training."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from numscope.precision.casting.cast import cast
from numscope.precision.casting.scaling import How
from numscope.precision.gemm.recipes import MXFP8, NVFP4, BlockScaling, CurrentScaling, Recipe
from numscope.summary.dispatch import read
from numscope.summary.extras import Layout

_RECIPES: dict[str, Recipe] = {
    "fp8_current_scaling": CurrentScaling(fp8_format="e4m3"),
    "fp8_block_scaling": BlockScaling(),
    "mxfp8": MXFP8(),
    "nvfp4": NVFP4(),
}


@cache
def how_of(key: str, tensor: str) -> How:
    """How a recipe of ``operand_casts.ON_PAPER`` casts a tensor: ``weight`` and ``wgrad`` as weights, all others as activations."""
    plan = _RECIPES[key].plan()
    how = plan["fprop", "weight" if tensor in ("weight", "wgrad") else "activation"]
    assert how is not None
    return how


def cast_on_paper(tensor: Tensor, kind: str, cells: Tensor, layout: Layout) -> bool:
    """Merge what casts would do to a tensor into its extras' cells; returns whether it could be read.

    Args:
        tensor: any. A complex number counts as two neighboring elements. Integers are not cast.
        kind: ``activation``, ``weight``, …: decides on the blocks.
        cells: float64[layout.width] on the tensor's device.
        layout: extras that are no casts are ignored.

    *Cost:* one pass per cast, two if its scales need the whole tensor's amax first; no sync.
    """
    return not layout.has_casts or read(tensor, lambda readable: _cast_on_paper(readable, kind, cells, layout))


def _cast_on_paper(x: Tensor, kind: str, cells: Tensor, layout: Layout) -> None:
    if x.layout is not torch.strided:
        x = x.to_dense()
    if x.is_complex():
        x = torch.view_as_real(x.resolve_conj()).flatten(-2)
    if not x.is_floating_point() or not x.numel():
        return
    if x.element_size() == 1:
        x = x.to(torch.float32)
    for extra in layout.extras:
        if extra.kind == "cast":
            first = layout.offsets[extra.key]
            how, columnwise = how_of(extra.key.removesuffix("_columnwise"), kind), extra.key.endswith("_columnwise")
            cast(x, how, columnwise=columnwise, values=False, cells=cells[first : first + extra.width])
