"""A tensor's evenly spread sample, as a view."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from torch import Tensor

MOST = 4096  # elements


def sampled(tensor: Tensor) -> Tensor:
    """A view of at most ``MOST`` elements, spread over all dimensions: an image's first rows may be its black border.

    *Cost:* 2 µs; no memory is read.
    """
    return tensor if tensor.numel() <= MOST else tensor[tuple(slice(None, None, step) for step in steps_of(tuple(tensor.shape))[0])]


@lru_cache(maxsize=1024)
def steps_of(shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The distance from one element of a sample to the next in each dimension, and the sample's shape."""
    steps = [1] * len(shape)
    counts = [*shape]
    while prod(counts) > MOST:
        widest = counts.index(max(counts))
        steps[widest] += (steps[widest] + 1) // 2
        counts[widest] = -(-shape[widest] // steps[widest])
    return tuple(steps), tuple(counts)
