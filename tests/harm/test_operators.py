"""Every operator of torch, with the samples of torch's own tests, does under our probes what it does without them.

Not only bits: versions, histories, strides, what is a view of what. The cases are torch's: nobody here chose them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from numscope.records.site import Phase
from numscope.replay.log import Log
from numscope.replay.named import Named
from numscope.replay.noting import FunctionProbe, NotingProbe
from numscope.replay.op import OpProbe
from numscope.replay.tape import OpTape
from numscope.summary import native
from numscope.summary.ledger import Ledger

pytestmark = [
    pytest.mark.skipif(native.module is None, reason="the kernel was not built"),
    pytest.mark.filterwarnings("ignore"),  # of torch's samples
]

# What torch computes in another way where a mode is active, any mode. Those of values alone are called by their names in
# tests/replay/test_as_bare.py: here, where they are called by another, nobody can tell them from those of vectors.
OF_VALUES = {"norm", "linalg.cond", "linalg.eigvalsh", "linalg.norm", "linalg.matrix_norm", "linalg.svdvals"}
# The same bits, by way of other operations: another number of a fresh result's version, or another node's name.
OTHER_WAYS = {"nn.functional.linear_cross_entropy", "nn.functional.max_pool1d", "linalg.matrix_rank", "linalg.tensorinv"}
UNDEFINED = {"empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided", "empty_permuted", "linalg.lstsq"}

DATABASES = "op_db foreach_unary_op_db foreach_binary_op_db foreach_pointwise_op_db foreach_reduce_op_db foreach_other_op_db"
NUM_PARTS = 8
KINDS = ("operations", "notes", "functions")
# dtypes, whether a gradient is asked for, and whether operands are views: each under two of the probes, which change from case to case
CASES = [(torch.float32, True, True), (torch.float32, False, False), (torch.complex64, True, False)]


@pytest.fixture(scope="module")
def operators() -> Iterator[list[Any]]:
    pytest.importorskip("expecttest", reason="torch's own tests ask for it")
    from torch.testing._internal import common_methods_invocations as of_torch
    from torch.testing._internal import common_utils
    from torch.testing._internal.opinfo import core

    setattr(torch.backends, "__allow_nonbracketed_mutation_flag", True)  # which that module forbids for the whole process
    with pytest.MonkeyPatch.context() as patch:
        for module in (core, common_utils):  # else each sample looks through all frames, and modules, for torch's test
            patch.setattr(module, "extract_test_fn", lambda: None)
        found = [one for database in DATABASES.split() for one in getattr(of_torch, database)]
        yield [one for one in found if {torch.float32, torch.complex64} & one.dtypes and "sparse" not in one.name]


def probe_of(kind: str) -> OpProbe | FunctionProbe:
    if kind == "operations":
        return OpProbe(OpTape(), Ledger(), phase=Phase.LOSS)
    log = Log()
    probe = NotingProbe(OpTape(), Ledger(), log, phase=Phase.LOSS, names=Named(), flush=log.clear, most=9999, end=log.clear)
    return FunctionProbe(probe, most=9999, end=log.clear) if kind == "functions" else probe


def copied(tree: Any, into: list[Tensor], as_view: bool) -> Any:
    def copy(value: object) -> object:
        if not isinstance(value, Tensor):
            return value
        made = value.detach().clone()
        if made.is_floating_point() or made.is_complex():
            made.requires_grad_(value.requires_grad)
            if as_view and made.layout is torch.strided:
                made = (made * 1).view_as(made)
        into.append(made)
        return made

    return pytree.tree_map(copy, tree)


def bits(tensor: Tensor | None) -> bytes | None:
    if tensor is None or tensor.layout is not torch.strided or tensor.dtype in (torch.bfloat16, torch.complex32) or not tensor.numel():
        return None
    return tensor.detach().clone().contiguous().resolve_conj().resolve_neg().numpy(force=True).tobytes()


def history(tensor: Tensor) -> tuple[object, ...]:
    strides = tensor.stride() if tensor.layout is torch.strided else None
    base = (tensor._base._version, type(tensor._base.grad_fn)) if tensor._base is not None else None
    return tensor.shape, tensor.dtype, strides, tensor._version, type(tensor.grad_fn), tensor.is_leaf, tensor.requires_grad, base


def outcome(name: str, call: Callable[..., Any], sample: Any, probe: contextlib.AbstractContextManager[Any], as_view: bool) -> object:
    torch.manual_seed(1)
    given: list[Tensor] = []
    value, args, kwargs = copied((sample.input, sample.args, sample.kwargs), given, as_view)
    try:
        with probe:
            result = call(value, *args, **kwargs)
    except Exception as error:  # many a sample is made to fail
        return type(error)
    made = [one for one in pytree.tree_leaves(result) if isinstance(one, Tensor)]
    gradients: tuple[Tensor | None, ...] = ()
    losses = [one.sum().abs() for one in made if one.requires_grad and one.dtype != torch.complex32]
    leaves = [one for one in given if one.requires_grad and one.is_leaf]
    if losses and leaves:
        with contextlib.suppress(RuntimeError, IndexError):  # no derivative, or a wrong one
            gradients = torch.autograd.grad(sum(one.double() for one in losses), leaves, allow_unused=True)  # type: ignore[arg-type]
    seen = None if name in UNDEFINED | OF_VALUES else [bits(one) for one in (*given, *made, *gradients)]
    told = None if name in OTHER_WAYS else [history(one) for one in (*given, *made)]
    return seen, told


def samples(operator: Any, dtype: torch.dtype, requires_grad: bool) -> Iterator[Any]:
    more = {"noncontiguous": False} if operator.name.startswith("_foreach") else {}
    with contextlib.suppress(Exception):  # torch's own samples fail for some
        yield from islice(operator.sample_inputs("cpu", dtype, requires_grad=requires_grad, **more), 1)


@pytest.mark.parametrize("part", range(NUM_PARTS))
def test_operators_do_what_they_do_without_a_probe(operators: list[Any], part: int) -> None:
    num_seen, differing = 0, set()
    for number, operator in enumerate(operators[part::NUM_PARTS]):
        for call in filter(None, (operator.op, getattr(operator, "inplace_variant", None))):
            for turn, (dtype, requires_grad, as_view) in enumerate(CASES, number):
                for sample in samples(operator, dtype, requires_grad) if dtype in operator.dtypes else ():
                    bare = outcome(operator.name, call, sample, contextlib.nullcontext(), as_view)
                    for kind in (KINDS[turn % 3], KINDS[(turn + 1) % 3]):
                        num_seen += 1
                        if outcome(operator.name, call, sample, probe_of(kind), as_view) != bare:
                            differing.add((operator.name, kind))
    assert num_seen > 350
    assert not differing
