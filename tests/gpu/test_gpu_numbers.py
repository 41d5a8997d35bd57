"""The device kernel's numbers, fp8 casts and fp8 GEMMs, on real hardware."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="asks for a CUDA or ROCm device")


@pytest.fixture(scope="module", autouse=True)
def on_the_device() -> None:
    from tests.summary import kernel_cases

    kernel_cases.use("cuda")


@pytest.mark.parametrize("case", ["every_type_and_special_value", "hard_moments", "many_at_once", "same_bits"])
def test_the_kernel(case: str) -> None:
    from tests.summary import kernel_cases

    getattr(kernel_cases, case)()


def test_launches_of_other_sizes_and_alignments_share_a_program() -> None:
    from tests.summary import kernel_cases

    x = torch.randn(1 << 16).cuda()
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        tensors = x.to(dtype)
        for first, numel in ((0, 4096), (1, 4095), (3, 1), (0, 1 << 16), (5, 33_333), (1, 16), (0, 1)):
            part = tensors[first : first + numel]
            kernel_cases.assert_right(kernel_cases.observed([part])[0], part)


def test_large_tensors_are_right() -> None:
    from tests.summary import kernel_cases

    for dtype in (torch.float32, torch.bfloat16):
        x = (torch.randn(1 << 26, device="cuda") * 3 + 1).to(dtype)
        x[12345], x[-1] = float("nan"), float("inf")
        found = kernel_cases.observed([x])[0]
        wide = x.double()
        wide = wide[wide.isfinite()]
        assert (found.num_nan, found.num_pos_inf, found.max) == (1, 1, wide.max().item())
        assert abs(found.mean - wide.mean().item()) <= 1e-5 * wide.std().item()
        assert abs(found.std - wide.std(correction=0).item()) <= 1e-4 * found.std or abs(found.std - wide.std().item()) <= 1e-4 * found.std


@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_casts_of_the_hardware_are_those_that_are_emulated(source: torch.dtype, dtype: torch.dtype) -> None:
    """All 65,536 bit patterns of a 16-bit type, or as many of float32."""
    patterns = torch.arange(1 << 16, dtype=torch.int32)
    x = (patterns << 16).view(torch.float32).to(source) if source is not torch.float16 else patterns.to(torch.int16).view(source)
    here, there = x.to(dtype), x.cuda().to(dtype).cpu()
    same = (here.view(torch.uint8) == there.view(torch.uint8)) | (here.float().isnan() & there.float().isnan())
    assert same.all(), (x[~same][:8], here[~same][:8], there[~same][:8])
