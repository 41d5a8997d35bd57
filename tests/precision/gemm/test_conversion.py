"""Converting in place and back: the layers stay the objects they are."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import re
import weakref

import pytest
import torch
import torch.distributed as dist
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

from numscope import precision
from numscope.precision import convert, revert, states
from numscope.precision.gemm.layer_state import live
from numscope.precision.gemm.recipes import CurrentScaling, DelayedScaling, HighPrecision
from numscope.records.errors import UsageError


class Wide(nn.Linear):
    """A subclass that adds no forward."""


class Scaled(nn.Linear):
    """A subclass whose forward is its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), Wide(16, 16), Scaled(16, 16), nn.Linear(16, 8, bias=False))


X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


def test_convert_keeps_parameters_state_dict_hooks_and_identity() -> None:
    net = model()
    calls: list[str] = []
    net[0].register_forward_hook(lambda *_: calls.append("forward"))
    net[0].weight.register_hook(lambda g: calls.append("gradient"))
    before = (list(net), list(net.parameters()), list(net.state_dict()), repr(net), net[0].extra_repr())
    assert convert(net, "current") is net
    assert all(a is b for a, b in zip(before[0], net, strict=True))
    assert all(a is b for a, b in zip(before[1], net.parameters(), strict=True))
    assert (list(net.state_dict()), repr(net), net[0].extra_repr()) == before[2:]
    net(X).sum().backward()
    assert calls == ["forward", "gradient"]
    assert isinstance(net[0], nn.Linear) and isinstance(net[2], Wide)


def test_converted_are_linears_their_plain_subclasses_and_conv1d() -> None:
    net = nn.ModuleDict({"seq": model(), "conv": Conv1D(4, 8), "attention": nn.MultiheadAttention(8, 2), "other": nn.Conv1d(1, 1, 1)})
    convert(net, "current")
    assert [state.name for state in states(net).values()] == ["seq.0", "seq.2", "seq.4", "conv"]


def test_revert_gives_the_model_back_bitwise() -> None:
    net, bare = model(), model()
    expected = bare(X)
    convert(net, "mxfp8")
    assert not torch.equal(net(X), expected)
    assert revert(net) is net
    assert [type(m) for m in net] == [type(m) for m in bare]
    assert [sorted(vars(m)) for m in net] == [sorted(vars(m)) for m in bare]
    assert torch.equal(net(X), expected)
    assert revert(net) is net  # once more: nothing to do


def test_state_dicts_of_converted_and_bare_models_are_exchanged() -> None:
    net, other = convert(model(), "current"), nn.Sequential(*model())
    torch.nn.init.ones_(other[0].weight)
    assert net.load_state_dict(other.state_dict()).missing_keys == []
    assert torch.equal(other.load_state_dict(net.state_dict()) and other[0].weight, net[0].weight)


@pytest.mark.parametrize("recipe", ["delayed", "current", "mxfp8"])
@pytest.mark.parametrize("way", ["deepcopy", "pickle", "save"])
def test_copy_of_a_converted_model_computes_the_same_and_goes_its_own_way(way: str, recipe: str) -> None:
    net = convert(model(), recipe)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(2):
        net(X).square().sum().backward()
        optimizer.step()
    if way == "deepcopy":
        other = copy.deepcopy(net)
    elif way == "pickle":
        other = pickle.loads(pickle.dumps(net))
    else:
        torch.save(net, file := io.BytesIO())
        file.seek(0)
        other = torch.load(file, weights_only=False)
    assert [type(m) for m in other] == [type(m) for m in net]
    assert torch.equal(other(X), net(X))
    mine, others = list(states(net).values()), list(states(other).values())
    assert {s.handle for s in mine}.isdisjoint({s.handle for s in others})
    assert [s.name for s in others] == ["0", "2", "4"]
    if recipe == "delayed":
        before = mine[0].histories["activation", "e4m3fn"].scale.clone()
        other.zero_grad()
        other(100 * X).sum().backward()
        torch.optim.SGD(other.parameters(), 0.1).step()
        assert torch.equal(mine[0].histories["activation", "e4m3fn"].scale, before)
        assert others[0].histories["activation", "e4m3fn"].scale < before
    revert(other)
    assert type(other[0]) is nn.Linear and type(net[0]) is not nn.Linear


@pytest.mark.parametrize("recipe", [DelayedScaling, CurrentScaling])
def test_copy_shares_amaxes_in_the_same_process_group_and_a_pickle_leaves_it_out(recipe: type[DelayedScaling | CurrentScaling]) -> None:
    group = dist.ProcessGroup(0, 1)
    net = convert(model(), recipe(margin=1, amax_group=group))
    copied, pickled = copy.deepcopy(net), pickle.loads(pickle.dumps(net))
    for other, expected in ((copied, group), (pickled, None)):
        assert [s.name for s in states(other).values()] == ["0", "2", "4"]
        for state in states(other).values():
            assert state.recipe == recipe(margin=1) and state.recipe.amax_group is expected  # type: ignore[attr-defined]
    assert [s.recipe.amax_group for s in states(net).values()] == [group] * 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("layers", ["[02]", re.compile("[02]"), ["0", "2"], ("2", "0"), lambda name, module: name in ("0", "2")])
def test_layers_are_chosen_by_pattern_names_or_function(layers: object) -> None:
    assert [s.name for s in states(convert(model(), "current", layers)).values()] == ["0", "2"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("net",), r"convert: model: got str, expected a torch\.nn\.Module\."),
        ((model(), "curent"), r"convert: recipe: got 'curent', expected a recipe, or one of .* Did you mean 'current'\?"),
        ((model(), "current", "(0"), r"convert: layers: '\(0' is not a regular expression: missing \)"),
        ((model(), "current", "fc.*"), r"convert: layers: 'fc\.\*' matches no layer that can be converted; there are 3, such as 0, 2, 4\."),
        ((model(), "current", ["0", "44"]), r"convert: layers: '44' is not a layer that can be converted\. Did you mean '4'\?"),
        ((model(), "current", None, "scaledmm"), r"convert: backend: got 'scaledmm', expected one of .* Did you mean 'scaled_mm'\?"),
        ((nn.LazyLinear(4), "current"), r"convert: the model: its weight is not there yet\. Run a batch through the model first\."),
    ],
)
def test_wrong_arguments_say_what_is_right(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        convert(*arguments)  # type: ignore[arg-type]


def test_layer_whose_forward_was_replaced_is_refused_since_nothing_would_change() -> None:
    net = model()
    net[0].forward = net[0].forward  # as offloading hooks do
    with pytest.raises(UsageError, match=r"^convert: 0: its forward was replaced on the object"):
        convert(net, "current")


def test_convert_again_takes_the_new_recipe_over() -> None:
    net = convert(model(), "current")
    before = states(net)
    convert(net, "delayed", backend="emulate")
    assert states(net) == before
    assert all(state.recipe == DelayedScaling() and state.backend == "emulate" for state in states(net).values())
    net(X)
    assert states(net)[net[0]].plan == DelayedScaling().plan()


def test_plan_that_was_assigned_outlasts_a_change_of_recipes() -> None:
    net = convert(model(), "current")
    state = states(net)[net[0]]
    state.plan = state.plan.with_high(["wgrad"])
    with precision.autocast(recipe="delayed"):
        net(X)
        assert state.plan == DelayedScaling().plan().with_high(["wgrad"])
    net(X)
    assert state.plan == CurrentScaling().plan().with_high(["wgrad"])
    state.plan = None
    assert state.plan == state.default == CurrentScaling().plan()


def test_gpt2_with_its_conv1d_layers_learns() -> None:
    torch.manual_seed(0)
    gpt = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=64, n_positions=16))
    tokens = torch.randint(0, 64, (2, 16))
    convert(gpt, "current")
    assert len(states(gpt)) == 5  # four of the block, and the head, which shares the embedding's weight
    optimizer = torch.optim.AdamW(gpt.parameters(), 3e-3)
    losses = []
    for _ in range(15):
        loss = gpt(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def test_states_die_with_their_model_and_the_hook_with_the_last() -> None:
    from numscope.precision.gemm import layer_state as keeping

    gc.collect()
    net = convert(model(), "delayed")
    net(X).sum().backward()
    ours = [state.handle for state in states(net).values()]
    gone = weakref.ref(next(iter(states(net).values())))
    assert keeping._hook is not None
    del net
    gc.collect()
    assert gone() is None
    assert not set(ours) & set(live)
    if not len(live):
        assert keeping._hook is None


def test_high_precision_recipe_is_the_model_itself() -> None:
    net, bare = convert(model(), HighPrecision()), model()
    for m in (net, bare):
        m(X).square().sum().backward()
    assert torch.equal(net(X), bare(X))
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(net.parameters(), bare.parameters(), strict=True))


@pytest.mark.parametrize("first", ["convert", "parametrize"])
def test_parametrized_layers_are_converted_reverted_and_rid_of_their_parametrization(first: str) -> None:
    """In any order; weight_norm and spectral_norm are such."""
    net, bare = model(), model()
    norm = torch.nn.utils.parametrizations.weight_norm
    norm(bare[0])
    for step in (first, "parametrize" if first == "convert" else "convert"):
        _ = convert(net, "current") if step == "convert" else norm(net[0])
    state = states(net)[net[0]]
    convert(net, "mxfp8")
    assert states(net)[net[0]] is state and state.recipe == precision.MXFP8(), "taken over again"
    y = net(X)
    y.sum().backward()
    assert net[0].parametrizations.weight.original1.grad is not None
    assert torch.equal(copy.deepcopy(net)(X), y) and not torch.equal(y, bare(X))
    torch.nn.utils.parametrize.remove_parametrizations(net[0], "weight")
    assert torch.equal(net(X), y)
    norm(net[0])
    revert(net)
    assert torch.equal(net(X), bare(X))
    torch.nn.utils.parametrize.remove_parametrizations(net[0], "weight")
    assert [type(m) for m in net] == [type(m) for m in model()]


def test_convert_does_not_run_a_parametrization() -> None:
    net = nn.Sequential(torch.nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)))
    before = copy.deepcopy(net.state_dict())  # a power iteration runs with each look at the weight
    convert(net, "current")
    assert all(torch.equal(held, before[name]) for name, held in net.state_dict().items())


def test_layers_of_complex_numbers_are_left_alone() -> None:
    net = convert(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8, dtype=torch.complex64)), "current")
    assert [state.name for state in states(net).values()] == ["0"]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_encoder_layers_of_torch_run_in_fp8_in_evaluation_too() -> None:
    """Without a look at hooks they would take the weights to a fused function."""
    torch.manual_seed(0)
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 1).eval()
    x = torch.randn(2, 4, 8)
    padding = torch.tensor([[False, False, False, True], [False] * 4])  # makes a nested tensor of x
    with torch.no_grad():
        bare = net(x, src_key_padding_mask=padding)
        convert(net, "rowwise")
        got = net(x, src_key_padding_mask=padding)
    expected = net.train()(x, src_key_padding_mask=padding)
    torch.testing.assert_close(got[~padding], expected[~padding], rtol=1e-5, atol=1e-6)
    assert (got - bare).abs().max() > 1e-3
    with torch.no_grad():
        assert torch.equal(revert(net).eval()(x, src_key_padding_mask=padding), bare)


def test_log_names_what_else_has_matrices(caplog: pytest.LogCaptureFixture) -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate_up_proj = nn.Parameter(torch.zeros(4, 8, 16))

    with caplog.at_level("INFO", "numscope"):
        convert(nn.Sequential(nn.Embedding(4, 8), nn.Linear(8, 8), nn.LayerNorm(8), Experts()), "current")
    assert [r.message for r in caplog.records] == ["convert: not converted, though they have matrices: 1 Experts."]
