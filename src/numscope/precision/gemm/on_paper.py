"""Casts made on paper for statistics: what current and block scaling would do to a tensor, without changing the training."""

from __future__ import annotations

import logging
from functools import cache

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from numscope.precision.casting.cast import cast
from numscope.precision.casting.scaling import How
from numscope.precision.gemm.recipes import MXFP8, NVFP4, BlockScaling, CurrentScaling, Recipe
from numscope.summary.extras import Layout
from numscope.summary.unwrap import describe, plain

log = logging.getLogger("numscope")

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
    """Merge what casts would do to a tensor into its extras' cells; returns whether it could be cast.

    Args:
        tensor: any. A complex number counts as two neighboring elements. Integers are not cast.
        kind: ``activation``, ``weight``, …: decides on the blocks.
        cells: float64[layout.width] on the tensor's device.
        layout: extras whose source is not a cast are ignored.

    *Cost:* one pass per cast, two if its scales need the whole tensor's amax first; no sync.
    """
    extras = [extra for extra in layout.extras if extra.source == "cast"]
    if not extras:
        return True
    try:
        with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
            x = plain(tensor)
            if x.layout is not torch.strided:
                x = x.to_dense()
            if x.is_complex():
                x = torch.view_as_real(x.resolve_conj()).flatten(-2)
            if not x.is_floating_point() or not x.numel():
                return not x.numel()
            if x.element_size() == 1:
                x = x.to(torch.float32)
            for extra in extras:
                first = layout.offsets[extra.key]
                how, columnwise = how_of(extra.key.removesuffix("_columnwise"), kind), extra.key.endswith("_columnwise")
                cast(x, how, columnwise=columnwise, values=False, cells=cells[first : first + extra.width])
        return True
    except Exception as error:
        log.debug("casts on paper not made: %s: %s", describe(tensor), error)
        return False
