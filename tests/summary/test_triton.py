"""The triton kernel in triton's interpreter, which needs no GPU; skipped where triton is not installed."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

CHECK = """
import torch
from numscope.summary import reference, triton
from numscope.summary.state import Groups, Summary
from tests.summary.oracle import assert_same, summary_of
from tests.summary.test_moments import assert_right

for dtype in triton.SMALLEST_NORMAL:
    if dtype.itemsize == 1:
        continue  # the interpreter reads no fp8
    for n in (0, 1, 2047, 2048, 2049, 10_000):
        x = torch.randn(n, generator=torch.Generator().manual_seed(n))
        for where, special in ((0, float("nan")), (1, float("inf")), (7, -float("inf")), (9, 0.0), (2048, -0.0), (11, 3e-8), (12, 1e-40)):
            if where < n and not (special == 1e-40 and dtype is torch.bfloat16):  # the interpreter flushes bfloat16's subnormals
                x[where] = special
        x = x.to(dtype)
        for groups in (Groups.HEALTH, Groups.ALL):
            block = reference.empty_block(1)
            half = n // 2
            for part in (x[:half], x[half:]):
                triton.observe_into(part, block[0], groups)
            assert_same(Summary.from_row(block[0].tolist()), summary_of(x), moments=groups == Groups.ALL)
for dtype in (torch.float32, torch.float64):
    x = (torch.randn(10_000, generator=torch.Generator().manual_seed(1)).exp() * (1e-4 if dtype is torch.float32 else 1e-8) + 1).to(dtype)
    x[5000:] += 1e-3
    x[7] = float("nan")
    block = reference.empty_block(1)
    for part in (x[:0], x[:1], x[1:3000], x[3000:]):
        triton.observe_into(part, block[0], 3)
    assert_right(Summary.from_row(block[0].tolist()), x[x.isfinite()].tolist())
nothing_finite = torch.full((3000,), float("nan"))
block = reference.empty_block(1)
triton.observe_into(nothing_finite, block[0], 3)
assert_same(Summary.from_row(block[0].tolist()), summary_of(nothing_finite))
print("done")
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_the_triton_kernel_gives_the_oracles_numbers_in_the_interpreter() -> None:
    run = subprocess.run(
        [sys.executable, "-c", CHECK], capture_output=True, text=True, timeout=300, env=os.environ | {"TRITON_INTERPRET": "1"}
    )
    assert run.stdout == "done\n", run.stderr
