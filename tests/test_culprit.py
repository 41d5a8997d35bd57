"""Provenance: what escaped is traced to its cause; what did not is left alone."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from numscope.culprit import find_culprit
from numscope.ledger import Ledger
from numscope.probe.op import OpProbe, OpTape
from numscope.record import Reason
from numscope.site import Phase
from tests.tape import Run, line_of, traced

HALF = torch.float16
INF = float("inf")


def at(run: Run, *escaped: Tensor | None) -> tuple[str, int]:
    culprit = run.culprit(*escaped)
    assert culprit is not None
    return culprit.file, culprit.line


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


# ---- lines


def test_line_within_a_statement_of_several_lines() -> None:
    def step() -> Tensor:
        x = torch.tensor([-1.0, 2.0])
        return torch.stack(
            [
                x.relu().sum(),
                x.abs().log().sum(),
                torch.log(  # the call
                    x,
                ).sum(),
            ]
        ).sum()

    run = traced(step)
    file, line = at(run, run.result)
    assert (file, line) == (__file__, line_with("torch.log(  # the call"))


def test_line_within_a_chain_of_calls() -> None:
    def step() -> Tensor:
        x = torch.tensor([-1.0, 2.0])
        return (
            x.neg()
            .sqrt()  # chained
            .exp()
            .sum()
        )  # fmt: skip

    run = traced(step)
    import sys

    if sys.version_info >= (3, 11):
        assert at(run, run.result) == here("chained")


def line_with(text: str) -> int:
    with open(__file__) as f:
        return next(i for i, row in enumerate(f, 1) if row.strip() == text)


def test_code_without_a_file_keeps_its_line() -> None:
    space: dict[str, Any] = {"torch": torch}
    exec(compile("def f(x):\n    y = x * 2\n    return y.log()\n", "<made up>", "exec"), space)
    run = traced(lambda: space["f"](-torch.ones(2)))
    culprit = run.culprit(run.result)
    assert culprit is not None and (culprit.file, culprit.line, culprit.code) == ("<made up>", 3, "")


def test_stack_runs_from_the_outermost_user_frame_to_the_line() -> None:
    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.log()

    model = nn.Sequential(nn.Identity(), Inner())
    culprit = (run := traced(lambda: model(-torch.ones(2)))).culprit(run.result)
    assert culprit is not None
    assert [f.rpartition(".")[2] for _, _, f, _ in culprit.stack] == ["<lambda>", "forward"]
    assert culprit.stack[-1][3] == "return x.log()"


# ---- autograd


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bad_forward: bool) -> Tensor:
        ctx.save_for_backward(x)
        return x / (0.0 * x) if bad_forward else x * 2  # custom forward

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad / (x - x), None  # custom backward


@pytest.mark.parametrize("bad_forward", [True, False])
def test_custom_function_is_named_by_its_own_line(bad_forward: bool) -> None:
    x = torch.ones(3, requires_grad=True)
    run = traced(lambda: Scaled.apply(x, bad_forward).sum(), backward=True)
    culprit = run.culprit(run.result, x.grad)
    assert culprit is not None and culprit.reason == Reason.DIVISION_BY_ZERO
    assert culprit.phase == (Phase.FORWARD if bad_forward else Phase.BACKWARD)
    assert (culprit.file, culprit.line) == here("custom forward" if bad_forward else "custom backward")


def test_gradient_of_an_op_written_into_a_view_has_its_forward_line() -> None:
    x = torch.tensor([0.0, 4.0], requires_grad=True)

    def step() -> Tensor:
        y = torch.ones(2, 2) * 3
        y[0] = x
        y[0].sqrt_()  # into a view
        with torch.no_grad():
            y.detach().add(1)
        return y.sum()

    run = traced(step, backward=True)
    assert torch.isfinite(run.result)
    assert at(run, x.grad) == here("into a view")


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_forward_keeps_lines_in_its_backward(reentrant: bool) -> None:
    x = torch.tensor([0.0, 4.0], requires_grad=True)

    def block(t: Tensor) -> Tensor:
        u = t * 1
        return u.sqrt() * 2  # checkpointed

    run = traced(lambda: checkpoint(block, x, use_reentrant=reentrant).sum(), backward=True)
    culprit = run.culprit(x.grad)
    assert culprit is not None and culprit.reason == Reason.GRADIENT_AT_ZERO and culprit.phase == Phase.BACKWARD
    assert (culprit.file, culprit.line) == here("checkpointed")


def test_gradient_taken_within_the_forward_is_backward_with_its_forward_line() -> None:
    def step() -> Tensor:
        x = torch.zeros(3, requires_grad=True)
        norm = (x * x).sum().sqrt()  # penalty
        (gradient,) = torch.autograd.grad(norm, x, create_graph=True)
        return gradient.square().sum()

    run = traced(step)
    culprit = run.culprit(run.result)
    assert culprit is not None and culprit.phase == Phase.BACKWARD
    assert (culprit.file, culprit.line) == here("penalty")


def test_double_backward_fault_has_a_line_of_the_forward() -> None:
    x = torch.tensor([0.0, 1.0], requires_grad=True)

    def step() -> Tensor:
        y = (x.abs() ** 1.5).sum()  # twice
        (gradient,) = torch.autograd.grad(y, x, create_graph=True)
        return gradient.sum()

    run = traced(step, backward=True)
    assert torch.isfinite(run.result)
    assert not torch.isfinite(x.grad).all()  # the second derivative of |x|^1.5 at 0 is inf
    assert at(run, x.grad) == here("twice")


def test_gradient_accumulated_over_uses_says_so_and_names_the_parameter() -> None:
    w = nn.Parameter(torch.tensor([1.0], dtype=HALF))
    w.grad = torch.tensor([60000.0], dtype=HALF)

    def step() -> Tensor:
        return (w * 50000).sum()  # uses w

    run = traced(step, backward=True, names={id(w): "w"})
    culprit = run.culprit(w.grad)
    assert culprit is not None and culprit.reason == Reason.OVERFLOW
    assert "Gradient accumulation of w" in culprit.detail
    assert (culprit.file, culprit.line) == here("uses w")


def test_bad_gradient_handed_in_is_said_to_come_from_outside() -> None:
    x = torch.ones(2, requires_grad=True)
    rows, tape = Ledger(), OpTape()
    with OpProbe(tape, rows):
        y = x * 3
    grad = torch.tensor([1.0, float("nan")])
    with OpProbe(tape, rows, phase=Phase.BACKWARD, names={id(grad): "grad output[0]"}):
        y.backward(grad)
    rows.read()
    culprit = find_culprit(tape, [x.grad], rows)
    assert culprit is not None and culprit.reason == Reason.BAD_INPUT and "grad output[0]" in culprit.detail


def test_module_of_a_backward_op_is_its_forward_s() -> None:
    current = [""]

    class Named(nn.Module):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def forward(self, x: Tensor) -> Tensor:
            current[0] = self.name
            return x.sqrt() if self.name == "blocks.1" else x * 2

    a, b, c = Named("blocks.0"), Named("blocks.1"), Named("blocks.2")
    x = torch.zeros(2, requires_grad=True)
    run = traced(lambda: c(b(a(x))).sum(), backward=True, module_name=lambda: current[0])
    culprit = run.culprit(x.grad)
    assert culprit is not None and culprit.module == "blocks.1" and culprit.phase == Phase.BACKWARD


def test_autocast_overflow_names_the_product_in_half_precision() -> None:
    lin = nn.Linear(8, 8, bias=False)
    nn.init.constant_(lin.weight, 100.0)
    x = torch.full((2, 8), 1000.0)

    def step() -> Tensor:
        with torch.autocast("cpu", dtype=HALF):
            return F.linear(x, lin.weight).float().sum()  # autocast

    run = traced(step, names={id(lin.weight): "weight"})
    culprit = run.culprit(run.result)
    assert culprit is not None and culprit.reason == Reason.OVERFLOW and culprit.op == "aten.mm"
    assert (culprit.file, culprit.line) == here("autocast")


# ---- optimizers


def _optimizer_step(optimizer: torch.optim.Optimizer, w: Tensor) -> Run:
    run = traced(lambda: optimizer.step(), phase=Phase.OPTIMIZER, names={id(w): "w"})  # optimizer step
    run.result = w
    return run


@pytest.mark.parametrize("foreach", [True, False])
def test_adam_without_eps_divides_zero_by_zero(foreach: bool) -> None:
    w = nn.Parameter(torch.ones(3))
    w.grad = torch.zeros(3)
    run = _optimizer_step(torch.optim.Adam([w], eps=0.0, foreach=foreach), w)
    culprit = run.culprit(w)
    assert culprit is not None and culprit.reason == Reason.OPTIMIZER_UPDATE and culprit.phase == Phase.OPTIMIZER
    assert "division by zero" in culprit.detail and "eps" in culprit.advice
    assert (culprit.file, culprit.line) == here("optimizer step")


def test_infinite_learning_rate_is_an_optimizer_update() -> None:
    w = nn.Parameter(torch.ones(3))
    w.grad = torch.ones(3)
    optimizer = torch.optim.SGD([w], lr=0.1)
    optimizer.param_groups[0]["lr"] = INF
    culprit = _optimizer_step(optimizer, w).culprit(w)
    assert culprit is not None and culprit.reason == Reason.OPTIMIZER_UPDATE


def test_adam_in_float16_overflows_in_its_second_moment() -> None:
    w = nn.Parameter(torch.ones(3, dtype=HALF))
    w.grad = torch.full((3,), 10000.0, dtype=HALF)
    optimizer = torch.optim.Adam([w], betas=(0.9, 0.5), foreach=False, capturable=False)
    run = _optimizer_step(optimizer, w)
    culprit = run.culprit(optimizer.state[w]["exp_avg_sq"])
    assert culprit is not None and culprit.reason == Reason.OPTIMIZER_UPDATE and "float16" in culprit.detail


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
