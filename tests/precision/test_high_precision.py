from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.precision.high_precision import high_precision
from numscope.records.errors import UsageError
from tests.precision.overflowing import HALF, Overflowing, grads, overflowing


def test_it_cures_an_overflow_and_gives_back_the_dtype():
    module, x = overflowing()
    assert not module(x).isfinite().all()
    with high_precision(module):
        got = module(x)
    oracle = copy.deepcopy(module).double()(x.double())
    assert got.dtype == HALF and got.isfinite().all()
    torch.testing.assert_close(got.double(), oracle, rtol=2e-3, atol=1e-3)


def test_gradients_are_those_of_high_precision_in_the_parameters_own_dtype():
    module, x = overflowing()
    wide = copy.deepcopy(module).float()
    x.requires_grad_()
    wide_x = x.detach().float().requires_grad_()
    with high_precision(module):
        module(x).float().mul(1e-3).sum().backward()
    wide(wide_x).half().float().mul(1e-3).sum().backward()
    assert [g.dtype for g in grads(module)] == [HALF] * 4 and x.grad.dtype == HALF
    for got, expected in zip([*grads(module), x.grad], [*grads(wide), wide_x.grad], strict=True):
        assert torch.equal(got, expected.half())


def test_module_that_computes_in_the_dtype_already_gives_bitwise_the_same():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Dropout(0.3), nn.Linear(8, 3))
    x = torch.randn(4, 8)
    results = []
    for on in (False, True):
        module.zero_grad()
        torch.manual_seed(1)
        handle = high_precision(module) if on else None
        y = module(x)
        y.sum().backward()
        results.append([y.detach(), *[g.clone() for g in grads(module)], torch.get_rng_state()])
        if handle:
            handle.remove()
    for bare, treated in zip(*results, strict=True):
        assert torch.equal(bare, treated)


def test_nothing_is_left_after_removal():
    module, x = overflowing()

    def everything() -> tuple[Any, ...]:
        children = [{k: v for k, v in m.__dict__.items()} for m in module.modules()]
        return [sorted(c) for c in children], [id(p) for p in module.parameters()], {k: v.clone() for k, v in module.state_dict().items()}

    before, forward = everything(), module.forward
    handle = high_precision(module)
    assert list(module.state_dict()) == list(before[2])
    module(x)
    with pytest.raises(RuntimeError):
        module(torch.ones(3, dtype=HALF))  # a wrong shape: the weights must come back on an exception, too
    handle.remove()
    handle.remove()
    after = everything()
    assert before[:2] == after[:2] and module.forward == forward
    assert all(torch.equal(before[2][k], after[2][k]) for k in before[2])


def test_handles_on_one_module_go_in_any_order():
    module, x = overflowing()
    first, second, third = high_precision(module), high_precision(module, torch.float64), high_precision(module)
    second.remove()
    assert module(x).isfinite().all()
    first.remove()
    assert module(x).isfinite().all()
    third.remove()
    assert "forward" not in module.__dict__


def test_an_earlier_instance_forward_is_kept_and_restored():
    module = nn.Linear(2, 2).half()
    module.forward = mine = lambda x: x * module.weight.sum()
    with high_precision(module):
        assert module(torch.ones(1, dtype=HALF)).dtype == HALF
    assert module.forward is mine


def test_removal_under_somebody_elses_wrapper_passes_the_call_on():
    module, x = overflowing()
    handle = high_precision(module)
    held = module.forward
    module.forward = lambda x: held(x)
    assert module(x).isfinite().all()
    handle.remove()
    assert not module(x).isfinite().all()


@pytest.mark.parametrize("wanted", [torch.bfloat16, torch.float16])
def test_autocast_is_off_inside_and_outputs_have_the_autocast_dtype(wanted):
    seen: list[Any] = []

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.linear(x)
            seen.append((torch.is_autocast_enabled("cpu"), y.dtype))
            return y, self.norm(x)  # autocast's dtype, and that of the input

    module, x = Net(), torch.randn(2, 4)
    with torch.autocast("cpu", wanted):
        bare = module(x)
        with high_precision(module):
            treated = module(x)
        assert torch.is_autocast_enabled("cpu")
    assert seen[0] == (True, wanted) and seen[-1] == (False, torch.float32)
    assert [y.dtype for y in treated] == [y.dtype for y in bare] == [wanted, torch.float32]


def test_output_dtype_follows_what_the_module_casts_by_itself():
    class Mixed(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"half": x * 2, "float": x.float(), "double": x.double(), "index": x.argmax(), "flag": x > 0}

    module, x = Mixed(), torch.randn(3).half()
    bare = module(x)
    with high_precision(module):
        treated = module(x)
    assert {k: v.dtype for k, v in treated.items()} == {k: v.dtype for k, v in bare.items()}


def test_output_dtype_overrides():
    module, x = overflowing()
    module.forward = lambda x: Overflowing.forward(module, x) * 1e4  # beyond float16 at the end
    with high_precision(module):
        assert not module(x).isfinite().all()  # cast back, it overflows again
    with high_precision(module, output_dtype=torch.float32):
        assert module(x).dtype == torch.float32 and module(x).isfinite().all()


Named = namedtuple("Named", "a b")


@dataclasses.dataclass(frozen=True)
class Parcel:
    x: Any
    rest: Any = None


def test_nested_inputs_and_outputs_keep_their_structure():
    got: list[Any] = []

    class Echo(nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            got.append((args, kwargs))
            return (args, kwargs)

    half, index = torch.ones(2, dtype=HALF), torch.arange(2)
    module = Echo()
    with high_precision(module):
        out = module([half, (index, None)], Named(half, "s"), x=OrderedDict(y=half), p=Parcel(half, [Parcel(index)]))
    args, kwargs = got[-1]
    assert args[0][0].dtype == torch.float32 and args[0][1][0] is index and args[0][1][1] is None
    assert isinstance(args[1], Named) and args[1].a.dtype == torch.float32 and args[1].b == "s"
    assert isinstance(kwargs["x"], OrderedDict) and kwargs["x"]["y"].dtype == torch.float32
    assert isinstance(kwargs["p"], Parcel) and kwargs["p"].x.dtype == torch.float32 and kwargs["p"].rest[0].x is index
    assert out[0][0][0].dtype == HALF and out[1]["p"].x.dtype == HALF and isinstance(out[0][1], Named)


def test_integers_bools_complex_and_wider_floats_are_untouched():
    inputs = [torch.ones(2, dtype=d) for d in (torch.int64, torch.bool, torch.complex64, torch.float64)]
    module = nn.Identity()
    module.forward = lambda *xs: [x is y for x, y in zip(xs, inputs, strict=True)]
    with high_precision(module):
        assert all(module(*inputs))


def test_shared_weight_is_cast_once_and_its_gradient_summed():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x: Tensor) -> Tensor:
            assert self.a.weight is self.b.weight
            return self.b(self.a(x))

    torch.manual_seed(0)
    module, x = Tied().half(), torch.randn(2, 4).half()
    wide = copy.deepcopy(module).float()
    with high_precision(module):
        module(x).float().sum().backward()
    wide(x.float()).half().float().sum().backward()
    assert module.a.weight is module.b.weight and torch.equal(module.a.weight.grad, wide.a.weight.grad.half())


def test_nested_and_repeated_treatment():
    module, x = overflowing()
    with high_precision(module.first), high_precision(module), high_precision(module.second, torch.float64):
        assert module(x).isfinite().all() and module(x).dtype == HALF


def test_running_statistics_are_kept():
    torch.manual_seed(0)
    module = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4))
    wide = copy.deepcopy(module)
    module.half()
    x = torch.randn(16, 4).half()
    with high_precision(module):
        module(x)
    wide(x.float())
    assert module[0].running_mean.dtype == HALF and torch.equal(module[0].running_mean, wide[0].running_mean.half())
    assert module[0].num_batches_tracked == 1


def test_buffer_that_a_forward_writes_or_replaces_is_kept():
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("written", torch.zeros(1))
            self.register_buffer("replaced", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            self.written += x.sum()
            self.replaced = self.replaced + 2 * x.sum()
            return x

    module = Counting().half()
    with high_precision(module):
        module(torch.ones(2, dtype=HALF))
    assert (module.written, module.replaced) == (2, 4) and module.replaced.dtype == HALF


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("encoder",),
            "high_precision: module: got str, expected a torch.nn.Module. "
            "Pass the module itself, such as model.encoder.block[2].layer[1].DenseReluDense.",
        ),
        (
            (nn.Identity(), torch.int8),
            "high_precision: dtype: got torch.int8, expected one of torch.float32, torch.float64, torch.bfloat16, torch.float16. "
            "Use float32 to cure an overflow of float16.",
        ),
        (
            (nn.Identity(), None),
            "high_precision: dtype: got None, expected one of torch.float32, torch.float64, torch.bfloat16, torch.float16. "
            "Use float32 to cure an overflow of float16.",
        ),
    ],
)
def test_wrong_arguments_say_what_is_right(arguments, message):
    with pytest.raises(UsageError) as error:
        high_precision(*arguments)
    assert str(error.value) == message


def test_wrong_output_dtype_is_named():
    with pytest.raises(UsageError, match=r"^high_precision: output_dtype: got torch.int8, expected one of"):
        high_precision(nn.Identity(), output_dtype=torch.int8)


@pytest.mark.parametrize("made", [nn.LayerNorm, nn.Identity])
def test_under_a_watch_outputs_have_the_dtypes_of_a_bare_run(made):
    def dtype(is_watched):
        net = nn.Sequential(made(4), nn.Sequential(nn.Linear(4, 4)))
        high_precision(net[1])
        with numscope.watch(net) if is_watched else contextlib.nullcontext(), torch.autocast("cpu", torch.float16):
            return net(torch.randn(2, 4)).dtype

    assert dtype(True) is dtype(False) is torch.float16
