"""Casts made on paper for statistics: what current and block scaling would do to a tensor, without changing the training."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from numscope.precision.casting.cast import cast
from numscope.precision.casting.scaling import How
from numscope.precision.gemm.recipes import MXFP8, NVFP4, BlockScaling, CurrentScaling, Recipe
from numscope.records.formats import Format
from numscope.summary.dispatch import read
from numscope.summary.extras import Layout

_RECIPES: dict[str, Recipe] = {
    "fp8_current_scaling": CurrentScaling(),
    "fp8_block_scaling": BlockScaling(),
    "mxfp8": MXFP8(),
    "mxfp8_rceil": MXFP8(e8m0_rounding="rceil"),
    "nvfp4": NVFP4(),
}
_OPERANDS = {
    **dict.fromkeys(("weight", "wgrad"), ("fprop", "weight")),
    **dict.fromkeys(("gradient", "dgrad"), ("dgrad", "gradient")),
}


@cache
def how_of(key: str, tensor: str, own: Format | None = None) -> How:
    """How a recipe of ``operand_casts.ON_PAPER`` casts a tensor.

    Args:
        tensor: ``weight`` and ``wgrad`` are cast as weights, ``gradient`` and ``dgrad`` as gradients, all others as activations.
        own: the fp8 format that the layer itself has the tensor in, which fp8 recipes then keep, as in Transformer Engine; None: the
            recipe's default, which is e5m2 for gradients under current scaling.
    """
    gemm, operand = _OPERANDS.get(tensor, ("fprop", "activation"))
    how = _RECIPES[key].plan()[gemm, operand]
    assert how is not None
    return how if own is None or how.family == "nvfp4" else how.replace(format=own)


def cast_on_paper(tensor: Tensor, kind: str, cells: Tensor, layout: Layout, own: Format | None = None) -> bool:
    """Merge what casts would do to a tensor into its extras' cells; returns whether it could be read.

    Args:
        tensor: any. A complex number counts as two neighboring elements. Integers are not cast.
        kind: ``activation``, ``weight``, …: decides on blocks and formats.
        cells: float64[layout.width] on the tensor's device.
        layout: extras that are no casts are ignored.
        own: as for ``how_of``.

    *Cost:* one pass per cast, two if its scales need the whole tensor's amax first; no sync.
    """
    return not layout.has_casts or read(tensor, lambda readable: _cast_on_paper(readable, kind, cells, layout, own))


def _cast_on_paper(x: Tensor, kind: str, cells: Tensor, layout: Layout, own: Format | None) -> None:
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
            how, columnwise = how_of(extra.key.removesuffix("_columnwise"), kind, own), extra.key.endswith("_columnwise")
            cast(x, how, columnwise=columnwise, values=False, cells=cells[first : first + extra.width])
