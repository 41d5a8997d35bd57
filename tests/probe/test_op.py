"""The op probe changes nothing, survives anything, and keeps nothing alive."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numscope.records.site import Phase
from numscope.replay.op import OpProbe
from numscope.replay.tape import OpTape, plain_name
from numscope.summary.ledger import Ledger
from tests.tape import OracleRows, traced


def _steps(model: nn.Module, batch: Callable[[], Any], probed: bool) -> list[Tensor]:
    torch.manual_seed(7)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seen: list[Tensor] = []
    for _ in range(2):
        tape, rows = OpTape(), Ledger()
        probe = OpProbe(tape, rows)
        if probed:
            with probe:
                loss = model(**batch()).loss
            backward = OpProbe(tape, rows, phase=Phase.BACKWARD)
            with backward:
                loss.backward()
            update = OpProbe(tape, rows, phase=Phase.OPTIMIZER)
            with update:
                optimizer.step()
            assert probe.error is None and backward.error is None and update.error is None
            assert len(tape.records) > 50
        else:
            loss = model(**batch()).loss
            loss.backward()
            optimizer.step()
        seen += [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
        optimizer.zero_grad()
    return [*seen, *(p.detach().clone() for p in model.parameters()), torch.get_rng_state()]


@pytest.mark.parametrize("kind", ["gpt2", "llama", "t5"])
def test_results_are_bitwise_the_same_under_the_probe(kind: str) -> None:
    transformers = pytest.importorskip("transformers")

    def build() -> nn.Module:
        torch.manual_seed(0)
        if kind == "gpt2":  # with dropout
            small = transformers.GPT2Config(n_embd=32, n_head=2, n_layer=2, vocab_size=64, n_positions=16)
            return transformers.GPT2LMHeadModel(small).train()
        if kind == "llama":
            config = transformers.LlamaConfig(
                hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=64, attention_dropout=0.1
            )
            model = transformers.LlamaForCausalLM(config).train()
            model.gradient_checkpointing_enable()
            return model
        config = transformers.T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, vocab_size=64, decoder_start_token_id=0)
        return transformers.T5ForConditionalGeneration(config).train()

    def batch() -> dict[str, Tensor]:
        ids = torch.randint(0, 64, (2, 8))
        return {"input_ids": ids, "labels": ids}

    plain, probed = _steps(build(), batch, False), _steps(build(), batch, True)
    assert len(plain) == len(probed)
    assert all(torch.equal(a, b) for a, b in zip(plain, probed, strict=True))


def test_each_tensor_state_is_summarized_once_and_views_are_free() -> None:
    rows, tape = OracleRows(), OpTape()
    x = torch.randn(4, 6)
    with OpProbe(tape, rows):
        y = x * 2
        a = y.t() + 1
        b = y.reshape(-1).view(6, 4).detach() + 2
        c = y.permute(1, 0).contiguous()
    del a, b, c
    assert [r.op for r in tape.records] == ["aten.mul", "aten.add", "aten.add", "aten.clone"]
    assert len(rows.rows) == 5  # x, y, and three results
    assert tape.records[1].inputs[0].producer == 0 and tape.records[2].inputs[0].producer == 0


def test_in_place_write_is_summarized_before_and_after() -> None:
    rows, tape = OracleRows(), OpTape()
    x = torch.ones(3)
    with OpProbe(tape, rows):
        x.mul_(5)
        x.mul_(5)
    first, second = tape.records
    state = tape.state_of(x)
    assert state is not None and state.writers[0] == 1
    assert [rows.numbers(o.state.row).max for r in (first, second) for o in (r.inputs[0], r.outputs[0])] == [1.0, 5.0, 5.0, 25.0]
    assert second.inputs[0].producer == 0


def test_nothing_is_kept_alive() -> None:
    tape = OpTape()
    with OpProbe(tape, Ledger()):
        x = torch.randn(10, requires_grad=True)
        y = x * 2
        gone = weakref.ref(y)
        z = y.sum()
    del y, x, z
    gc.collect()
    assert gone() is None


def test_limited_tape_keeps_the_last_records() -> None:
    tape = OpTape(limit=40)
    x = torch.zeros(2)
    with OpProbe(tape, Ledger()) as probe:
        for _ in range(500):
            x = x + 1
    assert probe.error is None
    assert 40 <= len(tape.records) <= 50
    state = tape.state_of(x)
    assert state is not None and state.writers[0] == 499 and tape[499].op == "aten.add"
    assert len(tape.storages) < 60


def test_error_of_the_op_reaches_the_user_and_the_probe_goes_on() -> None:
    tape = OpTape()
    with OpProbe(tape, Ledger()) as probe:
        with pytest.raises(RuntimeError, match="must match"):
            torch.ones(2) + torch.ones(3)
        torch.ones(2) + 1
    assert probe.error is None and tape.records[-1].op == "aten.add"


def test_error_of_the_ledger_disables_the_probe_and_not_the_run() -> None:
    class Broken:
        def observe(self, tensor: Tensor) -> int:
            raise ZeroDivisionError("planted")

        def numbers(self, handle: int) -> Any:
            raise AssertionError

    with OpProbe(OpTape(), Broken()) as probe:
        result = torch.ones(2) + 1
    assert isinstance(probe.error, ZeroDivisionError)
    assert torch.equal(result, torch.full((2,), 2.0))


def _sparse() -> Any:
    return torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.tensor([1.0, 2.0]), (3,)).to_dense() * 2


def _vmap() -> Any:
    return torch.vmap(lambda t: (t * 2).sum())(torch.ones(3, 2)), torch.func.grad(lambda t: (t**2).sum())(torch.ones(3))


def _subclass() -> Any:
    class Mine(Tensor):
        pass

    return torch.ones(3).as_subclass(Mine) * 2


def _flex() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(1, 1, 16, 8)
    return flex_attention(q, q, q)


def _inference() -> Any:
    with torch.inference_mode():
        x = torch.ones(3)
        return x.mul_(2).log()


def _custom_op() -> Any:
    @torch.library.custom_op("numscope_test::double", mutates_args=())
    def double(x: Tensor) -> Tensor:
        return x * 2

    return double(torch.ones(3))


def _subclass_that_wraps() -> Any:
    from torch.testing._internal.two_tensor import TwoTensor

    return (TwoTensor(torch.ones(3), torch.ones(3)) * 2).sum()


SCRIPTED = torch.jit.trace(lambda x: x * 2 + 1, torch.ones(2))  # made outside: torch's tracer itself fails under any dispatch mode
ODD: dict[str, Callable[[], Any]] = {
    "complex": lambda: torch.fft.fft(torch.ones(4)) * 1j,
    "conjugate": lambda: torch.ones(3, dtype=torch.complex64).conj() + 1,
    "integer": lambda: torch.arange(5).cumsum(0) // 2,
    "bool": lambda: torch.ones(3).bool() & torch.zeros(3).bool(),
    "empty": lambda: torch.cat([torch.empty(0, 3), torch.ones(2, 3)]).sum(0),
    "scalar": lambda: torch.tensor(2.0).item(),
    "sparse": _sparse,
    "meta": lambda: torch.ones(3, device="meta") * 2,
    "fp8": lambda: torch.ones(3).to(torch.float8_e4m3fn).float(),
    "expanded": lambda: torch.ones(1, 3).expand(4, 3) + 1,
    "overlapping": lambda: torch.arange(6.0).as_strided((3, 3), (1, 1)) * 2,
    "vmap": _vmap,
    "subclass": _subclass,
    "wrapper subclass": _subclass_that_wraps,
    "flex attention": _flex,
    "inference mode": _inference,
    "custom op": _custom_op,
    "rnn": lambda: nn.LSTM(3, 4)(torch.ones(2, 1, 3)),
    "set data": lambda: setattr(x := torch.ones(2), "data", torch.zeros(3)) or x + 1,
    "resize": lambda: torch.ones(2).resize_(0).resize_(4),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]) * 2,
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged) * 2,
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8).dequantize(),
    "out": lambda: torch.add(torch.ones(2), 1, out=torch.empty(2)),
    "scripted": lambda: SCRIPTED(torch.ones(2)),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.filterwarnings("ignore")
def test_any_tensor_passes_through(name: str) -> None:
    tape = OpTape()
    with OpProbe(tape, Ledger()) as probe:
        ODD[name]()
    assert probe.error is None


def test_wrapper_subclass_is_seen_by_the_operations_on_its_parts() -> None:
    tape = OpTape()
    from torch.testing._internal.two_tensor import TwoTensor

    x = TwoTensor(torch.ones(3), torch.zeros(3))
    rows = OracleRows()
    with OpProbe(tape, rows):
        1 / x
    reciprocals = [r for r in tape.records if r.op == "aten.reciprocal"]
    assert sorted(rows.numbers(r.outputs[0].state.row).num_nonfinite for r in reciprocals) == [0, 3]


def test_compiled_model_under_the_probe_still_runs() -> None:
    @torch.compile(backend="eager")
    def f(x: Tensor) -> Tensor:
        return (x * 2).log()

    tape = OpTape()
    with OpProbe(tape, Ledger()) as probe:
        result = f(torch.ones(3))
    assert probe.error is None
    assert torch.equal(result, torch.full((3,), 2.0).log())


def test_gradient_nodes_find_their_forward_ops() -> None:
    x = torch.rand(4, 4, requires_grad=True)
    w = torch.rand(4, 4, requires_grad=True)

    def step() -> Tensor:
        y = F.layer_norm(x @ w, (4,)).tanh()
        z = torch.cat([y.exp(), y[:2].sigmoid()])
        z[0] = z[1].clone().abs()
        return F.cross_entropy(z.clone(), torch.arange(6) % 4) + torch.linalg.vector_norm(x)

    run = traced(step, backward=True)
    pairs = {(r.node, r.forward.op) for r in run.tape.records if r.forward is not None}
    for node, op in [
        ("NllLossBackward0", "aten.nll_loss_forward"),
        ("LogSoftmaxBackward0", "aten._log_softmax"),
        ("ExpBackward0", "aten.exp"),
        ("SigmoidBackward0", "aten.sigmoid"),
        ("TanhBackward0", "aten.tanh"),
        ("NativeLayerNormBackward0", "aten.native_layer_norm"),
        ("MmBackward0", "aten.mm"),
        ("LinalgVectorNormBackward0", "aten.linalg_vector_norm"),
        ("AbsBackward0", "aten.abs"),
    ]:
        assert (node, op) in pairs, (node, sorted(pairs))


def test_another_thread_is_not_watched_and_not_hurt() -> None:
    tape = OpTape()
    done: list[Tensor] = []
    with OpProbe(tape, Ledger()):
        thread = threading.Thread(target=lambda: done.append(torch.ones(3) * 7))
        thread.start()
        thread.join()
    assert done[0][0] == 7 and all(r.op != "aten.mul" for r in tape.records)


def test_plain_names() -> None:
    assert [plain_name(n) for n in ("aten.sqrt_", "aten._foreach_div_", "aten._softmax")] == ["sqrt", "div", "_softmax"]
