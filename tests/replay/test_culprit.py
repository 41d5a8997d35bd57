"""Provenance: what escaped is traced to its cause; what did not is left alone."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numscope.records.finding import Reason
from numscope.replay.culprit import find_culprit
from numscope.replay.op import OpProbe
from numscope.replay.tape import OpTape
from numscope.summary.ledger import Ledger
from tests.tape import at, line_of, traced

HALF = torch.float16
INF = float("inf")


def here(marker: str) -> tuple[str, int]:
    return __file__, line_of(marker, __file__)


# ---- benign infinities


def test_masked_scores_before_softmax_are_no_fault() -> None:
    def step() -> Tensor:
        scores = torch.randn(4, 4, requires_grad=True)
        mask = torch.triu(torch.full((4, 4), -INF), diagonal=1)
        return (scores + mask).softmax(-1).sum() + scores.masked_fill(mask < 0, -INF).log_softmax(-1).exp().sum()

    run = traced(step, backward=True)
    assert torch.isfinite(run.result)
    assert any(r.op == "aten.full" for r in run.tape.records)
    assert run.culprit(run.result) is None


def test_log_of_zero_that_where_throws_away_is_no_fault_and_not_blamed_for_another() -> None:
    def step() -> tuple[Tensor, Tensor]:
        x = torch.tensor([0.0, 3.0])
        bucket = torch.where(x > 0, x.log(), torch.zeros(()))
        y = bucket * 2
        return y, (y / torch.zeros(()))  # division

    run = traced(step)
    good, bad = run.result
    assert run.culprit(good) is None
    assert at(run, bad, good) == here("division")


def test_bad_elements_that_a_slice_leaves_out_are_not_blamed() -> None:
    def step() -> Tensor:
        x = torch.ones(3, 2)
        x[:, 0] = torch.log(torch.zeros(3))
        return x[:, 1] * 2

    run = traced(step)
    assert run.culprit(run.result) is None


def test_slice_with_a_fault_of_its_own_is_told_from_its_neighbour() -> None:
    def step() -> Tensor:
        x = torch.ones(3, 2)
        x[:, 0] = torch.log(torch.zeros(3))
        x[:, 1] /= torch.zeros(3)  # column 1
        return x[:, 1] * 2

    run = traced(step)
    assert at(run, run.result) == here("column 1")


def test_whole_tensor_read_after_write_into_a_part_is_traced_to_the_write() -> None:
    def step() -> Tensor:
        x = torch.ones(4, 4)
        x[1:2, 2] = torch.sqrt(torch.full((1,), -1.0))  # part
        x[3] = 7
        return x.sum()

    run = traced(step)
    assert at(run, run.result) == here("part")


def test_write_that_covers_a_bad_one_clears_it() -> None:
    def step() -> Tensor:
        x = torch.ones(4)
        x.div_(0)
        x.fill_(2.0)
        return x.exp()

    run = traced(step)
    assert run.culprit(run.result) is None


def test_memory_used_again_by_another_tensor_is_not_confused() -> None:
    def step() -> Tensor:
        for _ in range(50):
            torch.ones(1000).div(0)  # freed at once; its address comes again
        return torch.from_numpy(torch.ones(1000).numpy().copy()).log().sum()

    run = traced(step)
    assert run.culprit(run.result) is None


# ---- chains


def test_nan_that_comes_of_an_overflow_is_traced_to_the_overflow() -> None:
    def step() -> Tensor:
        x = torch.full((4,), 300.0, dtype=HALF)
        big = x * x  # overflow
        return (big - big).softmax(-1).mean()

    run = traced(step)
    culprit = run.culprit(run.result)
    assert culprit is not None and culprit.reason == Reason.OVERFLOW
    assert (culprit.file, culprit.line) == here("overflow")


def test_masked_scores_that_overflowed_are_traced_to_the_overflow_not_the_mask() -> None:
    def step() -> Tensor:
        q = torch.full((2, 4), 300.0, dtype=HALF)
        scores = q @ q.t()  # scores
        scores = scores.masked_fill(torch.tensor([[False, True], [False, False]]), -INF)
        return scores.softmax(-1).sum()

    run = traced(step)
    assert at(run, run.result) == here("scores")


def test_overflow_that_a_mask_hides_is_not_blamed_for_a_row_masked_entirely() -> None:
    def step() -> Tensor:
        q = torch.tensor([[300.0], [1.0]], dtype=HALF)
        scores = q @ q.t()
        scores = scores.masked_fill(torch.tensor([[True, True], [False, False]]), -INF)
        return scores.softmax(-1).sum()  # masked row

    run = traced(step)
    culprit = run.culprit(run.result)
    assert culprit is not None and culprit.reason == Reason.INF_MINUS_INF
    assert (culprit.file, culprit.line) == here("masked row")


def test_bad_input_is_named_with_its_slot_and_first_use() -> None:
    x = torch.tensor([1.0, float("nan")])

    def step() -> Tensor:
        y = x * 2  # first use
        return y.exp().sum()

    culprit = (run := traced(step, names={id(x): "input[0]"})).culprit(run.result)
    assert culprit is not None and culprit.reason == Reason.BAD_INPUT
    assert "input[0] held 1 nan of 2" in culprit.detail
    assert (culprit.file, culprit.line) == here("first use")


def test_bad_parameter_is_named() -> None:
    w = nn.Parameter(torch.tensor([[1.0, INF]]))
    x = torch.ones(1, 2)
    culprit = (run := traced(lambda: F.linear(x, w), names={id(w): "wo.weight"})).culprit(run.result)
    assert culprit is not None and culprit.reason == Reason.BAD_PARAMETER and "wo.weight held 1 inf" in culprit.detail


def test_mask_passed_in_as_input_is_harmless_but_its_full_row_is_the_softmax_s_fault() -> None:
    mask = torch.tensor([[0.0, -INF], [-INF, -INF]])
    scores = torch.zeros(2, 2)

    def step() -> Tensor:
        masked = scores + mask
        return masked.softmax(-1)  # row

    run = traced(step, names={id(mask): "input[1]"})
    assert run.culprit(run.result[0].clone()) is None
    assert at(run, run.result) == here("row")


def test_infinite_data_in_the_input_is_bad_input() -> None:
    x = torch.tensor([[1.0, -INF]])
    w = torch.tensor([[1.0, 0.0]])
    culprit = (run := traced(lambda: F.linear(x, w), names={id(x): "input[0]"})).culprit(run.result)
    assert culprit is not None and culprit.reason == Reason.BAD_INPUT


def test_memory_left_uninitialized_is_named() -> None:
    def step() -> Tensor:
        x = torch.empty(4)  # never written
        x.numpy()[:] = float("nan")  # as it may hold
        return x * 2

    run = traced(step)
    culprit = run.culprit(run.result)
    assert culprit is not None and "uninitialized" in culprit.detail
    assert (culprit.file, culprit.line) == here("never written")


def test_several_outputs_and_lists_of_tensors() -> None:
    def step() -> list[Tensor]:
        xs = [torch.ones(2), torch.zeros(2), torch.ones(3)]
        ys = torch._foreach_mul(xs, 2.0)
        torch._foreach_reciprocal_(ys)  # foreach
        return [y + 1 for y in ys]

    run = traced(step)
    good, bad, _ = run.result
    assert run.culprit(good) is None
    culprit = run.culprit(bad)
    assert culprit is not None and culprit.op == "aten._foreach_reciprocal_" and culprit.reason == Reason.DIVISION_BY_ZERO
    assert (culprit.file, culprit.line) == here("foreach")
    assert len([o for o in culprit.inputs if o.numbers is not None]) == 1


# ---- with the ledger that training uses


def test_ledger_sees_in_place_results_within_the_dispatch() -> None:
    rows, tape = Ledger(), OpTape()
    with OpProbe(tape, rows) as probe:
        x = torch.zeros(4)
        y = x.add_(1).div_(0)  # in place
        y.mul_(2)
    assert probe.error is None
    rows.read()
    culprit = find_culprit(tape, [x], rows)
    assert culprit is not None and culprit.op == "aten.div_"
    assert (culprit.file, culprit.line) == here("in place")


def test_library_s_modeling_line_is_the_answer() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=64
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).half()
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight.fill_(60000.0)
        model.model.layers[1].mlp.up_proj.weight.fill_(30.0)
    ids = torch.randint(0, 64, (2, 8))
    names = {id(p): n for n, p in model.named_parameters()}
    run = traced(lambda: model(input_ids=ids, labels=ids).loss, names=names)
    assert not torch.isfinite(run.result)
    culprit = run.culprit(run.result)
    assert culprit is not None and culprit.reason == Reason.OVERFLOW, culprit
    assert culprit.file == inspect.getfile(type(model.model.layers[1].mlp))
    assert "self.down_proj" in culprit.code, culprit


def test_t5_trains_silently_with_its_log_of_zero() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, vocab_size=64, decoder_start_token_id=0, feed_forward_proj="gated-gelu"
    )
    torch.manual_seed(0)
    model = transformers.T5ForConditionalGeneration(config)
    ids = torch.randint(0, 64, (2, 8))
    run = traced(lambda: model(input_ids=ids, labels=ids).loss, backward=True)
    bad = [r.op for r in run.tape.records for o in r.outputs if o.state.row >= 0 and run.rows.numbers(o.state.row).num_nonfinite]
    assert "aten.log" in bad, "T5's log(0) is gone: plant another benign infinity"
    assert run.culprit(run.result, *(p.grad for p in model.parameters())) is None


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_row_masked_entirely_in_eager_attention_is_named(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if kind == "gpt2":
        config = transformers.GPT2Config(n_embd=16, n_head=2, n_layer=2, vocab_size=64, n_positions=16, attn_implementation="eager")
        model: Any = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=64, attn_implementation="eager"
        )
        model = transformers.LlamaForCausalLM(config)
    ids = torch.randint(0, 64, (1, 4))
    mask = torch.zeros(1, 1, 4, 4)
    mask[..., 2, :] = -INF
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = traced(lambda: model(input_ids=ids, attention_mask=mask).logits, names={id(mask): "input[attention_mask]"})
    culprit = run.culprit(run.result)
    assert culprit is not None and culprit.reason == Reason.INF_MINUS_INF and "softmax" in culprit.code, culprit


def test_distributed_tensor_is_traced_on_its_local_parts(one_rank: None) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (1,))
    x = distribute_tensor(torch.tensor([0.0, 4.0], requires_grad=True), mesh, [Shard(0)])
    x = x.detach().requires_grad_()

    def step() -> Tensor:
        y = x.sqrt()  # distributed
        return y.sum().to_local()

    run = traced(step, backward=True)
    assert at(run, x.grad) == here("distributed")
    bad = traced(lambda: (-x).log()).result  # forward too
    assert not torch.isfinite(bad.to_local()).all()
