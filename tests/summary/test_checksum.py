"""Checksums: the laws by which they are compared and merged, native and with torch's operations, against Python's own integers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from numscope.summary import checksum as module
from numscope.summary import native
from numscope.summary.checksum import Checksums, checksum, merged
from numscope.summary.unwrap import Unsummarizable

MASK = (1 << 64) - 1
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2]
DTYPES += [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128]
BACKENDS = ["torch"]
if native.module is not None:
    BEST = native.module.isa()
    BACKENDS += [isa for isa in ("baseline", "avx2", "avx512") if native.module.choose_isa(isa)]
    native.module.choose_isa(BEST)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "torch":
        monkeypatch.setattr(native, "module", None)
        yield request.param
        return
    kernel = native.module
    assert kernel is not None and kernel.choose_isa(request.param)
    yield request.param
    kernel.choose_isa(BEST)


each_backend = pytest.mark.usefixtures("backend")
again = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


def mixed(x: int) -> int:
    x = x * 0x9E3779B97F4A7C15 & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def by_hand(data: bytes, position: int = 0) -> int:
    """The definition, byte string by byte string."""
    data = bytes(position % 4) + data
    data += bytes(-len(data) % 4)
    total = 0
    for i in range(0, len(data), 4):
        word, index = int.from_bytes(data[i : i + 4], "little"), position // 4 + i // 4
        total += (word + (word >> 16)) * (mixed(index % 1024 + 1) | 1) * (mixed(~(index // 1024) & MASK) | 1)
    return total & MASK


def sample(dtype: torch.dtype, *shape: int, seed: int = 0) -> Tensor:
    data = torch.randint(0, 256, (*shape, dtype.itemsize), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return (data[..., 0] > 127) if dtype is torch.bool else data.view(dtype)[..., 0]


def bytes_of(tensor: Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def views(tensor: Tensor) -> list[Tensor]:
    return [
        tensor,
        tensor.transpose(0, 2),
        tensor[::2, 1:],
        tensor.flip(1),
        tensor[1],
        tensor[:, :1].expand(-1, 5, -1),
        tensor[0, 0, 0],
        tensor[0, 0, ::2],
        tensor[:0],
    ]


@each_backend
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sum_is_that_of_the_bytes_whatever_the_dtype_and_the_strides(dtype: torch.dtype) -> None:
    for view in views(sample(dtype, 5, 7, 33)):
        assert checksum(view) == by_hand(bytes_of(view))


@each_backend
def test_sum_beyond_one_block_and_one_task() -> None:
    for view in (whole := sample(torch.bfloat16, 3, 5, 20_001), whole.transpose(0, 2)):
        assert checksum(view) == by_hand(bytes_of(view))


@each_backend
@again
@given(st.data())
def test_merge_of_parts_is_the_whole(data: Any) -> None:
    tensor = sample(data.draw(st.sampled_from(DTYPES)), 1, 1, data.draw(st.integers(1, 9000)), seed=1).flatten()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(tensor)), max_size=5)))
    edges = list(zip([0, *cuts], [*cuts, len(tensor)], strict=True))
    parts = [checksum(tensor[a:b], 2 * a if tensor.is_complex() else a) for a, b in data.draw(st.permutations(edges))]
    assert merged(parts) == checksum(tensor)


@each_backend
@again
@given(st.data())
def test_any_change_of_one_bit_is_seen(data: Any) -> None:
    raw = sample(torch.uint8, 1, 1, 4 * data.draw(st.integers(1, 2000))).flatten()
    before = checksum(raw)
    at, bit = data.draw(st.integers(0, len(raw) - 1)), data.draw(st.integers(0, 7))
    raw[at] ^= 1 << bit
    assert checksum(raw) != before == checksum(raw ^ torch.zeros_like(raw).index_fill_(0, torch.tensor([at]), 1 << bit))


@each_backend
@again
@given(st.integers(0, 1999), st.integers(0, 1999))
def test_a_permutation_is_seen(i: int, j: int) -> None:
    tensor = sample(torch.float32, 1, 1, 2000).flatten()
    swapped = tensor.clone()
    swapped[[i, j]] = tensor[[j, i]]
    same = tensor.view(torch.int32).equal(swapped.view(torch.int32))
    assert (checksum(tensor) == checksum(swapped)) is same


@each_backend
def test_bits_are_bits() -> None:
    zeros, nans = torch.tensor([0.0, -0.0]), torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert checksum(zeros[:1]) != checksum(zeros[1:])
    assert checksum(nans[:1]) != checksum(nans[1:])
    assert checksum(nans) == checksum(nans.view(torch.int32))


def test_sign_flips_don_t_cancel() -> None:
    tensor = torch.randn(4096, generator=torch.Generator().manual_seed(0))
    sums = {checksum(tensor)}
    for seed in range(2000):
        chosen = torch.rand(4096, generator=torch.Generator().manual_seed(seed)) < 0.01
        sums.add(checksum(torch.where(chosen, -tensor, tensor)))
    assert len(sums) == 2001


def test_sums_spread_over_64_bits() -> None:
    found = [checksum(torch.tensor([i], dtype=torch.int32), i) for i in range(1, 4096)]
    for bit in range(1, 64):
        assert 0.4 < sum(value >> bit & 1 for value in found) / len(found) < 0.6


@pytest.mark.skipif(native.module is None, reason="the native kernel was not built")
def test_sums_of_many_tensors_are_those_of_each_on_any_number_of_threads() -> None:
    tensors = [sample(dtype, 3, 40, 1000 + i, seed=i) for i, dtype in enumerate(DTYPES)] + [torch.zeros(0)]
    tensors += [t.transpose(0, 1) for t in tensors[:4]]
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(Checksums(tensors).read())
    finally:
        torch.set_num_threads(before)
    assert found == [[checksum(t) for t in tensors]] * 3


def test_torch_backend_works_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = sample(torch.int16, 1, 1, 30_001).flatten()
    monkeypatch.setattr(module, "_PART_BYTES", 6002)
    assert int(module.sum_on_device(tensor, 3)) & MASK == by_hand(bytes_of(tensor), 6)


def test_views_of_conjugates_and_parameters_of_models() -> None:
    number = sample(torch.complex64, 1, 3, 5)
    assert checksum(number.conj()) == checksum(number.conj().resolve_conj().clone()) != checksum(number)
    layer = torch.nn.Linear(3, 4)
    assert checksum(layer.weight) == checksum(layer.weight.detach().clone())


def test_tensor_without_elements_to_read_is_refused() -> None:
    with pytest.raises(Unsummarizable, match=r"^meta tensor float32\[3\]$"):
        checksum(torch.empty(3, device="meta"))
    with pytest.raises(Unsummarizable, match="sparse_coo tensor"):
        checksum(torch.eye(3).to_sparse())


@pytest.mark.skipif(native.module is None, reason="the native kernel was not built")
def test_native_call_refuses_an_entry_that_is_none() -> None:
    from array import array

    assert native.module is not None
    entry, sums = array("q", [0, 3, 4, 0, 0]), array("Q", [0])
    with pytest.raises(ValueError, match="checksum: got address 0, numel 3, elements of 4 bytes"):
        native.module.checksum(entry.buffer_info()[0], 1, sums.buffer_info()[0], 1)
