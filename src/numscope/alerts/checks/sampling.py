"""A tensor's evenly spread sample, as a view."""

from __future__ import annotations

from functools import lru_cache

from torch import Tensor

MOST = 4096  # elements


def sampled(tensor: Tensor) -> Tensor:
    """A view of at most ``MOST`` elements, spread over all dimensions: an image's first rows may be its black border.

    *Cost:* 2 µs; no memory is read.
    """
    return tensor if tensor.numel() <= MOST else tensor[_steps(tuple(tensor.shape))]


@lru_cache(maxsize=1024)
def _steps(shape: tuple[int, ...]) -> tuple[slice, ...]:
    steps = [1] * len(shape)
    counts = [*shape]
    while _product(counts) > MOST:
        widest = counts.index(max(counts))
        steps[widest] += (steps[widest] + 1) // 2
        counts[widest] = -(-shape[widest] // steps[widest])
    return tuple(slice(None, None, step) for step in steps)


def _product(counts: list[int]) -> int:
    total = 1
    for each in counts:
        total *= each
    return total
