"""What the triton kernel is held to: in triton's interpreter, which runs it on the CPU (TRITON_INTERPRET=1), or on a device (``use``)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

import torch

from numscope.summary import device_batch, reference, triton
from numscope.summary.state import Groups, Summary
from numscope.summary.triton_launch import Launcher
from tests.summary.oracle import EXACT, assert_same, summary_of
from tests.summary.test_moments import NAMES, exact

FLOAT32_SUMS = 1e-5  # what their folds are right to, where a thousandth is promised
launcher = Launcher(torch.device("cpu"), 2, 32, lambda: 0, lambda: False)
device = torch.device("cpu")


def use(name: str) -> None:
    """Run all cases on a device, with the launcher that it has."""
    global device
    device = torch.device(name)


def patch_once() -> None:
    """Where the interpreter patches triton's language, it looks through all of it, at each call of a function: half of its time."""
    from triton.language.core import is_builtin
    from triton.runtime import interpreter

    @functools.cache
    def builtins_of(package: Any) -> list[str]:
        return [name for name, member in inspect.getmembers(package) if is_builtin(member)]

    def patch(package: Any, builder: Any, scope: Any) -> None:
        for name in builtins_of(package):
            if is_builtin(member := getattr(package, name)):
                interpreter._patch_attr(package, name, member, builder, scope)

    interpreter._patch_builtin = patch


def observed(tensors: Sequence[torch.Tensor], groups: Groups = Groups.ALL) -> list[Summary]:
    """Summaries of tensors that are observed together."""
    if device.type == "cpu":
        device_batch.KERNELS["cpu"] = lambda device: launcher
    tensors = [tensor.to(device) for tensor in tensors]
    block = reference.empty_block(len(tensors), tensors[0].device)
    with device_batch.DeviceBatch():
        for row, tensor in enumerate(tensors):
            assert device_batch.observe(tensor, block, block.data_ptr(), row, groups, copy=True)
    if device.type == "cpu":
        assert not launcher._scratch[0][1].any()  # each launch leaves its counters as it found them
    return [Summary.from_row(row) for row in block.tolist()]


def assert_right(found: Summary, x: torch.Tensor, groups: Groups = Groups.ALL, tolerance: float = FLOAT32_SUMS) -> None:
    x = x.cpu()
    expected = summary_of(x.contiguous())
    for name in EXACT:
        assert getattr(found, name) == getattr(expected, name), (name, found, expected)
    if groups & Groups.MOMENTS and expected.num_finite > 1:
        wide = (x.float() if x.itemsize == 1 else x).double().flatten()
        right = exact(wide[wide.isfinite()].tolist()) if expected.min != expected.max else {}
        for name, value in right.items():
            scale = max(abs(value), 1.0) if name == "skewness" else right["std"] if name == "mean" else abs(value)
            assert abs(getattr(found, name) - value) <= tolerance * scale, (name, getattr(found, name), value)


def normal(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def every_type_and_special_value() -> None:
    eight = torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz
    between = (5, 2047, 2048)
    for number, dtype in enumerate((torch.float32, torch.float64, torch.bfloat16, torch.float16, *eight)):
        turn = between[number % 3 : number % 3 + 1] if device.type == "cpu" else between  # each takes the interpreter a third of a second
        for n in (1, *turn, 2053):
            x = normal(n, n).float()
            for where, special in ((0, float("nan")), (1, float("inf")), (7, -float("inf")), (9, 0.0), (11, 3e-8), (12, 1e-40)):
                if where < n and not (
                    special == 1e-40 and dtype is torch.bfloat16 and device.type == "cpu"
                ):  # the interpreter flushes bfloat16's subnormals
                    x[where] = special
            for groups in (Groups.HEALTH, Groups.ALL) if n == 2053 else (Groups.ALL,):
                assert_right(observed([x.to(dtype)], groups)[0], x.to(dtype), groups)
        if dtype.itemsize == 1:  # all there are
            codes = torch.arange(256, dtype=torch.int16).to(torch.uint8).view(dtype)
            assert_right(observed([codes])[0], codes)
    health = observed([normal(100).float()], Groups.HEALTH)[0]
    assert_same(health, summary_of(normal(100).float()), moments=False)


def hard_moments() -> None:
    n = 3000  # more than one tile
    x = {
        "mean far above the deviation": normal(n) * 1e-4 + 1,
        "and below zero": normal(n) * 1e-2 - 1000,
        "few steps of float32 apart": normal(n) * 1e-6 + 1,
        "fourth powers vanish": normal(n) * 1e-30,
        "fourth powers overflow": normal(n) * 1e37,
        "subnormal": normal(n) * 1e-39,
        "zeros, then very small": torch.cat([torch.zeros(1800), normal(1200) * 1e-10]),
        "drifting": normal(n) * 1e-3 + torch.arange(n) / 1000,
        "very small, then very large": torch.cat([normal(1500) * 1e-12, normal(1500) * 1e8]),
        "one of many": torch.cat([torch.ones(n - 1), torch.tensor([1e10])]),
    }
    outliers = normal(n) * 1e-4 + 1
    outliers[:: n // 32] = 1e3  # what the sample sees
    for name, values in (x | {"all the sample sees are outliers": outliers}).items():
        try:
            assert_right(observed([values.float()])[0], values.float())
        except AssertionError as error:
            raise AssertionError(name) from error
    assert_right(observed([normal(n) * 1e-8 + 1])[0], normal(n) * 1e-8 + 1, tolerance=1e-9)
    for value in (0.1, 0.0, float("nan")):
        constant = observed([torch.full((n,), value)])[0]
        assert (constant.std, constant.kurtosis) == ((0.0, None) if value == value else (None, None))
    halves = observed([(normal(n) * 1e-4 + 1).float()])[0].merge(observed([(normal(n, 1) * 1e-4 - 1).float()])[0])
    assert_right(halves, torch.cat([(normal(n) * 1e-4 + 1).float(), (normal(n, 1) * 1e-4 - 1).float()]))
    assert set(NAMES) >= {"std", "kurtosis", "skewness", "l2_norm"}


def many_at_once() -> None:
    x = normal(12_000).float().to(device)
    few = [x[1:7000], x[:3].half(), x[5:2000].bfloat16()[3:], x[:9].double()]
    many = [x[i : 100 + 370 * i].to(dtype) for i, dtype in enumerate([torch.float32, torch.bfloat16] * 5)]
    wide = x[: 64 * 96].view(64, 96)
    rows = [wide[:, 8:40], wide[::2], wide[:, :16].t(), wide.view(8, 8, 96)[..., :16], x[:320]]
    gaps = [wide[:, 8:41], wide[::2, ::3], wide[1:, :5], x[:5].expand(7, 5), x[::3], wide.view(8, 8, 96)[:, 1:3, 5:9], x[7:1200]]
    for tensors in (few, many, rows, gaps):
        for found, tensor in zip(observed(tensors), tensors, strict=True):
            assert_right(found, tensor)


def reads_once() -> None:
    from triton.runtime.interpreter import InterpreterBuilder

    x = normal(8 * 2048).float()  # whole tiles: of the last one, a part is looked at again in the cache
    first, last = x.data_ptr(), x.data_ptr() + x.nbytes
    read = 0
    load = InterpreterBuilder.create_masked_load

    def counted(self, ptrs, mask, *args):  # type: ignore[no-untyped-def]
        nonlocal read
        read += int(((ptrs.data >= first) & (ptrs.data < last) & mask.data).sum())
        return load(self, ptrs, mask, *args)

    InterpreterBuilder.create_masked_load = counted
    found = observed([x])[0]
    assert_right(found, x)
    programs = launcher._num_programs[1]
    assert x.numel() <= read <= x.numel() + programs * triton.SAMPLE, read


def same_bits() -> None:
    x = normal(16_000).float()
    rows = [observed([x])[0] for _ in range(2)]
    assert rows[0] == rows[1]
