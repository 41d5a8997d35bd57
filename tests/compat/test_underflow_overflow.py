"""Every test runs transformers' own class and ours on the same thing and compares what they printed and raised, byte for byte."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import debug_utils as theirs

from numscope.compat import underflow_overflow as ours

MODELS = ("t5", "llama", "gpt2", "bert", "mixtral", "vit", "clip", "whisper", "mamba")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
NAN, INF = float("nan"), float("inf")


class Outcome(NamedTuple):
    stdout: str
    stderr: str
    errors: list[tuple[str, str]]  # type and message


def run(side: Any, act: Callable[[Any], None], capsys: pytest.CaptureFixture[str], times: int = 1) -> Outcome:
    """What ``act(side)``, done some times, printed and raised; the random state is the same at each start."""
    errors: list[tuple[str, str]] = []
    capsys.readouterr()
    torch.manual_seed(7)
    for _ in range(times):
        try:
            act(side)
        except Exception as error:
            errors.append((type(error).__name__, str(error)))
    return Outcome(*capsys.readouterr(), errors)


def compare(make: Callable[[Any], Callable[[Any], None]], capsys: pytest.CaptureFixture[str], times: int = 1) -> Outcome:
    """The outcome, after both sides showed the same. ``make(side)`` builds a fresh act for each side."""
    expected = run(theirs, make(theirs), capsys, times)
    got = run(ours, make(ours), capsys, times)
    assert got.errors == expected.errors
    assert got.stdout == expected.stdout
    assert got.stderr == expected.stderr
    return got


def watched(model: nn.Module, call: Callable[[nn.Module], Any], **options: Any) -> Callable[[Any], Callable[[Any], None]]:
    """An act on a copy of the model for each side, watched by that side's class."""
    import copy

    def make(side: Any) -> Callable[[Any], None]:
        mine = copy.deepcopy(model)
        side.DebugUnderflowOverflow(mine, **options)
        return lambda _: call(mine)

    return make


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_trace_of_two_batches_is_equal(name, dtype, build, capsys):
    model, kwargs = build(name, dtype)
    got = compare(watched(model, lambda m: m(**kwargs), trace_batch_nums=[0, 2]), capsys, times=3)
    assert "*** Starting batch number=0 ***" in got.stdout and "*** Starting batch number=2 ***" in got.stdout
    assert "*** Starting batch number=1 ***" not in got.stdout


@pytest.mark.parametrize(("name", "dtype"), [(name, DTYPES[i % 3]) for i, name in enumerate(MODELS)], ids=str)
def test_detection_of_scaled_weights_is_equal(name, dtype, build, capsys):
    model, kwargs = build(name, dtype)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    with torch.no_grad():
        # Finite weights, too large for a product of two; a norm in between may hide that again (x * rsqrt(inf) is 0).
        for p in matrices[len(matrices) // (4 if name == "mamba" else 2) :]:
            p.copy_(p.sign() * torch.finfo(dtype).max / 2)
    got = compare(watched(model, lambda m: m(**kwargs)), capsys)
    assert [kind for kind, _ in got.errors] == ["ValueError"]
    assert "Detected inf/nan during batch_number=" in got.stdout


@pytest.mark.parametrize(("name", "bad"), [(name, (NAN, INF, -INF)[i % 3]) for i, name in enumerate(MODELS)])
def test_detection_of_a_bad_weight_in_a_later_batch_is_equal(name, bad, build, capsys):
    model, kwargs = build(name)

    def make(side: Any) -> Callable[[Any], None]:
        import copy

        mine = copy.deepcopy(model)
        watch = side.DebugUnderflowOverflow(mine, max_frames_to_save=4)

        def act(_: Any) -> None:
            mine(**kwargs)
            if watch.batch_number == 2:
                list(mine.parameters())[3].data.view(-1)[0] = bad  # through .data: no version counter moves

        return act

    got = compare(make, capsys, times=5)  # goes on after the error, as a notebook does
    assert len(got.errors) == 3
    assert ("has nans" if bad != bad else "has infs") in got.stdout


def test_detection_after_a_traced_batch_reports_all_frames_since(build, capsys):
    model, kwargs = build("llama")

    def make(side: Any) -> Callable[[Any], None]:
        import copy

        mine = copy.deepcopy(model)
        watch = side.DebugUnderflowOverflow(mine, max_frames_to_save=2, trace_batch_nums=[0])

        def act(_: Any) -> None:
            if watch.batch_number == 2:
                list(mine.parameters())[-1].data.fill_(float("inf"))
            mine(**kwargs)

        return act

    got = compare(make, capsys, times=3)
    assert len(got.errors) == 1


def test_no_detection_in_a_traced_batch(build, capsys):
    model, kwargs = build("gpt2")
    next(model.parameters()).data[0] = float("nan")
    got = compare(watched(model, lambda m: m(**kwargs), trace_batch_nums=[0]), capsys, times=2)
    assert len(got.errors) == 1 and "during batch_number=1" in got.stdout


@pytest.mark.parametrize("last", [0, 1])
def test_abort_is_equal(last, build, capsys):
    model, kwargs = build("bert")
    got = compare(watched(model, lambda m: m(**kwargs), abort_after_batch_num=last), capsys, times=3)
    assert len(got.errors) == 3 - last
    assert got.errors[0][1].endswith(f"`abort_after_batch_num={last}` arg")


@pytest.mark.parametrize("frames", [0, 1, 21, 1000, None])
def test_number_of_frames_is_equal(frames, build, capsys):
    model, kwargs = build("llama", torch.float16)
    model.lm_head.weight.data.fill_(6e4)
    compare(watched(model, lambda m: m(**kwargs), max_frames_to_save=frames), capsys)


@pytest.mark.parametrize("options", [{"max_frames_to_save": "x"}, {"max_frames_to_save": -1}, {"trace_batch_nums": 3}, {"nonsense": 1}])
def test_wrong_arguments_raise_the_same(options, capsys):
    def make(side: Any) -> Callable[[Any], None]:
        def act(side: Any) -> None:
            model = nn.Linear(2, 2)
            side.DebugUnderflowOverflow(model, **options)
            model(torch.ones(2))

        return act

    assert compare(make, capsys).errors


def test_fp16_overflow_of_the_guide_is_equal(build, capsys):
    model, kwargs = build("t5", torch.float16)
    for name, p in model.named_parameters():
        if "DenseReluDense" in name:
            p.data.mul_(40)
    got = compare(watched(model, lambda m: m(**kwargs)), capsys)
    assert "has infs" in got.stdout and "Dense" in got.stdout


def test_training_with_backward_is_equal(build, capsys):
    model, kwargs = build("t5")

    def call(mine: nn.Module) -> None:
        mine(**kwargs).loss.backward()
        with torch.no_grad():
            for p in mine.parameters():
                p -= 0.1 * (p.grad if p.grad is not None else 0)

    compare(watched(model, call, trace_batch_nums=[0, 1, 2]), capsys, times=3)


class Pair(NamedTuple):
    a: Any
    b: Any


VALUES: dict[str, Any] = {
    "none": None,
    "int": 3,
    "text": "x",
    "list": [torch.ones(2)],
    "dict": {"a": torch.full((2,), NAN)},
    "nested tuple": (torch.ones(2), (torch.zeros(2), None, (torch.ones(1), NAN))),
    "named tuple": Pair(torch.ones(2), Pair(torch.full((1,), INF), 1)),
    "empty tuple": (),
    "scalar": torch.tensor(2.5),
    "nan": torch.tensor([1.0, NAN]),
    "inf": torch.tensor([1.0, INF]),
    "-inf": torch.tensor([0.0, -INF]),
    "nan and inf": torch.tensor([NAN, INF, 0.0]),
    "only inf": torch.tensor([INF, -INF]),
    "only nan": torch.tensor([NAN]),
    "zeros": torch.zeros(3),
    "negative zero": torch.tensor([-0.0]),
    "subnormal": torch.tensor([1e-45, 1e-40]),
    "fp16 subnormal": torch.tensor([6e-8, 6.1e-5], dtype=torch.float16),
    "fp16 largest": torch.tensor([65504.0, 1.0], dtype=torch.float16),
    "fp16 rounding": torch.tensor([0.1, 2.995e3], dtype=torch.float16),
    "bf16": torch.tensor([0.1, 3.39e38], dtype=torch.bfloat16),
    "bf16 subnormal": torch.tensor([9.2e-41], dtype=torch.bfloat16),
    "float64 beyond float32": torch.tensor([1e-300, 5e-324, 1.7e308], dtype=torch.float64),
    "empty": torch.empty(0),
    "empty matrix": torch.empty(0, 3),
    "bool": torch.tensor([True, False]),
    "uint8": torch.tensor([200, 3], dtype=torch.uint8),
    "int8 lowest": torch.tensor([-128, 5], dtype=torch.int8),
    "int64 lowest": torch.tensor([-(2**63), 2**62 + 1]),
    "int64": torch.tensor([[4, 17], [-2, 3]]),
    "uint16": torch.tensor([1, 2], dtype=torch.uint16),
    "complex": torch.tensor([3 + 4j, 1j]),
    "complex nan": torch.tensor([complex(NAN, 0), 1j]),
    "complex128 inf": torch.tensor([complex(0, INF)], dtype=torch.complex128),
    "e4m3": torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn),
    "e5m2": torch.tensor([1.0, INF]).to(torch.float8_e5m2),
    "transposed": torch.arange(6.0).reshape(2, 3).t(),
    "every other": torch.tensor([1.0, NAN, 2.0, NAN])[::2],
    "expanded": torch.tensor([3.0]).expand(4, 5),
    "sparse": torch.eye(3).to_sparse(),
    "meta": torch.ones(3, device="meta"),
    "negated view": torch.view_as_complex(torch.ones(2, 2)).conj().imag,
    "needs gradient": torch.ones(2, requires_grad=True) * 3,
    "parameter": nn.Parameter(torch.ones(2)),
    "masked": torch.tensor([0.5, -INF, -INF]),
}


class Give(nn.Module):
    """Gives a value whatever it gets."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.value


@pytest.mark.filterwarnings("ignore")  # torch's on experimental layouts and dtypes
@pytest.mark.parametrize("traced", [[], [0]])
@pytest.mark.parametrize("case", VALUES)
def test_any_value_as_output_and_input_is_equal(case, traced, capsys):
    value = VALUES[case]

    def make(side: Any) -> Callable[[Any], None]:
        model = nn.Sequential(Give(value), Give(torch.ones(1)))
        side.DebugUnderflowOverflow(model, trace_batch_nums=traced)
        return lambda _: model(torch.ones(1))

    compare(make, capsys, times=2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", ["get_abs_min_max", "detect_overflow"])
@pytest.mark.parametrize("case", VALUES)
def test_functions_on_any_value_are_equal(function, case, capsys):
    value = VALUES[case]

    def make(side: Any) -> Callable[[Any], None]:
        return lambda side: print(repr(getattr(side, function)(value, "after layer_norm")))

    compare(make, capsys)


def test_subclass_of_tensor_goes_its_own_way(capsys):
    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is torch.Tensor.abs:
                return torch.full((2,), 42.0)
            return super().__torch_function__(func, types, args, kwargs or {})

    value = torch.ones(2).as_subclass(Loud)
    got = compare(lambda _: lambda side: print(side.get_abs_min_max(value, "x")), capsys)
    assert got.stdout == "4.20e+01 4.20e+01 x\n"


@pytest.mark.parametrize("transform", [torch.vmap, torch.func.jacfwd, torch.func.grad])
def test_under_function_transforms_is_equal(transform, capsys):
    def make(side: Any) -> Callable[[Any], None]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
        side.DebugUnderflowOverflow(model, trace_batch_nums=[0])
        return lambda _: transform(lambda x: model(x).sum())(torch.ones(2, 2))

    compare(make, capsys)


def test_under_compile_is_equal(capsys):
    def make(side: Any) -> Callable[[Any], None]:
        torch.manual_seed(0)
        torch._dynamo.reset()
        model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
        side.DebugUnderflowOverflow(model, trace_batch_nums=[0, 1])
        compiled = torch.compile(model, backend="eager")
        return lambda _: compiled(torch.ones(2, 2))

    assert "1 Tanh" in compare(make, capsys, times=2).stdout


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
@settings(max_examples=60, deadline=None)
@given(bits=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=9))
def test_any_bit_pattern_formats_equal(dtype, bits):
    width = {torch.float64: torch.int64, torch.float32: torch.int32}.get(dtype, torch.int16)
    size = torch.iinfo(width).bits
    signed = [(b % 2**size) - (2**size if (b % 2**size) >= 2 ** (size - 1) else 0) for b in bits]
    tensor = torch.tensor(signed, dtype=width).view(dtype)
    assert ours.get_abs_min_max(tensor, "x") == theirs.get_abs_min_max(tensor, "x")


def test_shared_modules_print_one_frame_a_hook(capsys):
    shared = nn.Linear(3, 3)
    model = nn.Sequential(nn.Sequential(shared, nn.ReLU()), nn.Sequential(shared, nn.ReLU()))
    got = compare(watched(model, lambda m: m(torch.ones(2, 3)), trace_batch_nums=[0]), capsys)
    assert got.stdout.count(" 0.0 Linear") == 4  # called twice, hooked twice


def test_keyword_and_no_arguments_are_equal(capsys):
    compare(watched(Give((None, 1)), lambda m: m(x=torch.ones(1)), trace_batch_nums=[0]), capsys)


def test_unhashable_and_generator_batch_numbers_are_equal(capsys):
    for traced in (range(1, 3), (0,), {1}):
        compare(watched(nn.Linear(2, 2), lambda m: m(torch.ones(2)), trace_batch_nums=traced), capsys, times=4)


def test_attributes_that_users_read_are_equal(capsys):
    state = {}
    for side in (theirs, ours):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        watch = side.DebugUnderflowOverflow(model, 3, [5], 9)
        model(torch.ones(2))
        watch.expand_frame("more")
        watch.save_frame("and more")
        public = {k: v for k, v in vars(watch).items() if k not in {"model", "module_names"}}
        state[side.__name__] = (public, list(watch.module_names.values()), watch.model is model)
    first, second = state.values()
    assert first == second
    assert {n for n in dir(theirs.DebugUnderflowOverflow) if n[0] != "_"} <= {n for n in dir(ours.DebugUnderflowOverflow) if n[0] != "_"}


def test_subclass_that_overrides_a_method_works_the_same(capsys):
    def make(side: Any) -> Callable[[Any], None]:
        class Short(side.DebugUnderflowOverflow):
            def analyse_variable(self, var: Any, ctx: str) -> None:
                if ctx != "bias":
                    super().analyse_variable(var, ctx)

            def batch_start_frame(self) -> None:
                self.expand_frame("-")

        torch.manual_seed(0)
        model = nn.Linear(2, 2)
        Short(model, trace_batch_nums=[0, 1])
        return lambda _: model(torch.ones(2))

    assert "bias" not in compare(make, capsys, times=2).stdout


def test_debug_option_is_equal():
    assert [(o.name, o.value) for o in ours.DebugOption] == [(o.name, o.value) for o in theirs.DebugOption]
    assert ours.DebugOption("underflow_overflow") in [theirs.DebugOption.UNDERFLOW_OVERFLOW]
    with pytest.raises(ValueError) as expected:
        theirs.DebugOption("nope")
    with pytest.raises(ValueError) as got:
        ours.DebugOption("nope")
    assert str(got.value) == str(expected.value)


def test_outputs_and_gradients_are_bitwise_those_without_the_class(build, capsys):
    results = []
    for watch in (False, True):
        model, kwargs = build("t5", torch.bfloat16)
        if watch:
            ours.DebugUnderflowOverflow(model)
        torch.manual_seed(3)
        loss = model(**kwargs).loss
        loss.backward()
        results.append([loss, *[p.grad for p in model.parameters()]])
    for bare, seen in zip(*results, strict=True):
        assert torch.equal(bare, seen)


def test_import_loads_no_transformers():
    code = "import sys, numscope.compat.underflow_overflow; assert 'transformers' not in sys.modules and 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
