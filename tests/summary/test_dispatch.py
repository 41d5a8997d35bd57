import math
from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode

from numscope.records.errors import UsageError
from numscope.summary import dispatch, native, reference
from numscope.summary.ledger import UNOBSERVED, Ledger
from numscope.summary.state import EMPTY_ROW, Groups, Summary
from tests.summary.oracle import FLOAT_IDS, FLOATS, assert_same, summary_of

pytestmark = pytest.mark.filterwarnings("ignore:.*(prototype stage|beta state|deprecated|experimental).*")


def base(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.randn(2, 6, 8, 10, generator=torch.Generator().manual_seed(0))
    x[0, 0, 0, :3] = torch.tensor([math.nan, 0.0, 3e-8])
    return x.to(dtype)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(1, 3),
    "permuted": lambda x: x.permute(3, 0, 2, 1),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "columns": lambda x: x[..., 2:5],
    "rows": lambda x: x[:, 1:3],
    "stepped": lambda x: x[:, ::2, :, ::3],
    "expanded": lambda x: x[:, :1].expand(2, 5, 8, 10),
    "diagonal": lambda x: x[0, 0].diagonal(),
    "0-d": lambda x: x[0, 0, 1, 1],
    "empty": lambda x: x[:0],
    "one element": lambda x: x[:1, :1, :1, :1],
    "overlapping": lambda x: x.reshape(-1).unfold(0, 7, 2),
    "parameter": lambda x: torch.nn.Parameter(x),
    "leaf's result": lambda x: torch.nn.Parameter(x) * 1,
    "negated view": lambda x: torch._neg_view(x),
    "zeros without memory": lambda x: torch._efficientzerotensor(x.shape, dtype=x.dtype),
}


def observed(tensor: torch.Tensor, groups: int = Groups.ALL) -> tuple[bool, list[float]]:
    block = reference.empty_block(3)
    done = dispatch.observe(tensor, block, block.data_ptr(), 1, groups)
    assert block[0].tolist() == block[2].tolist() == list(EMPTY_ROW)
    return done, block[1].tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS, ids=FLOAT_IDS)
def test_every_layout_of_every_float(dtype: torch.dtype, layout: str) -> None:
    if layout in ("parameter", "leaf's result", "negated view", "zeros without memory") and dtype.itemsize == 1:
        pytest.skip("torch has none")
    x = LAYOUTS[layout](base(dtype))
    done, row = observed(x)
    assert done
    expected = summary_of(torch.zeros(x.shape, dtype=x.dtype) if layout == "zeros without memory" else x.detach().resolve_neg())
    assert_same(Summary.from_row(row), expected)
    assert_same(dispatch.summarize(x), expected)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.uint16, torch.uint64], ids=str)
def test_integers_and_booleans(dtype: torch.dtype) -> None:
    x = torch.arange(100).to(dtype).view(4, 25).t()
    done, row = observed(x)
    assert done
    assert_same(Summary.from_row(row), summary_of(x))


@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128], ids=str)
def test_complex_numbers_and_their_conjugates(dtype: torch.dtype) -> None:
    x = torch.complex(base(), base().flip(0)).to(dtype)
    for view in (x, x.conj(), x[:, ::2], x.mT, x.conj().imag):
        done, row = observed(view)
        assert done
        assert_same(Summary.from_row(row), summary_of(view.resolve_conj().resolve_neg()))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc], ids=str)
def test_sparse_layouts(layout: torch.layout) -> None:
    x = base()[0, 0].clamp(min=0.5) - 0.5
    blocks = {"blocksize": (2, 2)} if layout in (torch.sparse_bsr, torch.sparse_bsc) else {}
    done, row = observed(x.to_sparse(layout=layout, **blocks))
    assert done
    assert_same(Summary.from_row(row), summary_of(x))


def test_nested_tensors() -> None:
    parts = [base()[0, 0], base()[0, 1, :3]]
    for layout in (torch.strided, torch.jagged):
        done, row = observed(torch.nested.nested_tensor(parts, layout=layout))
        assert done
        assert_same(Summary.from_row(row), summary_of(torch.cat([p.reshape(-1) for p in parts])))


def test_mkldnn_tensors() -> None:
    x = torch.randn(3, 4)
    done, row = observed(x.to_mkldnn())
    assert done
    assert_same(Summary.from_row(row), summary_of(x))


class Named(torch.Tensor):
    """A subclass in name only."""


def test_a_subclass_in_name_only_is_read_like_a_tensor() -> None:
    done, row = observed(base().as_subclass(Named))
    assert done
    assert_same(Summary.from_row(row), summary_of(base()))


class Scaled(torch.Tensor):
    """A quantized wrapper: codes and a scale."""

    @staticmethod
    def __new__(cls, codes: torch.Tensor, scale: float) -> "Scaled":
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)  # type: ignore[attr-defined, no-any-return]

    def __init__(self, codes: torch.Tensor, scale: float) -> None:
        self.codes, self.scale = codes, scale

    def dequantize(self) -> torch.Tensor:  # type: ignore[override]
        return self.codes.float() * self.scale

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        raise NotImplementedError(func)


def test_a_quantized_wrapper_is_dequantized() -> None:
    done, row = observed(Scaled(torch.tensor([1, -2, 3], dtype=torch.int8), 0.5))
    assert done
    assert (row[6], row[7], row[10]) == (-1.0, 1.5, 1.0)


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.empty(2, 3)


def freed(part: Callable[[torch.Tensor], torch.Tensor], left: int = 0) -> Callable[[], torch.Tensor]:
    """A part of a tensor whose storage was freed, as activations' are that will be computed again."""

    def make() -> torch.Tensor:
        tensor = part(torch.ones(6, 6))
        tensor.untyped_storage().resize_(left)
        return tensor

    return make


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "meta": (lambda: torch.empty(2, 3, device="meta"), "meta tensor float32[2, 3]"),
    "fake": (fake, "fake tensor float32[2, 3]"),
    "quantized": (lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8), "quantized tensor quint8[4]"),
    "lazy": (lambda: torch.nn.LazyLinear(3).weight, "UninitializedParameter of unknown shape"),
    "two tensors in one": (lambda: TwoTensor(torch.ones(3), torch.ones(3)), "TwoTensor float32[3]"),
    "freed": (freed(lambda whole: whole), "tensor float32[6, 6]"),
    "freed rows": (freed(lambda whole: whole[2:]), "tensor float32[4, 6]"),
    "cut short": (freed(lambda whole: whole, 100), "tensor float32[6, 6]"),
    "freed columns": (freed(lambda whole: whole[:, 4:]), "tensor float32[6, 2]"),
    "packed": (lambda: torch.empty(4, dtype=torch.float4_e2m1fn_x2), "tensor float4_e2m1fn_x2[4]"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_read_is_said_not_raised(kind: str) -> None:
    make, words = REFUSED[kind]
    tensor = make()
    assert isinstance(tensor, torch.Tensor)
    assert observed(tensor) == (False, list(EMPTY_ROW))
    assert Ledger().observe(tensor) == UNOBSERVED and Ledger().observe_many([tensor]) == [UNOBSERVED]
    assert dispatch.describe(tensor) == words
    with pytest.raises(UsageError) as error:
        dispatch.summarize(tensor)
    assert str(error.value) == f"summarize: got {words}, expected a tensor whose elements can be read."


def test_summarize_refuses_what_is_no_tensor() -> None:
    with pytest.raises(
        UsageError, match=r"^summarize: got float, expected a torch\.Tensor\. Wrap plain numbers in torch\.as_tensor first\.$"
    ):
        dispatch.summarize(3.0)  # type: ignore[arg-type]
    assert dispatch.describe(None) == "NoneType, not a tensor"


def test_describe_names_ordinary_tensors() -> None:
    assert dispatch.describe(torch.ones(2, 3, dtype=torch.bfloat16)) == "tensor bfloat16[2, 3]"
    assert dispatch.describe(torch.ones(2, 3).to_sparse()) == "sparse_coo tensor float32[2, 3]"
    assert dispatch.describe(torch.tensor(1)) == "tensor int64[]"


@pytest.mark.parametrize("transform", [torch.func.vmap, torch.func.grad], ids=["vmap", "grad"])
def test_tensors_inside_a_functorch_transform_are_refused(transform: Callable[..., Callable[..., object]]) -> None:
    seen: list[tuple[bool, str]] = []
    block = reference.empty_block(1)
    address = block.data_ptr()

    def f(x: torch.Tensor) -> torch.Tensor:
        seen.append((dispatch.observe(x, block, address, 0, Groups.ALL), dispatch.describe(x)))
        return x.sum()

    transform(f)(torch.ones(2, 3) if transform is torch.func.vmap else torch.ones(3))
    assert seen == [(False, "functorch tensor float32[3]")]


class SeesFunctions(TorchFunctionMode):
    def __init__(self) -> None:
        self.seen: list[object] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


class SeesOperators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[object] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [SeesFunctions, SeesOperators])
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "columns", "negated view", "parameter"])
def test_no_mode_sees_the_reading(mode: type[SeesFunctions | SeesOperators], layout: str) -> None:
    x, ints, block = LAYOUTS[layout](base()), torch.arange(5), reference.empty_block(3)
    address = block.data_ptr()
    with mode() as watching:
        assert dispatch.observe(x, block, address, 0, Groups.ALL)
        assert dispatch.observe(ints, block, address, 1, Groups.ALL)
        assert dispatch.observe_many([x, ints], block, address, [0, 2], Groups.ALL) == [True, True]
        dispatch.summarize(x)
    assert watching.seen == []


def test_a_default_device_does_not_redirect_the_reading() -> None:
    with torch.device("meta"):
        assert dispatch.summarize(torch.ones(3, device="cpu")[::2]).numel == 2


def test_no_graph_is_made_and_no_random_number_drawn() -> None:
    x = (torch.nn.Parameter(base()) * 2)[..., :3]
    before, state = x.grad_fn, torch.get_rng_state()
    block = reference.empty_block(1)
    for tensor in (x, x.to(torch.complex64), x.detach().requires_grad_()):
        assert dispatch.observe(tensor, block, block.data_ptr(), 0, Groups.ALL)
    assert x.grad_fn is before and not block.requires_grad
    assert torch.equal(torch.get_rng_state(), state)


def test_autocast_does_not_change_a_digit() -> None:
    x = torch.arange(1000)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert dispatch.summarize(x) == summary_of(x)
        assert torch.is_autocast_enabled("cpu")


def test_inference_mode_reads_and_writes() -> None:
    block = reference.empty_block(1)
    with torch.inference_mode():
        for x in (torch.ones(4), torch.ones(4, 4)[:, :2], torch.arange(4)):
            assert dispatch.observe(x, block, block.data_ptr(), 0, Groups.ALL)
            assert dispatch.summarize(x).numel == x.numel()
    assert block[0, 0] == 16


def test_observing_again_merges() -> None:
    block = reference.empty_block(1)
    for part in base().split(1):
        assert dispatch.observe(part, block, block.data_ptr(), 0, Groups.ALL)
    assert_same(Summary.from_row(block[0].tolist()), summary_of(base()))


def test_observe_many_does_what_observe_does_one_by_one() -> None:
    tensors = [make(base()) for make in LAYOUTS.values()] + [torch.arange(5), torch.ones(300_000), torch.empty(2, device="meta"), fake()]
    one, many = reference.empty_block(len(tensors)), reference.empty_block(len(tensors))
    expected = [dispatch.observe(x, one, one.data_ptr(), i, Groups.ALL) for i, x in enumerate(tensors)]
    assert dispatch.observe_many(tensors, many, many.data_ptr(), range(len(tensors)), Groups.ALL) == expected
    assert expected[-2:] == [False, False] and all(expected[:-2])
    assert torch.equal(one, many)


def test_observe_many_of_nothing() -> None:
    block = reference.empty_block(1)
    assert dispatch.observe_many([], block, block.data_ptr(), [], Groups.ALL) == []


def test_a_dtensor_gives_its_local_part(one_rank: None) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    x = distribute_tensor(base(), init_device_mesh("cpu", (1,)), [Shard(0)])
    for tensor in (x, torch.nn.Parameter(x)):
        done, row = observed(tensor)
        assert done
        assert_same(Summary.from_row(row), summary_of(base()))


@pytest.mark.skipif(native.module is None, reason="the native kernel was not built")
def test_the_reference_takes_over_where_the_kernel_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [observed(make(base())) for make in LAYOUTS.values()]
    monkeypatch.setattr(native, "module", None)
    monkeypatch.setattr(dispatch, "_native", None)
    for (done, row), make in zip(expected, LAYOUTS.values(), strict=True):
        again, other = observed(make(base()))
        assert again == done
        assert_same(Summary.from_row(other), Summary.from_row(row))
    block = reference.empty_block(2)
    assert dispatch.observe_many([base(), torch.arange(3)], block, block.data_ptr(), [0, 1], Groups.ALL) == [True, True]
