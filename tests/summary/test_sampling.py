"""Samples: bounded, spread, without a copy, and the same by shape and stride as by slicing."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from numscope.summary.checksum import Checksums
from numscope.summary.sampling import MOST, sampled, steps_of


@given(st.lists(st.integers(1, 400), min_size=1, max_size=4))
def test_sample_is_a_bounded_view_of_all_dimensions(shape: list[int]) -> None:
    whole = torch.empty(1).expand(shape)
    sample = sampled(whole)
    assert sample.numel() <= MOST and sample.dim() == whole.dim()
    assert sample.data_ptr() == whole.data_ptr()
    if whole.numel() > MOST:
        assert sample.numel() >= MOST // 4
    else:
        assert sample is whole
    assert tuple(steps_of(tuple(shape))[1]) == tuple(sample.shape)


def test_checksum_of_a_sample_is_that_of_the_sliced_tensor() -> None:
    for tensor in (torch.randn(300, 70), torch.randn(70, 300).t(), torch.randn(9, 8, 7, 60)[:, ::2], torch.randn(50), torch.randn(())):
        assert Checksums([tensor], sample=True).read() == Checksums([sampled(tensor).clone()]).read()


def test_blank_border_does_not_hide_an_image() -> None:
    images = torch.zeros(4, 3, 128, 128)
    other = images.clone()
    other[:, :, 20:100, 20:100] = 1
    assert Checksums([images], sample=True).read() != Checksums([other], sample=True).read()
