"""The kernel as aarch64 processors run it (NEON), compiled by a cross compiler and run by an emulator, against float64."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from numscope.summary.native import CODES
from numscope.summary.state import Summary
from tests.summary.oracle import FLOATS, assert_same, summary_of

ROOT = Path(__file__).resolve().parents[2]
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64-static"
SOURCES = ("observe", "pool", "openmp", "row", "fp8", "integers", "select", "extras", "kernel_baseline")


def cases() -> list[torch.Tensor]:
    """Each dtype: every code of a narrow one, lengths that fill no vector, nan, inf, zeros, subnormals, a mean far above the deviation."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for dtype in FLOATS:
        if dtype.itemsize == 1:
            found.append(torch.arange(256, dtype=torch.uint8).view(dtype))
        if dtype.itemsize == 2:
            found.append(torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype))
        for numel in (1, 37, 70_001):
            found.append(torch.randn(numel, generator=generator).to(dtype))
        odd = 100 + torch.randn(5_000, generator=generator)
        odd[::97], odd[1::89], odd[2::83] = 0.0, float("nan"), float("-inf")
        found += [(300 + torch.randn(9_000, generator=generator)).to(dtype), odd.to(dtype)]
        if dtype.itemsize >= 4:
            found.append((torch.randn(1_000, generator=generator).double() * torch.finfo(dtype).tiny).to(dtype))
    return found


@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"no {COMPILER} here (Debian: g++-aarch64-linux-gnu)")
@pytest.mark.skipif(shutil.which(EMULATOR) is None, reason=f"no {EMULATOR} here (Debian: qemu-user-static)")
def test_kernel_for_aarch64_gives_the_oracles_numbers(tmp_path: Path) -> None:
    sources = [str(ROOT / "csrc" / f"{name}.cpp") for name in SOURCES]
    flags = ["-std=c++17", "-O1", "-Wall", "-Wno-unused-function", "-fno-math-errno", "-fno-trapping-math", "-pthread", "-static"]
    program = tmp_path / "aarch64"
    subprocess.run([COMPILER, *flags, "-o", program, Path(__file__).with_name("aarch64.cpp"), *sources], check=True, timeout=200)
    tensors, words = cases(), []
    for number, tensor in enumerate(tensors):
        path = tmp_path / f"{number}"
        path.write_bytes(bytes(tensor.view(torch.uint8).numpy()))
        words += [str(CODES[tensor.dtype]), str(tensor.numel()), str(path)]
    done = subprocess.run([EMULATOR, program, *words], check=True, capture_output=True, text=True, timeout=200)
    isa, *numbers = done.stdout.split()
    assert isa == "baseline"
    for number, tensor in enumerate(tensors):
        assert_same(Summary.from_row(list(map(float, numbers[16 * number : 16 * number + 16]))), summary_of(tensor))
