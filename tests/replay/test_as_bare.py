"""Operations that do other things within a dispatch mode than outside do within a probe what they do outside."""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable
from typing import Any, Tuple  # noqa: UP035  # TorchScript reads it

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

import numscope
from numscope.records.site import Phase
from numscope.replay import as_bare
from numscope.replay.log import Log
from numscope.replay.named import Named
from numscope.replay.noting import NotingProbe
from numscope.replay.op import OpProbe
from numscope.replay.tape import OpTape
from numscope.summary import native
from numscope.summary.ledger import Ledger


def noting(*, is_on: bool = True) -> NotingProbe:
    log = Log()
    probe = NotingProbe(OpTape(), Ledger(), log, phase=Phase.LOSS, names=Named(), flush=log.clear, most=9999, end=log.clear)
    probe.is_on = is_on
    return probe


needs_native = pytest.mark.skipif(native.module is None, reason="the kernel was not built")
PROBES = [
    pytest.param(lambda: OpProbe(OpTape(), Ledger(), phase=Phase.LOSS), id="operations"),
    pytest.param(noting, id="noting", marks=needs_native),
    pytest.param(lambda: noting(is_on=False), id="cut", marks=needs_native),
]
positions = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 doesn't know which part of a line is at work")
with_probes = pytest.mark.parametrize("probe", PROBES)

# Each writes a list of two tensors.
WRITES: dict[str, Callable[[list[Tensor]], object]] = {
    "a factor": lambda v: torch._foreach_mul_(v, 2.0),
    "factors": lambda v: torch._foreach_mul_(v, [torch.ones(2)] * 2),
    "roots": torch._foreach_sqrt_,
    "zeros": torch._foreach_zero_,
    "a copy": lambda v: torch._foreach_copy_(v, [torch.ones(2)] * 2),
    "an average of weights": lambda v: get_ema_multi_avg_fn(0.9)(v, [torch.ones(2)] * 2, 1),  # type: ignore[no-untyped-call]
    "one tensor twice": lambda v: torch._foreach_add_([v[0], v[0], v[1]], 1.0),
    "out": lambda v: torch.split_copy(torch.ones(4), 2, out=v),
    "one by one": lambda v: [one.add_(1.0) for one in v],
    "scaled gradients": lambda v: torch._amp_foreach_non_finite_check_and_unscale_(v, torch.zeros(1), torch.ones(())),
    "a fused optimizer": lambda v: torch._fused_sgd_(
        v,
        [torch.ones(2)] * 2,
        [],
        weight_decay=0.0,
        momentum=0.0,
        lr=0.1,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=False,
    ),
}


@with_probes
@pytest.mark.parametrize("write", WRITES)
def test_versions_are_those_without_a_probe(probe: Callable[[], OpProbe], write: str) -> None:
    def versions(tensors: list[Tensor]) -> list[int]:
        with torch.no_grad():
            WRITES[write](tensors)
        return [one._version for one in tensors]

    bare = versions([torch.rand(2) for _ in range(2)])
    with probe():
        assert versions([torch.rand(2) for _ in range(2)]) == bare


@with_probes
def test_views_that_a_list_writes_keep_their_history(probe: Callable[[], OpProbe]) -> None:
    def gradient() -> Tensor:
        weight = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        scaled = weight * 1.0
        part = scaled[1:]
        torch._foreach_mul_([part], [weight[:2]])
        (found,) = torch.autograd.grad(part.sum(), weight)
        return found

    bare = gradient()
    with probe():
        assert torch.equal(gradient(), bare)


@with_probes
def test_what_backward_needs_is_not_overwritten_unnoticed(probe: Callable[[], OpProbe]) -> None:
    weight = torch.ones(2, requires_grad=True)
    with probe():
        loss = (weight * weight).sum()
        with torch.no_grad():
            torch._foreach_mul_([weight], 2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@with_probes
def test_tensors_of_inference_have_no_versions(probe: Callable[[], OpProbe]) -> None:
    with probe(), torch.inference_mode():
        values = [torch.ones(2), torch.ones(2)]
        torch._foreach_mul_(values, 2.0)
    assert all(torch.equal(one, torch.full((2,), 2.0)) for one in values)


def least_squares(a: Tensor, b: Tensor) -> Tensor:
    found: Tensor = torch.linalg.lstsq(a, torch.complex(b, b.roll(1)), driver="gelsd").residuals
    return found


decompose = torch.linalg.svd


@torch.jit.script
def scripted_norm(a: Tensor) -> Tuple[Tensor, Tensor]:  # noqa: UP006  # as TorchScript wants it
    u, s, _ = torch.linalg.svd(a)
    return u, torch.norm(s)


# Each asks for values alone, or for vectors, of a symmetric matrix.
DECOMPOSED: dict[str, Callable[[Tensor], Any]] = {
    "singular values": lambda a: torch.linalg.svdvals(a),
    "eigenvalues": lambda a: torch.linalg.eigvalsh(a),
    "condition": lambda a: torch.linalg.cond(a),
    "spectral norm": lambda a: torch.linalg.matrix_norm(a, ord=2),
    "norm on two lines": lambda a: torch.linalg.norm(
        a.mul(3.0),
        ord="nuc",
    ),
    "nuclear norm": lambda a: torch.norm(a, "nuc"),
    "method": lambda a: a.norm("nuc"),
    "vectors": lambda a: torch.linalg.svd(a, full_matrices=False),
    "values of vectors": lambda a: torch.linalg.svd(a).S,
    "vectors by another name": lambda a: decompose(a / torch.linalg.norm(a), full_matrices=False),
    "vectors by map": lambda a: tuple(*map(torch.linalg.svd, [a / torch.linalg.matrix_norm(a)])),
    "vectors in a script": lambda a: scripted_norm(a),
    "norm of a reconstruction": lambda a: torch.linalg.norm(torch.linalg.svd(a, full_matrices=False).U),
    "eigenvectors": lambda a: torch.linalg.eigh(a),
    "pseudoinverse": lambda a: torch.linalg.pinv(a, hermitian=True),
    "complex pseudoinverse": lambda a: torch.linalg.pinv(torch.complex(a, a.roll(1)).detach().requires_grad_(a.requires_grad)),
    "complex residuals": lambda a: least_squares(torch.complex(a, a.roll(1)).detach()[:, :5], a.detach()[:, :1]),
    "pseudoinverse of a conjugate": lambda a: torch.linalg.pinv(torch.complex(a, a.roll(1)).detach().mH[:5]),
    "rank": lambda a: torch.linalg.matrix_rank(a),
    "tangents": lambda a: torch.func.jvp(torch.linalg.svdvals, (a,), (a * 0.5,)),
    "batches": lambda a: torch.func.vmap(torch.linalg.svdvals)(torch.stack([a, a + 1.0])),
}


def matrix() -> Tensor:
    drawn = torch.rand(24, 24, generator=torch.Generator().manual_seed(1))
    return drawn + drawn.T


@positions
@with_probes
@pytest.mark.parametrize("what", DECOMPOSED)
@pytest.mark.parametrize("grad", [True, False])
def test_decompositions_have_the_bits_without_a_probe(probe: Callable[[], OpProbe], what: str, grad: bool) -> None:
    def bits(requires_grad: bool) -> list[bytes]:
        with torch.set_grad_enabled(grad):
            found = DECOMPOSED[what](matrix().requires_grad_(requires_grad))
        return [one.detach().contiguous().numpy().tobytes() for one in (found if isinstance(found, tuple) else (found,))]

    for requires_grad in (True, False):
        bare = bits(requires_grad)
        with probe():
            assert bits(requires_grad) == bare


@positions
@with_probes
@pytest.mark.parametrize("way", ["operator", "function", "assigned", "in place of", "by hand", "with a gradient", "a parameter"])
def test_products_with_a_single_matrix_have_the_bits_without_a_probe(probe: Callable[[], OpProbe], way: str) -> None:
    generator = torch.Generator().manual_seed(3)

    def products(num: int, rows: int, inner: int, columns: int) -> Tensor:
        a, b = torch.rand(num, rows, inner, generator=generator), torch.rand(1, inner, columns, generator=generator)
        if way == "by hand":  # the same operations, and one product
            return torch.mm(a.view(-1, inner), b.squeeze(0))
        b.requires_grad_(way == "with a gradient")
        if way == "operator":
            return a @ b
        if way == "assigned":
            a @= b if inner == columns else torch.eye(inner)[None]
            return a
        if way == "a parameter":
            b.requires_grad_()
            with torch.no_grad():
                return torch.matmul(a, b)
        if way == "in place of":
            return torch.matmul(a, b.mT.contiguous().mT)
        return torch.matmul(a, b).detach()

    sizes = [(2, 1, 16, 1), (2, 3, 3, 16), (8, 33, 100, 64), (17, 5, 64, 33), (3, 16, 33, 5), (2, 100, 5, 16)]
    bare = [products(*size) for size in sizes]
    generator.manual_seed(3)
    with probe():
        watched = [products(*size) for size in sizes]
    assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(watched, bare, strict=True))


@torch.jit.script
def others(w: Tensor, x: Tensor, z: Tensor) -> Tuple[Tensor, Tensor]:  # noqa: UP006
    single = w.squeeze(0)
    rows = x.view(-1, x.size(2))
    return torch.mm(z, single), rows


@torch.jit.script
def by_hand(w: Tensor, x: Tensor) -> Tensor:
    single = w.squeeze(0)
    return torch.mm(x.view(-1, x.size(2)), single)


@with_probes
def test_other_operations_within_one_call_are_what_they_are(probe: Callable[[], OpProbe]) -> None:
    generator = torch.Generator().manual_seed(1)
    w, x, z = (torch.rand(*size, generator=generator) for size in ((1, 16, 1), (2, 1, 16), (2, 16)))
    for _ in range(4):  # scripts are compiled at their first calls
        bare = *others(w, x, z), by_hand(w, x)
        with probe():
            watched = *others(w, x, z), by_hand(w, x)
        assert all(torch.equal(a, b) for a, b in zip(watched, bare, strict=True))


@positions
@with_probes
def test_source_that_can_not_be_read_ends_nothing(probe: Callable[[], OpProbe], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object) -> list[str]:
        raise RuntimeError("of a loader")

    monkeypatch.setattr(as_bare.linecache, "getlines", broken)
    a, b = torch.rand(2, 3, 4), torch.rand(1, 4, 5)
    with probe():
        assert torch.allclose(a @ b, torch.bmm(a, b.expand(2, -1, -1)))
        assert torch.linalg.svdvals(matrix()).shape == (24,)


@with_probes
def test_what_may_be_a_product_keeps_nothing_alive(probe: Callable[[], OpProbe]) -> None:
    with probe():
        single, batch = torch.ones(1, 3, 4), torch.ones(2, 5, 3)
        squeezed = single.squeeze(0)
        held = weakref.ref(single), weakref.ref(squeezed), weakref.ref(batch)
        batch.view(-1, 3)
        del single, squeezed, batch
        assert [one() for one in held] == [None, None, None]


@with_probes
def test_kernels_of_others_resolve_what_they_conjugate(probe: Callable[[], OpProbe]) -> None:
    with torch.library._scoped_library("numscope_tests", "FRAGMENT") as library:
        library.define("gram(Tensor a) -> Tensor")
        library.impl("gram", lambda a: torch.matmul(a, a.mH), "CPU")
        a = torch.complex(matrix(), matrix().roll(1))
        bare = torch.ops.numscope_tests.gram(a)
        assert bare.diagonal().imag.abs().max() < 1e-4
        with probe():
            assert torch.equal(torch.ops.numscope_tests.gram(a), bare)


def test_a_watched_loop_computes_the_bits_of_a_bare_one() -> None:
    def trained(watched: bool) -> list[bytes]:
        torch.manual_seed(0)
        model, seen = nn.Linear(16, 16), []
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        with numscope.watch(model) if watched else contextlib.nullcontext():
            for _ in range(3):
                hidden = model(torch.rand(4, 16))
                part = hidden[1:]
                torch._foreach_mul_([part], [hidden[:3].detach() + 1.0])
                hidden.square().mean().backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1, foreach=True)
                optimizer.step()
                optimizer.zero_grad()
                with torch.no_grad():
                    model.weight /= torch.linalg.matrix_norm(model.weight, ord=2)
                seen += [one.detach().numpy().tobytes() + bytes([one._version]) for one in model.parameters()]
        return seen

    assert trained(True) == trained(False)
