"""Extra cells of a site that need more than one pass over its tensor's elements, or the tensor as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from numscope.inspect.ranks import Joint
from numscope.inspect.sites import PlannedSite
from numscope.records.fingerprint import NUM_SUMS
from numscope.records.formats import Format
from numscope.summary.attention import attention_cells
from numscope.summary.dispatch import read
from numscope.summary.extras import Layout
from numscope.summary.sketch import add_sums, part_of
from numscope.summary.spectral import spectral_norm
from numscope.summary.unwrap import Unsummarizable


def fill(
    site: PlannedSite,
    tensor: Tensor,
    whole: Callable[[], Tensor],
    cells: Tensor,
    layout: Layout,
    *,
    joint: Joint,
    cast_to: Format | None,
    merge: Callable[[int, int, Tensor], None],
) -> Iterator[str]:
    """Merge into a site's cells: casts on paper, rows of probabilities, the largest singular value, the sketch.

    Args:
        tensor: this rank's part.
        whole: gives what it is a part of, of a parameter or its gradient.
        cells: float64, by ``layout``.
        cast_to: the format to which the layer's recipe casts it.
        merge: into the cells of a site from one on.

    Yields: what is left out, and why.
    """
    from numscope.precision.gemm.counting import cast_on_paper

    cast_on_paper(tensor, site.kind, cells, layout, cast_to)
    if (rows := site.offset("attention")) is not None:
        read(tensor, lambda readable: merge(site.index, rows, attention_cells(readable)))
    if (first := site.offset("spectral")) is not None:
        if joint.is_whole(site):
            largest = cells[first]
            read(tensor, lambda readable: largest.copy_(torch.maximum(largest, spectral_norm(readable))))
        else:
            yield f"its {site.tensor} is divided over ranks: stable_rank and spectral_norm are left out"
    if (first := site.offset("sketch")) is not None:
        try:
            add_sums(part_of(whole()), cells[first : first + NUM_SUMS])
        except Unsummarizable as error:
            yield f"no sketch of its {site.tensor}, which is {error}"
