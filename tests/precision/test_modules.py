"""The modules' constructors: parameters and children as Transformer Engine documents them, names, arguments that are refused."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from numscope.precision import modules
from numscope.probe.layer_names import layers_of, own_parameters
from numscope.records.errors import UsageError
from tests.precision.block import Block

H, F, HEADS = 16, 48, 4


def shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}


def norm(prefix: str = "", size: int = H, bias: bool = True) -> dict[str, tuple[int, ...]]:
    found = {f"{prefix}layer_norm_weight": (size,)}
    return {**found, f"{prefix}layer_norm_bias": (size,)} if bias else found


def linear(prefix: str, rows: int, columns: int, bias: bool = True) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {f"{prefix}weight": (rows, columns)}
    return {**found, f"{prefix}bias": (rows,)} if bias else found


def split(prefix: str, columns: int, **rows: int) -> dict[str, tuple[int, ...]]:
    weights: dict[str, tuple[int, ...]] = {f"{prefix}{part}_weight": (size, columns) for part, size in rows.items()}
    return {**weights, **{f"{prefix}{part}_bias": (size,) for part, size in rows.items()}}


MLP = {**norm(), **linear("fc1_", F, H), **linear("fc2_", H, F)}

# As the documentation of transformer_engine.pytorch states them; the order is that of its modules, which optimizers' states go by.
TABLE: list[tuple[str, Callable[[], nn.Module], dict[str, tuple[int, ...]]]] = [
    ("Linear", lambda: modules.Linear(H, F), linear("", F, H)),
    ("Linear without bias", lambda: modules.Linear(H, F, bias=False), linear("", F, H, bias=False)),
    ("Linear in equal parts", lambda: modules.Linear(H, F, parameters_split=("a", "b_")), split("", H, a=F // 2, b=F // 2)),
    ("Linear in parts", lambda: modules.Linear(H, F, parameters_split={"q": 40, "k": 8}), split("", H, q=40, k=8)),
    ("LayerNormLinear", lambda: modules.LayerNormLinear(H, F), {**norm(), **linear("", F, H)}),
    (
        "LayerNormLinear in parts",
        lambda: modules.LayerNormLinear(H, 3 * H, parameters_split=("query", "key", "value")),
        {**norm(), **split("", H, query=H, key=H, value=H)},
    ),
    (
        "LayerNormLinear of RMSNorm",
        lambda: modules.LayerNormLinear(H, F, normalization="RMSNorm"),
        {**norm(bias=False), **linear("", F, H)},
    ),
    ("LayerNormMLP", lambda: modules.LayerNormMLP(H, F), MLP),
    (
        "LayerNormMLP gated",
        lambda: modules.LayerNormMLP(H, F, activation="swiglu", bias=False, normalization="RMSNorm"),
        {**norm(bias=False), **linear("fc1_", 2 * F, H, False), **linear("fc2_", H, F, False)},
    ),
    ("LayerNorm", lambda: modules.LayerNorm(H), {"weight": (H,), "bias": (H,)}),
    ("RMSNorm", lambda: modules.RMSNorm(H), {"weight": (H,)}),
]


@pytest.mark.parametrize(("make", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_parameters_are_those_that_transformer_engine_documents(
    make: Callable[[], nn.Module], expected: dict[str, tuple[int, ...]]
) -> None:
    module = make()
    assert shapes(module) == expected
    assert {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()} == expected


def test_parameters_of_a_linear_in_parts_are_the_parts_of_one() -> None:
    whole = modules.Linear(H, F)
    parts = modules.Linear(H, F, parameters_split={"q": 40, "k": 8})
    with torch.no_grad():
        parts.q_weight.copy_(whole.weight[:40])
        parts.k_weight.copy_(whole.weight[40:])
    x = torch.randn(3, H)
    assert torch.equal(parts(x), whole(x))


def test_weights_are_drawn_with_transformer_engines_deviation_and_biases_are_zero() -> None:
    torch.manual_seed(0)
    layer = Block(256, 512, 4)
    for name, parameter in layer.named_parameters():
        if "norm_weight" in name:
            assert torch.equal(parameter, torch.ones_like(parameter))
        elif "bias" in name:
            assert torch.equal(parameter, torch.zeros_like(parameter))
        else:  # of 65536 or more: the sample's deviation is within 5 of its own standard errors
            assert parameter.std().item() == pytest.approx(0.023, rel=5 / (2 * parameter.numel()) ** 0.5)


def test_init_methods_fill_the_weights_that_they_are_for() -> None:
    def ones(weight: Tensor) -> object:
        return nn.init.constant_(weight, 1.0)

    def twos(weight: Tensor) -> object:
        return nn.init.constant_(weight, 2.0)

    layer = nn.ModuleDict(
        {
            "layernorm_qkv": modules.LayerNormLinear(H, 3 * H, parameters_split=("query", "key", "value"), init_method=ones),
            "proj": modules.Linear(H, H, init_method=twos),
            "layernorm_mlp": modules.LayerNormMLP(H, F, init_method=ones, output_layer_init_method=twos),
        }
    )
    found = {name: parameter.unique().tolist() for name, parameter in layer.named_parameters() if "norm" not in name.rpartition(".")[2]}
    assert {name for name, values in found.items() if values == [1.0]} == {
        "layernorm_qkv.query_weight",
        "layernorm_qkv.key_weight",
        "layernorm_qkv.value_weight",
        "layernorm_mlp.fc1_weight",
    }
    assert {name for name, values in found.items() if values == [2.0]} == {"proj.weight", "layernorm_mlp.fc2_weight"}


def test_zero_centered_weight_starts_at_zero() -> None:
    assert modules.LayerNormLinear(H, F, zero_centered_gamma=True).layer_norm_weight.tolist() == [0.0] * H


def test_dtype_and_device_are_those_asked_for() -> None:
    kinds: list[Callable[..., nn.Module]] = [
        lambda **placed: modules.Linear(H, F, **placed),
        lambda **placed: modules.LayerNormLinear(H, F, **placed),
        lambda **placed: modules.LayerNormMLP(H, F, **placed),
        lambda **placed: modules.LayerNorm(H, **placed),
        lambda **placed: modules.RMSNorm(H, **placed),
    ]
    for make in kinds:
        module = make(params_dtype=torch.bfloat16, device="meta")
        assert {(p.dtype, p.device.type) for p in module.parameters()} == {(torch.bfloat16, "meta")}


def test_layer_made_on_meta_is_filled_by_reset_parameters() -> None:
    layer = modules.LayerNormMLP(H, F, device="meta").to_empty(device="cpu")
    layer.reset_parameters()
    assert torch.isfinite(layer(torch.randn(2, H))).all()
    assert layer.fc1.parameter("weight") is layer.fc1_weight


# ---- layers' names


def owners(module: nn.Module) -> list[str]:
    return [layer.name for layer in layers_of(module).values() if layer.owns_parameters]


def test_given_name_is_the_beginning_of_its_layers_names() -> None:
    assert owners(Block(H, F, HEADS, name="decoder.layers.3")) == [
        "decoder.layers.3.layernorm_qkv.layer_norm",
        "decoder.layers.3.layernorm_qkv",
        "decoder.layers.3.proj",
        "decoder.layers.3.layernorm_mlp.layer_norm",
        "decoder.layers.3.layernorm_mlp.fc1",
        "decoder.layers.3.layernorm_mlp.fc2",
    ]


def test_without_a_name_layers_have_their_place_in_the_model() -> None:
    model = nn.ModuleDict({"blocks": nn.ModuleList([modules.LayerNormMLP(H, F), modules.LayerNormLinear(H, F)])})
    assert owners(model) == [
        "blocks.0.layer_norm",
        "blocks.0.fc1",
        "blocks.0.fc2",
        "blocks.1.layer_norm",
        "blocks.1",
    ]


@pytest.mark.parametrize("module", [modules.Linear(H, F), modules.LayerNormLinear(H, F)], ids=lambda m: type(m).__name__)
def test_unnamed_module_alone_is_layer_1(module: nn.Module) -> None:
    assert owners(module)[-1] == "Layer_1"


def test_parts_have_their_modules_class_and_place() -> None:
    (found,) = [layer for layer in layers_of(modules.LayerNormLinear(H, F, name="qkv")).values() if layer.name == "qkv"]
    assert (found.cls, found.qualified, found.weights, found.numel_weights) == ("LayerNormLinear", "", ("weight",), H * F)


def test_each_parameter_is_one_layers() -> None:
    model = nn.Sequential(Block(H, F, HEADS), modules.LayerNormMLP(H, F), modules.LayerNorm(H))
    counted = [id(p) for module in layers_of(model) for p in own_parameters(module).values() if p is not None]
    assert sorted(counted) == sorted(id(p) for p in model.parameters())


# ---- copies, checkpoints, memory


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copied", "pickled"])
def test_copy_works_with_its_own_parameters(again: Callable[[nn.Module], Any]) -> None:
    module = modules.LayerNormMLP(H, F)
    other = again(module)
    with torch.no_grad():
        module.fc1_weight.zero_()
    x = torch.randn(2, H)
    assert not torch.equal(other(x), module(x))
    assert other.fc1.parameter("weight") is other.fc1_weight


def test_deleted_module_is_gone_at_once() -> None:
    gc.disable()
    try:
        module = Block(H, F, HEADS)
        module(torch.randn(3, 2, H)).sum().backward()
        gone = weakref.ref(module.layernorm_mlp.fc1_weight)
        del module
        assert gone() is None
    finally:
        gc.enable()


def test_checkpoint_of_transformer_engine_loads() -> None:
    layer = Block(H, F, HEADS)
    theirs = {name: torch.full(shape, 0.5) for name, shape in shapes(layer).items()}
    theirs |= {f"{name}._extra_state": torch.zeros(3, dtype=torch.uint8) for name in ("layernorm_qkv", "proj", "layernorm_mlp")}
    layer.load_state_dict(theirs)
    assert all((parameter == 0.5).all() for parameter in layer.parameters())


def test_checkpoint_with_an_unknown_key_is_refused() -> None:
    module = modules.LayerNormMLP(H, F)
    with pytest.raises(RuntimeError, match="fc3_weight"):
        module.load_state_dict({**module.state_dict(), "fc3_weight": torch.zeros(1)})


# ---- refusals


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: modules.Linear(H, F, tp_size=2),
            "Linear: tp_size: got 2, expected 1: these modules do not support it. Split the module with torch.distributed.tensor.parallel, "
            "or use the framework's own layers with convert().",
        ),
        (
            lambda: modules.LayerNormMLP(H, F, fuse_wgrad_accumulation=True),
            "LayerNormMLP: fuse_wgrad_accumulation: got True, expected False: these modules do not support it. "
            "Gradients are accumulated in .grad.",
        ),
        (lambda: modules.Linear(H, F, biass=True), "Linear: biass is not an argument. Did you mean 'bias'?"),
        (
            lambda: modules.LayerNormLinear(H, F, normalization="LayerNrom"),
            "LayerNormLinear: normalization: got 'LayerNrom', expected one of LayerNorm, RMSNorm. Did you mean 'LayerNorm'?",
        ),
        (
            lambda: modules.LayerNormMLP(H, F, activation="swish"),
            "LayerNormMLP: activation: got 'swish', expected one of gelu, geglu, qgelu, qgeglu, relu, reglu, srelu, sreglu, silu, swiglu.",
        ),
        (
            lambda: modules.Linear(H, F, parameters_split={"a": 40, "b": 9}),
            "Linear: parameters_split: got parts of 40, 9 rows, expected a total of out_features, which is 48.",
        ),
        (
            lambda: modules.Linear(H, F, parameters_split=()),
            "Linear: parameters_split: got (), expected names, or a dict of names and sizes.",
        ),
    ],
)
def test_wrong_argument_is_refused_in_one_sentence(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert str(caught.value) == message


def test_arguments_of_tensor_parallelism_that_ask_for_none_are_taken() -> None:
    module = modules.LayerNormMLP(
        H,
        F,
        set_parallel_mode=True,
        sequence_parallel=True,
        tp_size=1,
        tp_group=None,
        get_rng_state_tracker=None,
        fuse_wgrad_accumulation=False,
        seq_length=8,
        micro_batch_size=2,
        ub_overlap_ag=True,
    )
    assert shapes(module) == MLP
