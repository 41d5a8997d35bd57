from __future__ import annotations

import copy
import dataclasses
import inspect
import io
import pickle
import re
from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.errors import UsageError
from numscope.remedy import high_precision

HALF = torch.float16


def grads(module: nn.Module) -> list[Tensor]:
    return [p.grad for p in module.parameters() if p.grad is not None]


class Overflowing(nn.Module):
    """Two finite factors whose product leaves float16, brought back by the end."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return (self.first(x) * self.second(x)) / 1e4


def overflowing() -> tuple[Overflowing, Tensor]:
    torch.manual_seed(0)
    module = Overflowing().half()
    return module, torch.randn(4, 8).half() * 2000


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


@pytest.mark.parametrize("layer", [nn.LSTM(4, 4, 2), nn.GRU(4, 4), nn.MultiheadAttention(4, 2), nn.Conv1d(4, 4, 1), nn.Bilinear(4, 4, 4)])
def test_layers_of_every_kind(layer):
    torch.manual_seed(0)
    module = copy.deepcopy(layer).half()
    wide = copy.deepcopy(module).float()
    arity = {nn.MultiheadAttention: 3, nn.Bilinear: 2}.get(type(layer), 1)
    x = torch.randn(4, 4).half()
    with high_precision(module):
        got = module(*[x] * arity)
    expected = wide(*[x.float()] * arity)
    got, expected = (y if isinstance(y, Tensor) else y[0] for y in (got, expected))
    assert got.dtype == HALF and torch.equal(got, expected.half())


def test_copies_and_pickles_while_it_is_on_work_on_their_own_weights():
    module, x = overflowing()
    with high_precision(module):
        twins = [copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
        torch.save(module, buffer := io.BytesIO())
        twins.append(torch.load(io.BytesIO(buffer.getvalue()), weights_only=False))
        expected = module(x)
        for twin in twins:
            assert torch.equal(twin(x), expected)
            nn.init.zeros_(twin.first.weight)
            assert not torch.equal(twin(x), expected)
            twin.forward.remove()
            assert "forward" not in twin.__dict__
    assert torch.equal(copy.deepcopy(module)(x.clamp(-1, 1)), module(x.clamp(-1, 1)))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile_of_the_whole_graph(backend):
    module, x = overflowing()
    torch._dynamo.reset()
    compiled = torch.compile(nn.Sequential(module, nn.Linear(8, 8).half()), backend=backend, fullgraph=True)
    before = compiled(x)
    with high_precision(module):
        got = compiled(x)
        got.sum().backward()
        expected = compiled._orig_mod(x)
    assert not before.isfinite().all() and got.isfinite().all() and torch.equal(got, expected)
    assert [g.dtype for g in grads(module)] == [HALF] * 4
    assert not compiled(x).isfinite().all()


def test_activation_checkpointing_around_it():
    from torch.utils.checkpoint import checkpoint

    module, x = overflowing()
    results = []
    with high_precision(module):
        for again in (False, True):
            module.zero_grad()
            y = checkpoint(module, x, use_reentrant=False) if again else module(x)
            y.float().mul(1e-3).sum().backward()
            results.append([y.detach(), *[g.clone() for g in grads(module)]])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_hooks_fire_once_a_call():
    module, x = overflowing()
    calls: list[nn.Module] = []
    for child in module.modules():
        child.register_forward_hook(lambda m, i, o: calls.append(m))
    with high_precision(module):
        module(x)
        module(x)
    assert calls == [module.first, module.second, module] * 2


def test_inference_mode_and_evaluation():
    module, x = overflowing()
    with high_precision(module.eval()), torch.inference_mode():
        assert module(x).isfinite().all()


def test_signature_is_the_modules_own():
    module = Overflowing()
    expected = inspect.signature(module.forward)
    with high_precision(module):
        assert inspect.signature(module.forward) == expected


def test_a_cache_among_the_arguments_is_not_written_twice():
    class Cache:
        def __init__(self) -> None:
            self.seen: list[Tensor] = []

    class Attend(nn.Module):
        def forward(self, x: Tensor, cache: Cache) -> Tensor:
            cache.seen.append(x)
            return x

    module, cache = Attend(), Cache()
    with high_precision(module):
        assert module(torch.ones(1, dtype=HALF), cache).dtype == HALF
    assert len(cache.seen) == 1


def test_data_dependent_control_flow_falls_back_to_the_rule():
    class Branch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    module = Branch()
    with high_precision(module):
        assert module(torch.ones(1, dtype=HALF)).dtype == HALF


def test_t5_feed_forward_of_the_guide_no_longer_overflows():
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    config = T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu")
    model = T5ForConditionalGeneration(config).half().eval()
    feed_forward = model.encoder.block[1].layer[1].DenseReluDense
    with torch.no_grad():
        feed_forward.wi_0.weight.mul_(1000)
        feed_forward.wi_1.weight.mul_(1000)
        feed_forward.wo.weight.mul_(0.001)
    ids = torch.randint(3, 60, (2, 7))

    def inner() -> Tensor:
        seen: list[Tensor] = []
        hook = feed_forward.register_forward_hook(lambda m, i, o: seen.append(o))
        model(input_ids=ids, decoder_input_ids=ids)
        hook.remove()
        return seen[0]

    assert not inner().isfinite().all()
    with numscope.high_precision(feed_forward):
        assert inner().isfinite().all() and inner().dtype == HALF
        assert model(input_ids=ids, decoder_input_ids=ids).logits.isfinite().all()


def test_advice_of_a_finding_cures_it(caplog, capsys):
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    config = T5Config(
        vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu", decoder_start_token_id=0
    )
    model = T5ForConditionalGeneration(config).half()
    feed_forward = model.encoder.block[1].layer[1].DenseReluDense
    with torch.no_grad():
        for factor, layer in ((1000, feed_forward.wi_0), (1000, feed_forward.wi_1), (0.001, feed_forward.wo)):
            layer.weight.mul_(factor)
    ids = torch.randint(3, 60, (2, 7))

    def step() -> list[Any]:
        with numscope.watch(model, on_nonfinite="warn") as scope:
            model(input_ids=ids, labels=ids).loss.backward()
        model.zero_grad()
        return scope.findings

    (finding,) = step()
    assert finding.culprit.op == "aten.mul"
    code = re.search(r"numscope\.high_precision\(model[^()]*\)", finding.culprit.advice).group()
    with eval(code, {"numscope": numscope, "model": model}) as handle:
        assert handle.module is feed_forward
        assert step() == []
    assert len(step()) == 1
    assert not caplog.records  # the tool had no trouble of its own


def test_under_ddp_and_fsdp_units(one_rank):
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    module, x = overflowing()
    parallel = nn.parallel.DistributedDataParallel(module)
    with high_precision(module):
        y = parallel(x)
        y.sum().backward()
        assert y.isfinite().all() and grads(module)[0].dtype == HALF

    module, x = overflowing()
    model = nn.Sequential(module, nn.Linear(8, 8).half())
    expected = copy.deepcopy(model)
    mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
    fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    with high_precision(module), high_precision(expected[0]):
        y = model(x)
        assert y.isfinite().all() and torch.equal(y, expected(x))
        y.sum().backward()
        assert grads(module)[0].dtype == HALF
    with pytest.raises(UsageError, match=r"its submodule '0' is an FSDP unit \(FSDPModule\).*Apply it to that unit's own submodules"):
        high_precision(model)

    inner = nn.Sequential(nn.Linear(8, 8).half())
    fully_shard(inner, mesh=mesh)
    with high_precision(inner[0]), pytest.raises(UsageError, match=r"its weight is a DTensor at the call, expected plain weights"):
        inner[0](x)  # outside its unit's forward


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
            "float32 cures an overflow of float16.",
        ),
        (
            (nn.Identity(), None),
            "high_precision: dtype: got None, expected one of torch.float32, torch.float64, torch.bfloat16, torch.float16. "
            "float32 cures an overflow of float16.",
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
