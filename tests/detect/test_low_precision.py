"""What low precision does to a step's gradient: the same numbers as by hand, nothing said of healthy runs, planted losses named."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

import numscope
from numscope.detect import experiments
from numscope.detect.low_precision import ROUNDING, Gap
from numscope.precision import MXFP4, MXFP8, autocast, convert, states
from numscope.precision.gemm.raising import raised
from numscope.precision.without_autocast import without_autocast
from numscope.records.layer import GEMMS
from numscope.records.observation import PRECISION
from tests.harm.test_models import bare_notes, run_of
from tests.harm.training import Notes, assert_equal, noted, seed

Row = dict[str, Any]


@contextlib.contextmanager
def rows_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Row]]:
    """The rows that checks give, of the last step, by parameter."""
    found: dict[str, Row] = {}
    made = experiments.Experiments.__init__

    def init(self: Any, *args: Any) -> None:
        made(self, *args)
        self.keep = lambda rows: found.update(
            {f"{row.layer}.{row.tensor}": {k.removeprefix(PRECISION): v for k, v in row.extras.items()} for row in rows}
        )

    with monkeypatch.context() as patched:
        patched.setattr(experiments.Experiments, "__init__", init)
        yield found


def train(model: nn.Module, loss: Callable[[], Tensor], *, amp: torch.dtype | None = None, steps: int = 2, **options: Any) -> Any:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    with numscope.watch(model, check="precision:every=1", on_nonfinite="warn", **options) as scope:
        for _ in range(steps):
            with torch.autocast("cpu", amp, enabled=amp is not None):
                value = loss()
            value.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
    return scope


def said(scope: Any) -> list[Any]:
    return [alert for alert in scope.alerts if alert.rule == ROUNDING]


class Net(nn.Module):
    """Its loss is its result, so that the gradient of that is the same in each precision."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(64, 64), nn.Dropout(0.3), nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(self.first(x).relu())).float().square().mean()


def gradients(model: nn.Module, x: Tensor, **amp: Any) -> dict[str, Tensor]:
    torch.manual_seed(7)
    with torch.autocast("cpu", torch.bfloat16, **amp):
        loss = model(x)
    grads = torch.autograd.grad(loss, [*model.parameters()])
    return dict(zip((name for name, _ in model.named_parameters()), grads, strict=True))


@pytest.mark.parametrize("in_place", [False, True], ids=["forked", "in place"])
@pytest.mark.parametrize("recipe", [None, "mxfp8"])
def test_the_numbers_are_those_of_gradients_made_by_hand(recipe: str | None, in_place: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_place:
        monkeypatch.setattr(experiments, "in_child", lambda *args, **options: None)
    torch.manual_seed(0)
    model, x = Net(), torch.randn(96, 64)
    if recipe is not None:
        convert(model, recipe, backend="emulate")
    before: dict[str, Tensor] = {}

    def loss() -> Tensor:
        torch.manual_seed(7)  # dropout's
        before.update({name: p.detach().clone() for name, p in model.named_parameters()})
        return model(x)

    with rows_of(monkeypatch) as rows:
        train(model, loss, amp=torch.bfloat16 if recipe is None else None)
    model.load_state_dict(before)
    low = gradients(model, x, enabled=recipe is None)
    highs = {"": GEMMS} if recipe is None else {"": GEMMS, **{gemm: (gemm,) for gemm in GEMMS}}
    found = {}
    for key, gemms in highs.items():
        with raised(states(model).values(), gemms):
            found[key] = gradients(model, x, enabled=False)
    assert set(rows) == {f"{layer}.{tensor}" for layer in ("first", "last") for tensor in ("wgrad_error", "wgrad_error[bias]")}
    for name, high in found[""].items():
        layer, _, slot = name.rpartition(".")
        row, a, b = rows[f"{layer}.wgrad_error{'' if slot == 'weight' else f'[{slot}]'}"], low[name].double(), high.double()
        expected = {"relative_error": (a - b).norm() / b.norm(), "cosine": F.cosine_similarity(a.flatten(), b.flatten(), 0)}
        expected["factor"] = (a * b).sum() / b.square().sum()
        expected |= {f"relative_error_{gemm}_high": (one[name].double() - b).norm() / b.norm() for gemm, one in found.items() if gemm}
        assert row == pytest.approx({key: float(value) for key, value in expected.items()}, rel=1e-9)
        assert 1e-4 < row["relative_error"] < 0.5


def llama() -> tuple[nn.Module, Callable[[], Tensor]]:
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, vocab_size=64))
    ids = torch.randint(0, 64, (4, 16))
    return model, lambda: model(input_ids=ids, labels=ids).loss


def t5() -> tuple[nn.Module, Callable[[], Tensor]]:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4, "dropout_rate": 0.1}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, vocab_size=64, decoder_start_token_id=0))
    ids = torch.randint(3, 64, (4, 16))
    return model, lambda: model(input_ids=ids, labels=ids).loss


def resnet() -> tuple[nn.Module, Callable[[], Tensor]]:
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
    model = transformers.ResNetForImageClassification(transformers.ResNetConfig(**sizes, num_labels=4))
    return model, lambda: model(pixel_values=torch.randn(8, 3, 32, 32).to(model.dtype), labels=torch.randint(0, 4, (8,))).loss


def lstm() -> tuple[nn.Module, Callable[[], Tensor]]:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(16, 16, 2, dropout=0.3, batch_first=True), nn.Linear(16, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.lstm(x)[0])

    model = Model()
    return model, lambda: model(torch.randn(4, 10, 16).to(next(model.parameters()).dtype)).float().square().mean()


def chain() -> tuple[nn.Module, Callable[[], Tensor]]:
    model = nn.Sequential(*(layer for _ in range(2) for layer in (nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.2))))
    return model, lambda: model(torch.randn(64, 32).to(next(model.parameters()).dtype)).float().square().mean()


@pytest.mark.parametrize("how", ["autocast", "weights", "mxfp8"])
@pytest.mark.parametrize("make", [llama, t5, resnet, lstm, chain])
def test_healthy_models_are_said_in_a_line_and_in_no_alert(
    make: Callable[[], tuple[nn.Module, Callable[[], Tensor]]], how: str, capfd: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    model, loss = make()
    model.train()
    if how == "weights":
        model.bfloat16()
    elif how != "autocast":
        convert(model, how, backend="emulate")
    scope = train(model, loss, amp=torch.bfloat16 if how == "autocast" else None, steps=3)
    assert said(scope) == []
    word = {"autocast": "autocast bfloat16", "weights": "bfloat16 weights"}.get(how, how)
    lines = [line for line in capfd.readouterr().err.splitlines() if "changes the gradient by" in line]
    assert len(lines) == 2 and all(f": {type(model).__name__}: low precision ({word}) changes" in line for line in lines)


@pytest.mark.parametrize("in_place", [False, True], ids=["forked", "in place"])
@pytest.mark.parametrize("how", ["autocast", "weights", "delayed"])
def test_training_is_bitwise_what_it_is_without(how: str, in_place: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_place:
        monkeypatch.setattr(experiments, "in_child", lambda *args, **options: None)

    def run(watch: Any, notes: Notes) -> None:
        seed()
        model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 8))
        model.to(torch.bfloat16 if how == "weights" else torch.float32)
        if how == "delayed":
            convert(model, how, backend="emulate")
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        with watch(model):
            for _ in range(4):
                for _ in range(2):
                    with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
                        loss = model(torch.randn(8, 16).to(model[0].weight.dtype)).float().square().mean()
                    loss.backward()
                optimizer.step()
                notes.state(model, optimizer)
                for state in states(model).values():
                    notes.add("histories", {str(key): history.state_dict() for key, history in state.histories.items()})
                    notes.add("plan", (state.plan.text(), state.raised, len(state.kept_weights)))
                optimizer.zero_grad()

    assert_equal(
        noted(run, lambda model: numscope.watch(model, check="precision:every=1")), noted(run, lambda model: contextlib.nullcontext())
    )
    assert Path(torch.autocast.__enter__.__code__.co_filename).name == "autocast_mode.py"  # torch's own


@pytest.mark.parametrize("training", ["t5, autocast", "t5, checkpoint"])
def test_a_real_training_is_bitwise_what_it_is_without(training: str) -> None:
    checked = noted(run_of(training, False), lambda model: numscope.watch(model, check="precision:every=1"))
    assert_equal(checked, bare_notes(training, False))


def test_a_gradient_that_was_zero_before_the_model_is_no_gap(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    scope = train(model, lambda: model(torch.randn(4, 8)).float().square().mean() * 1e-9, amp=torch.float16)
    assert said(scope) == [] and "the gradient is 0, since all that the model's results received of it is" in caplog.text


def test_a_gradient_that_float16_makes_zero_wants_a_scale() -> None:
    class Small(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * 1e-8

    torch.manual_seed(0)
    model, x = Small(), torch.randn(8, 64)
    assert said(train(model, lambda: model(x), amp=torch.float16)) == []  # once may be the beginning
    [alert] = said(train(model, lambda: model(x), amp=torch.float16, steps=4))
    assert (alert.step, alert.layer, alert.value, alert.asks) == (2, "", 1.0, True)
    assert "100% of it: low precision (autocast float16)" in alert.text and "scale the loss" in alert.advice
    assert alert.evidence["relative_error"] == pytest.approx(1.0, abs=0.05)


class Rows(nn.Module):
    """One sample of each 32 has features of 300, and no part in the loss: wgrad's blocks run over samples, the others' do not."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.x = torch.randn(128, 64)
        self.x[::32] = 300.0
        self.mask = torch.ones(128, 1)
        self.mask[::32] = 0.0

    def forward(self) -> Tensor:
        return (self.layer(self.x) * self.mask - self.x * self.mask).square().mean()


def test_the_gemm_that_costs_the_gradient_is_named_and_a_plan_without_it_is_quiet() -> None:
    torch.manual_seed(0)
    model = Rows()
    convert(model, MXFP4(), backend="emulate")
    [alert] = said(train(model, model, steps=3))
    assert alert.advice.startswith("Keep wgrad in high precision: ") and alert.evidence["parameters"]["layer.weight"]["cosine"] < 0.5
    errors = {gemm: numbers["relative_error"] for gemm, numbers in alert.evidence["with_high"].items()}
    assert errors["wgrad"] < 0.5 < 0.8 < min(errors["fprop"], errors["dgrad"])
    convert(model, MXFP4().plan().with_high(["wgrad"]), backend="emulate")
    assert said(train(model, model, steps=3)) == []


@pytest.mark.parametrize(("weight", "share"), [(0.95, 1.0), (1.0, 0.0)])
@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_norms_whose_weights_are_in_the_last_bin_of_their_block(
    kind: type[nn.Module], weight: float, share: float, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), kind(64), nn.Linear(64, 64))
    nn.init.constant_(model[1].weight, weight)  # type: ignore[arg-type]
    convert(model, MXFP8(), backend="emulate")
    with rows_of(monkeypatch) as rows:
        train(model, lambda: model(torch.randn(64, 64)).square().mean() * 0 + model(torch.randn(64, 64)).mean(), steps=2)
    assert rows["1.wgrad_error"]["last_bin"] == share and "last_bin" not in rows["0.wgrad_error"]
    assert ("100% of 1.weight in the last bin of their MX block" in capfd.readouterr().err) is (share == 1.0)


class Own(nn.Module):
    """A model that turns autocast on itself, with one context for all calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.amp = nn.Linear(32, 32), torch.autocast("cpu", torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        with self.amp:
            return self.layer(x)


def test_autocast_within_the_model_is_switched_off_too(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, x = Own(), torch.randn(8, 32)
    with rows_of(monkeypatch) as rows:
        train(model, lambda: model(x).float().square().mean())
    assert 1e-4 < rows["layer.wgrad_error"]["relative_error"] < 0.1
    with without_autocast() as met:
        assert model(x).dtype is torch.float32 and met == {torch.bfloat16}
    assert model(x).dtype is torch.bfloat16


def draws(x: Tensor) -> Tensor:
    return x + torch.rand(3 if x.dtype is torch.bfloat16 else 4).sum()


@pytest.mark.parametrize(
    ("between", "amp", "why"),
    [
        (lambda x: x, None, "the step has no low precision that numscope can switch off: no autocast, no 16-bit weight, no recipe"),
        (draws, torch.bfloat16, "the call draws other random numbers in high precision"),
        (lambda x: x.view(torch.int16).float(), torch.bfloat16, "the replay raised RuntimeError"),
    ],
)
def test_what_can_not_be_compared_is_told_once(
    between: Callable[[Tensor], Tensor], amp: torch.dtype | None, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(between(self.first(x)))

    model = Model()
    scope = train(model, lambda: model(torch.randn(4, 8)).float().square().mean(), amp=amp, steps=4)
    assert said(scope) == [] and [why in record.message for record in caplog.records if "not checked in full" in record.message] == [True]


@pytest.mark.parametrize("config", [False, True], ids=["without a configuration", "with one"])
def test_the_numbers_are_in_the_runs_folder(config: bool, tmp_path: Path) -> None:
    (tmp_path / "stats.yaml").write_text(
        "s:\n  enabled: true\n  layers: {layer_types: [first]}\n  statistics: {enabled: true, stats: [max], tensors: [weight]}\n"
    )
    torch.manual_seed(0)
    model, x = Net(), torch.randn(16, 64)
    options = {"config": str(tmp_path / "stats.yaml")} if config else {}
    train(model, lambda: model(x), amp=torch.bfloat16, steps=3, log_dir=str(tmp_path / "run"), **options)
    columns = "step, layer, precision_relative_error, precision_cosine, abs_max"
    sql = f"SELECT {columns} FROM raw WHERE tensor = 'wgrad_error' ORDER BY step, layer"
    found = numscope.load(tmp_path / "run", sql).to_numpy().tolist()
    assert [row[:2] for row in found] == [[1, "first"], [1, "last"], [2, "first"], [2, "last"]]
    assert all(0 < error < 0.1 and cosine > 0.99 and most > 0 for *_, error, cosine, most in found)


def test_layers_are_high_within_raised_whatever_else_says_and_afterwards_as_before() -> None:
    torch.manual_seed(0)
    model, bare = nn.Linear(32, 32), nn.Linear(32, 32)
    bare.load_state_dict(model.state_dict())
    convert(model, "mxfp8", backend="emulate")
    x, [state] = torch.randn(8, 32), states(model).values()
    plain, plan = model(x), state.plan
    for region in (contextlib.nullcontext(), autocast(recipe="current")):
        with region, raised([state]):
            assert torch.equal(model(x), bare(x))
    with raised([state], ["dgrad"]), raised([state], ["fprop"]):
        assert [state.plan.is_high(gemm) for gemm in GEMMS] == [True, False, False]
    assert state.plan_by(state.recipe) == plan and torch.equal(model(x), plain) and not torch.equal(plain, bare(x))


def test_gaps_of_parameters_add_up_to_the_gap_of_all() -> None:
    torch.manual_seed(0)
    low, high = torch.randn(2, 100), torch.randn(2, 100)
    both, whole = Gap.of(low[0], high[0]) + Gap.of(low[1], high[1]), Gap.of(low, high)
    assert both.numbers() == pytest.approx(whole.numbers(), rel=1e-12)
    assert Gap.of(high, high).numbers() == pytest.approx({"relative_error": 0.0, "cosine": 1.0, "factor": 1.0}, rel=1e-12)
    assert (Gap.of(high, high).noise, Gap.of(-high, high).noise, Gap.of(high * 0, high).noise) == (0.0, 1.0, 1.0)
