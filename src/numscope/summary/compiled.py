"""``torch.ops.numscope.observe``: observes inside a compiled graph, which can call operators but not Python."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from numscope.summary.dispatch import observe

_library: Any = None


def register() -> None:
    """Register ``torch.ops.numscope.observe(Tensor x, Tensor(a!) block, int row, int groups) -> ()``. Safe to call twice.

    The operator merges ``x``'s summary into ``block[row]``. It has no gradient. A graph that calls it compiles with ``fullgraph=True``.

    *Cost:* some 3 µs per call besides the pass over memory. A compiled graph must store ``x`` for it, even if it would have fused it away.
    """
    global _library
    if _library is not None:
        return
    untyped: Any = torch.library
    library = untyped.Library("numscope", "FRAGMENT")
    library.define("observe(Tensor x, Tensor(a!) block, int row, int groups) -> ()", tags=(torch.Tag.pt2_compliant_tag,))
    library.impl("observe", _observe, "CompositeExplicitAutograd")
    library.impl("observe", torch.library.fallthrough_kernel, "Autograd")
    torch.library.register_fake("numscope::observe", _observe_nothing, lib=library)
    _library = library  # the registration lives as long as this object


def _observe(x: Tensor, block: Tensor, row: int, groups: int) -> None:
    observe(x, block, block.data_ptr(), row, groups)


def _observe_nothing(x: Tensor, block: Tensor, row: int, groups: int) -> None:
    return None
