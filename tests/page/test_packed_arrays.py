"""Numbers as a page carries them."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest
import torch

from numscope.page.matrices import as_float32, pack, rounded


def unpack(text: str) -> np.ndarray:
    planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(4, -1)
    return planes.T.copy().view("<f4").ravel()


def test_packed_numbers_come_back() -> None:
    values = np.array([0.0, -0.0, 1.5, np.nan, -3e38, 1e-45], np.float32)
    assert unpack(pack(values)).tobytes() == values.tobytes()


def test_float64_beyond_float32_becomes_neither_zero_nor_infinite() -> None:
    assert as_float32([1e300, -1e300, 1e-300, -1e-300, 0.0]).tolist() == [
        np.finfo(np.float32).max, np.finfo(np.float32).min, np.float32(1e-45), -np.float32(1e-45), 0.0,
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rounding_keeps_every_number_of_sixteen_bits(dtype: torch.dtype) -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype).float().numpy()
    assert rounded(every).tobytes() == every.tobytes()


def test_rounding_is_off_by_a_4096th_at_most() -> None:
    values = np.random.default_rng(0).standard_normal(10_000).astype(np.float32) * np.float32(1e10)
    assert np.max(np.abs(rounded(values) / values - 1)) <= 2.0**-12
    assert np.isfinite(rounded(np.array([np.finfo(np.float32).max], np.float32))).all()
