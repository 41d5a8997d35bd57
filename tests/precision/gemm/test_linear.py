"""The three GEMMs of a converted layer: what each takes, and that those in high precision are bitwise torch's."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from numscope.precision import CurrentScaling, LayerPlan, autocast, convert, states
from numscope.precision.casting.cast import cast
from numscope.precision.gemm.recipes import MXFP8, BlockScaling, DelayedScaling, Recipe, RowwiseScaling
from numscope.records.errors import UsageError
from numscope.records.layer import GEMMS

SHAPES: dict[str, Callable[[], Tensor]] = {
    "2-D": lambda: torch.randn(6, 8),
    "3-D": lambda: torch.randn(2, 3, 8),
    "4-D": lambda: torch.randn(2, 1, 3, 8),
    "1-D": lambda: torch.randn(8),
    "column-major": lambda: torch.randn(8, 6).t(),
    "one row": lambda: torch.randn(1, 8),
    "strided": lambda: torch.randn(6, 16)[:, ::2],
    "batch second": lambda: torch.randn(3, 2, 8).transpose(0, 1),
    "expanded": lambda: torch.randn(1, 1, 8).expand(2, 3, 8),
    "no rows": lambda: torch.randn(0, 8),
}


def layer(bias: bool = True, kind: str = "linear") -> nn.Module:
    torch.manual_seed(0)
    return Conv1D(12, 8) if kind == "conv1d" else nn.Linear(8, 12, bias=bias)


def run(module: nn.Module, x: Tensor, wanted: str = "xwb", amp: bool = False) -> list[Tensor | None]:
    """Output and gradients, from the same gradient of the output each time."""
    x = x.detach()
    x = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(x) if 0 not in x.stride() else x  # the layout is kept
    x.requires_grad_("x" in wanted)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name[0] in wanted)
        parameter.grad = None
    with torch.autocast("cpu", torch.bfloat16, enabled=amp):
        y = module(x)
    if y.requires_grad:
        gradient = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype)
        y.backward(gradient)
    return [y.detach(), x.grad, *(parameter.grad for parameter in module.parameters())]


def same(a: list[Tensor | None], b: list[Tensor | None]) -> bool:
    return all(
        (p is None and q is None) or (p is not None and q is not None and p.dtype == q.dtype and torch.equal(p, q))
        for p, q in zip(a, b, strict=True)
    )


@pytest.mark.parametrize("amp", [False, True], ids=["plain", "autocast"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("shape", SHAPES)
def test_gemms_in_high_precision_are_bitwise_torchs(shape: str, bias: bool, amp: bool) -> None:
    x = SHAPES[shape]()
    bare = run(layer(bias), x, amp=amp)
    plain = DelayedScaling().plan()
    for gemms in [c for n in range(1, 4) for c in itertools.combinations(GEMMS, n)]:
        module = convert(layer(bias), plain.with_high(gemms))
        got = run(module, x, amp=amp)
        for gemm, at in (("fprop", 0), ("dgrad", 1), ("wgrad", 2)):
            if gemm in gemms:
                assert same([got[at]], [bare[at]]), (gemms, gemm)
        assert same(got[3:], bare[3:]), "the bias's gradient is no GEMM's"


@pytest.mark.parametrize("recipe", [DelayedScaling(), CurrentScaling(), RowwiseScaling(), BlockScaling(), MXFP8()], ids=lambda r: r.name)
@pytest.mark.parametrize("kind", ["linear", "conv1d"])
@pytest.mark.parametrize("high", GEMMS)
def test_other_gemms_are_bitwise_what_they_were(recipe: Recipe, high: str, kind: str) -> None:
    x = torch.randn(4, 3, 8)
    before = run(convert(layer(kind=kind), recipe), x)
    after = run(convert(layer(kind=kind), recipe.plan().with_high([high])), x)
    bare = run(layer(kind=kind), x)
    for at, gemm in enumerate(GEMMS):
        assert same([after[at]], [bare[at] if gemm == high else before[at]])
    assert not same([before[GEMMS.index(high)]], [bare[GEMMS.index(high)]])


@pytest.mark.parametrize("kind", ["linear", "conv1d"])
@pytest.mark.parametrize("recipe", [CurrentScaling(), RowwiseScaling(), BlockScaling(), MXFP8()], ids=lambda r: r.name)
def test_gemms_take_operands_as_the_plan_casts_them(recipe: Recipe, kind: str) -> None:
    """Against the three products written out in float64 from casts of our own."""
    x = torch.randn(40, 8)
    module = layer(kind=kind)
    y, dx, dw, *_ = run(convert(module, recipe), x)
    assert y is not None and dx is not None and dw is not None
    gradient = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    plan = recipe.plan()
    weight = module.weight.detach()

    def taken(gemm: str, operand: str, t: Tensor, columnwise: bool) -> Tensor:
        how = plan[gemm, operand]
        assert how is not None
        values = cast(t.contiguous(), how, columnwise=columnwise).values
        assert values is not None
        return values.double()

    w = weight.t() if kind == "conv1d" else weight  # [out, in] in memory of its own: what is columnwise there is rowwise here
    fprop = taken("fprop", "activation", x, False) @ taken("fprop", "weight", w, False).t() + module.bias.double()
    dgrad = taken("dgrad", "gradient", gradient, False) @ taken("dgrad", "weight", w, True)
    wgrad = taken("wgrad", "gradient", gradient, True).t() @ taken("wgrad", "activation", x, True)
    for got, expected in ((y, fprop), (dx, dgrad), (dw.t() if kind == "conv1d" else dw, wgrad)):
        torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)


def test_gradient_is_e5m2_under_hybrid_and_the_rest_e4m3() -> None:
    seen = {}
    module = convert(nn.Linear(8, 12), "delayed")
    (state,) = states(module).values()
    state.observer = lambda gemm, operand, x, made: seen.__setitem__((gemm, operand), made.how.format.name)
    run(module, torch.randn(4, 8))
    assert seen == {
        ("fprop", "activation"): "e4m3fn",
        ("fprop", "weight"): "e4m3fn",
        ("dgrad", "gradient"): "e5m2",
        ("dgrad", "weight"): "e4m3fn",
        ("wgrad", "gradient"): "e5m2",
        ("wgrad", "activation"): "e4m3fn",
    }


@pytest.mark.parametrize(("wanted", "gemms"), [("x", {"fprop", "dgrad"}), ("w", {"fprop", "wgrad"}), ("b", {"fprop"}), ("", {"fprop"})])
def test_no_gemm_runs_for_a_gradient_that_nobody_wants(wanted: str, gemms: set[str]) -> None:
    seen = set()
    module = convert(nn.Linear(8, 12), "current")
    (state,) = states(module).values()
    state.observer = lambda gemm, operand, x, made: seen.add(gemm)
    run(module, torch.randn(4, 8), wanted)
    assert seen == gemms


def test_gemm_of_one_quantized_operand_takes_the_other_as_it_is() -> None:
    how = CurrentScaling().plan()["fprop", "weight"]
    assert how is not None
    module = layer()
    x = torch.randn(4, 8)
    expected = F.linear(x, cast(module.weight.detach(), how).values, module.bias)
    assert torch.equal(convert(module, LayerPlan({("fprop", "weight"): how}))(x), expected)


def test_layer_called_twice_in_a_step_adds_up_both_gradients() -> None:
    x, z = torch.randn(4, 8), torch.randn(4, 8)
    module = convert(layer(), "mxfp8")
    (module(x).sum() + module(z).square().sum()).backward()
    together = module.weight.grad.clone()
    alone = []
    for t, power in ((x, 1), (z, 2)):
        module.weight.grad = None
        module(t).pow(power).sum().backward()
        alone.append(module.weight.grad)
    torch.testing.assert_close(together, alone[0] + alone[1])


def test_tied_weight_is_trained_by_both_its_users() -> None:
    embedding, head = nn.Embedding(12, 8), nn.Linear(8, 12, bias=False)
    head.weight = embedding.weight
    convert(head, "current")
    assert head.weight is embedding.weight
    head(embedding(torch.arange(12))).square().sum().backward()
    assert embedding.weight.grad is not None and embedding.weight.grad.isfinite().all()


def test_second_derivative_is_refused_not_wrong() -> None:
    module = convert(layer(), "current")
    x = torch.randn(4, 8, requires_grad=True)
    (first,) = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_weight_changed_between_forward_and_backward_is_an_error_as_it_is_in_torch() -> None:
    module = convert(layer(), "current")
    y = module(torch.randn(4, 8, requires_grad=True))
    with torch.no_grad():
        module.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_float64_computes_in_float64() -> None:
    module = convert(layer().double(), "current")
    y, dx, dw, db = run(module, torch.randn(4, 8, dtype=torch.float64), amp=False)
    assert {t.dtype for t in (y, dx, dw, db) if t is not None} == {torch.float64}


def test_dtypes_that_differ_without_autocast_are_refused_as_by_torch() -> None:
    with pytest.raises(RuntimeError, match="same dtype"):
        convert(layer(), "current")(torch.randn(4, 8).bfloat16())


def test_float16_with_a_loss_scale_computes_in_float16() -> None:
    module = convert(layer().half(), "delayed")
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    before = module.weight.detach().clone()
    y = module(torch.randn(4, 8).half())
    assert y.dtype is torch.float16
    scaler.scale(y.float().square().mean()).backward()
    assert module.weight.grad is not None and module.weight.grad.dtype is torch.float16
    optimizer.step()
    assert not torch.equal(before, module.weight)


def test_meta_tensors_and_fake_tensors_give_shapes() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        module = convert(nn.Linear(8, 12), "current")
        assert module(torch.randn(4, 8)).shape == (4, 12)
    for recipe in ("delayed", "mxfp8"):
        assert convert(nn.Linear(8, 12), recipe).to("meta")(torch.randn(4, 8, device="meta")).shape == (4, 12)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("recipe", ["delayed", "mxfp8", "high_precision"])
def test_traced_layers_quantize_what_they_are_given(recipe: str, grad: bool) -> None:
    module = convert(nn.Sequential(nn.Linear(8, 12), nn.ReLU(), Conv1D(4, 12)), recipe).eval()
    x, other = torch.randn(4, 8), 3 * torch.randn(4, 8) + 1
    with torch.set_grad_enabled(grad):
        expected = module(other)
        assert torch.equal(torch.jit.trace(module, x)(other), expected)
        assert torch.equal(torch.fx.symbolic_trace(module)(other), expected)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_rows_are_one_matrix(layout: torch.layout) -> None:
    module, parts = convert(nn.Linear(8, 8), "current"), [torch.randn(2, 8), torch.randn(3, 8)]
    results = []
    for x in (torch.nested.nested_tensor(parts, layout=layout), torch.cat(parts)):
        y = module(x)
        rows = torch.cat(y.unbind()) if y.is_nested else y
        module.zero_grad()
        rows.square().sum().backward()
        results.append((rows, module.weight.grad))
        assert (y + x).is_nested is x.is_nested, "in a residual connection, too"
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_transforms_of_torch_func_are_refused_by_name_and_work_in_high_precision() -> None:
    model = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 4))
    x = torch.randn(4, 8)
    expected = torch.func.vmap(torch.func.jacrev(model))(x)
    convert(model, "current")
    for call in (lambda: torch.func.vmap(model)(x), lambda: torch.func.jacrev(model)(x[0]), lambda: torch.func.jvp(model, (x,), (x,))):
        with pytest.raises(UsageError, match=r"^0: got a call within a transform of torch\.func .*autocast\(enabled=False\)"):
            call()
    with autocast(enabled=False):
        torch.testing.assert_close(torch.func.vmap(torch.func.jacrev(model))(x), expected)


def test_distributed_operand_is_refused_by_the_layers_name() -> None:
    class Elsewhere(Tensor):
        pass

    model = convert(nn.Sequential(nn.Linear(8, 12)), "current")
    with pytest.raises(UsageError, match=r"^0: got a Elsewhere, expected a plain tensor: fp8 GEMMs take whole operands\."):
        model(torch.randn(4, 8).as_subclass(Elsewhere))
