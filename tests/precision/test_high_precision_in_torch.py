"""``high_precision`` beside the rest of torch: kinds of layers, copies, compile, checkpoints, caches, DDP and FSDP."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.precision.high_precision import high_precision
from numscope.records.errors import UsageError
from tests.precision.overflowing import HALF, Overflowing, grads, overflowing


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
