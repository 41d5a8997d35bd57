"""What results depend on: other samples, later tokens, what a mask hides, padding. On models that are wrong, and on right ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from numscope.records.alert import Alert
from tests.alerts.checks.silent import alerts_of, one

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the experiment is made in a forked process")

RULES = {
    "samples mix",
    "mask without effect",
    "padding is seen",
    "next token is seen",
    "labels shifted twice",
    "ends are no labels",
    "mask is inverted",
}
WORDS, LENGTH, BATCH = 20, 7, 6
Call = Callable[[nn.Module], Tensor]  # a loss of a fresh batch


def trained(model: nn.Module, call: Call) -> list[Alert]:
    """What is said of these rules in five steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def training() -> None:
        for _ in range(5):
            optimizer.zero_grad()
            call(model).backward()
            optimizer.step()

    return [alert for alert in alerts_of(model, training) if alert.rule in RULES]


def tokens(length: int = LENGTH) -> Tensor:
    return torch.randint(1, WORDS, (BATCH, length))


def padded() -> Tensor:
    ids = tokens()
    ids[torch.arange(LENGTH) >= torch.randint(2, LENGTH, (BATCH, 1))] = 0
    ids[0, -1] = 0
    return ids


class Attends(nn.Module):
    """Words, places, one attention; the results are of each place, or of the first one."""

    def __init__(self, *, batch_first: bool = True, causal: bool = False, pooled: bool = False, padding_idx: int | None = None) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 8, padding_idx), nn.Parameter(torch.randn(1, LENGTH, 8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=batch_first)
        self.last, self.causal, self.pooled = nn.Linear(8, WORDS), causal, pooled

    def hidden(self, ids: Tensor, mask: Tensor | None) -> Tensor | None:
        return None if mask is None else mask == 0

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.words(ids) + self.places[:, : ids.shape[1]]
        future = nn.Transformer.generate_square_subsequent_mask(ids.shape[1]) if self.causal else None
        hidden = self.hidden(ids, attention_mask)
        hidden = hidden if hidden is None else torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)
        x = x + self.attention(x, x, x, hidden, attn_mask=future, need_weights=False)[0]
        return self.last(x[:, 0] if self.pooled else x)


class ByPadding(Attends):
    def hidden(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        return ids == 0


class Inverted(Attends):
    def hidden(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        return ids != 0


class Ignored(Attends):
    def hidden(self, ids: Tensor, mask: Tensor | None) -> None:
        return None


class Recurrent(nn.Module):
    def __init__(self, batch_first: bool, *, flat: bool = False) -> None:
        super().__init__()
        self.words, self.cell, self.last = nn.Embedding(WORDS, 8), nn.LSTM(8, 8, batch_first=batch_first), nn.Linear(8, WORDS)
        self.flat = flat

    def forward(self, ids: Tensor, state: Any = None) -> Any:
        out, state = self.cell(self.words(ids), state)
        out = self.last(out)
        return out.flatten(0, 1) if self.flat else out[:, -1]


def next_token(model: nn.Module) -> Tensor:
    ids = tokens(LENGTH)
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def any_label(model: nn.Module) -> Tensor:
    out = model(tokens())
    out = out.flatten(0, -2)
    return F.cross_entropy(out, torch.randint(WORDS, (len(out),)))


def of_padded(model: nn.Module) -> Tensor:
    out = model(padded()).flatten(0, -2)
    return F.cross_entropy(out, torch.randint(WORDS, (len(out),)))


def of_masked(model: nn.Module) -> Tensor:
    ids = padded()
    out = model(ids, attention_mask=(ids != 0).long()).flatten(0, -2)
    return F.cross_entropy(out, torch.randint(WORDS, (len(out),)))


class Views(nn.Module):
    """Frames before samples, by a view where a transpose is meant."""

    def __init__(self, wrong: bool) -> None:
        super().__init__()
        self.cell, self.last, self.wrong = nn.GRU(4, 8), nn.Linear(8, 1), wrong

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(x.shape[1], x.shape[0], -1) if self.wrong else x.transpose(0, 1)
        return self.last(self.cell(x)[1][0])


class AddsPlaces(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.places, self.last, self.dim = nn.Parameter(torch.randn(10, 4)), nn.Linear(4, 1), dim

    def forward(self, x: Tensor) -> Tensor:
        places = self.places[: x.shape[self.dim]]
        return self.last((x + (places[:, None] if self.dim == 0 else places)).tanh().mean(1))


def of_frames(model: nn.Module) -> Tensor:
    return (model(torch.randn(BATCH, 5, 4)) - torch.randn(BATCH, 1)).square().mean()


@pytest.mark.parametrize(
    ("make", "call", "rule", "text"),
    [
        (lambda: Attends(batch_first=False), any_label, "samples mix", "another sample in the batch"),
        (lambda: Recurrent(False), any_label, "samples mix", "another sample in the batch"),
        (lambda: Views(True), of_frames, "samples mix", "another sample in the batch"),
        (lambda: AddsPlaces(0), of_frames, "samples mix", "same sample twice in the batch"),
        (lambda: Attends(), next_token, "next token is seen", "are the next tokens, and the model sees them"),
        (lambda: Ignored(pooled=True), of_masked, "mask without effect", "attention_mask"),
        (lambda: Inverted(padding_idx=0, pooled=True), of_padded, "padding is seen", "padding_idx"),
        (lambda: Attends(padding_idx=0), of_padded, "padding is seen", "padding_idx"),
    ],
)
def test_results_that_depend_on_what_they_must_not_are_named(make: Callable[[], nn.Module], call: Call, rule: str, text: str) -> None:
    torch.manual_seed(0)
    alert = one(trained(make(), call), rule)
    assert text in alert.text and "test_influence.py" in alert.text and alert.asks == (rule != "next token is seen")
    assert alert.value is not None and alert.value > 1e-3


def test_what_hides_too_little_is_named_though_it_hides_something() -> None:
    """A mask that is laid along the queries: what it hides is seen by all others."""

    class AlongQueries(Attends):
        def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
            x = self.words(ids) + self.places
            assert attention_mask is not None
            scores = (x @ x.mT).masked_fill(attention_mask[:, :, None] == 0, -1e4)
            return self.last(scores.softmax(-1) @ x)

    assert one(trained(AlongQueries(), of_masked), "mask without effect")


@pytest.mark.parametrize("inverted", [True, False])
def test_a_mask_that_hides_all_but_the_padding_is_asked_about(inverted: bool) -> None:
    def call(model: nn.Module) -> Tensor:
        ids = padded()
        loss: Tensor = model(input_ids=ids, attention_mask=((ids != 0) ^ inverted).long(), labels=hidden_labels(ids)).loss
        return loss

    alerts = [alert for alert in trained(transformers_model("llama"), call) if alert.rule == "mask is inverted"]
    assert len(alerts) == inverted and all(alert.asks for alert in alerts)


class Graph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, WORDS)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.last(torch.zeros_like(x).index_add(0, edges[0], x[edges[1]]))


class Adjacent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, WORDS)

    def forward(self, x: Tensor, pairs: Tensor) -> Tensor:
        return self.last((pairs @ x).sum(0))


class Pairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.last(x)
        return x @ x.T


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))

    def forward(self, x: Tensor) -> Tensor:
        mean, size = self.body(x).chunk(2, 1)
        return mean + size.exp() * torch.randn_like(size)


class Carries(nn.Module):
    """A recurrent layer of (time, batch) whose state goes from call to call, with results in one dimension less, as in word models."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.cell, self.last = nn.Embedding(WORDS, 8), nn.LSTM(8, 8), nn.Linear(8, WORDS)
        self.state: Any = None

    def forward(self, ids: Tensor, state: Any) -> Any:
        out, state = self.cell(self.words(ids), state)
        return self.last(out).view(-1, WORDS), state


def carried(model: nn.Module) -> Tensor:
    ids = torch.randint(WORDS, (LENGTH, BATCH))
    out, state = model(ids[:-1], model.state)  # type: ignore[operator]
    model.state = tuple(s.detach() for s in state)  # type: ignore[assignment]
    return F.cross_entropy(out, ids[1:].flatten())


def transformers_model(kind: str, **more: Any) -> nn.Module:
    import transformers

    sizes = {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    made: nn.Module
    if kind == "gpt2":
        made = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=WORDS, n_embd=16, n_layer=1, n_head=2, n_positions=32))
    elif kind == "bert":
        made = transformers.BertForSequenceClassification(transformers.BertConfig(**sizes, pad_token_id=0))
    elif kind == "roberta":
        made = transformers.RobertaForMaskedLM(transformers.RobertaConfig(**sizes, pad_token_id=0, max_position_embeddings=32))
    elif kind == "llama":
        made = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, pad_token_id=0))
    else:
        made = transformers.T5ForConditionalGeneration(
            transformers.T5Config(vocab_size=WORDS, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0)
        )
    return made


def by_transformers(labels: Callable[[Tensor], Tensor]) -> Call:
    def call(model: nn.Module) -> Tensor:
        ids = padded()
        loss: Tensor = model(input_ids=ids, attention_mask=(ids != 0).long(), labels=labels(ids)).loss
        return loss

    return call


def hidden_labels(ids: Tensor) -> Tensor:
    return ids.masked_fill(ids == 0, -100)


def shifted(ids: Tensor) -> Tensor:
    return F.pad(hidden_labels(ids)[:, 1:], (0, 1), value=-100)


def test_labels_that_the_script_and_the_model_shift_are_asked_about() -> None:
    alert = one(trained(transformers_model("gpt2"), by_transformers(shifted)), "labels shifted twice")
    assert alert.asks and "two places further on" in alert.text


def test_an_end_that_is_the_padding_s_token_and_never_a_label_is_asked_about() -> None:
    def call(model: nn.Module, by_mask: bool) -> Tensor:
        ids = padded()
        mask = F.pad(ids != 0, (1, 0), value=True)[:, :-1].long()  # the first 0 ends the sequence
        labels = ids.masked_fill(mask == 0 if by_mask else ids == 0, -100)
        loss: Tensor = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        return loss

    alert = one(trained(transformers_model("gpt2"), lambda model: call(model, False)), "ends are no labels")
    assert alert.asks and "does not learn where they end" in alert.text
    assert not trained(transformers_model("gpt2"), lambda model: call(model, True))


@pytest.mark.parametrize(
    ("make", "call"),
    [
        (lambda: Attends(), any_label),
        (lambda: Attends(causal=True), next_token),
        (lambda: Attends(pooled=True), of_masked),
        (lambda: ByPadding(padding_idx=0), of_padded),
        (lambda: ByPadding(padding_idx=0, pooled=True), of_padded),
        (lambda: nn.Sequential(nn.Embedding(WORDS, 8), nn.Flatten(), nn.Linear(8 * LENGTH, WORDS)), any_label),
        (lambda: nn.Sequential(nn.Linear(4, 8), nn.Flatten(0, 1), nn.Linear(8, 1)), lambda m: m(torch.randn(BATCH, 5, 4)).square().mean()),
        (lambda: Recurrent(True), any_label),
        (lambda: Recurrent(True, flat=True), any_label),
        (lambda: Carries(), carried),
        (lambda: Views(False), of_frames),
        (lambda: AddsPlaces(1), of_frames),
        (lambda: Noisy(), lambda m: m(torch.randn(BATCH, 4)).square().mean()),
        (lambda: Pairs(), lambda m: F.cross_entropy(m(torch.randn(BATCH, 4)), torch.arange(BATCH))),
        (lambda: Adjacent(), lambda m: F.cross_entropy(m(torch.randn(BATCH, 4), torch.rand(3, BATCH, BATCH)), torch.arange(BATCH))),
        (lambda: Graph(), lambda m: F.cross_entropy(m(torch.randn(BATCH, 4), torch.randint(BATCH, (2, 9))), torch.arange(BATCH))),
        (
            lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)),
            lambda m: m(torch.randn(BATCH, 3, 8, 8)).square().mean(),
        ),
        (lambda: nn.EmbeddingBag(WORDS, 4, mode="sum", padding_idx=0), lambda m: m(padded()).square().mean()),
        (lambda: transformers_model("gpt2"), by_transformers(hidden_labels)),
        (lambda: transformers_model("llama"), by_transformers(hidden_labels)),
        (lambda: transformers_model("bert"), by_transformers(lambda ids: ids[:, 0] % 2)),
        (lambda: transformers_model("roberta"), by_transformers(hidden_labels)),
        (lambda: transformers_model("t5"), by_transformers(hidden_labels)),
    ],
)
def test_right_models_are_left_alone(make: Callable[[], nn.Module], call: Call) -> None:
    torch.manual_seed(0)
    assert trained(make(), call) == []


@pytest.mark.parametrize("kind", ["sparse", "nested", "quantized", "complex", "number"])
def test_inputs_of_other_kinds_are_no_error(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    class Takes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(4, 2)

        def forward(self, x: Tensor, other: Any) -> Tensor:
            return self.last(x)

    def call(model: nn.Module) -> Tensor:
        x = torch.randn(BATCH, 4)
        others = {
            "sparse": x.to_sparse,
            "nested": lambda: torch.nested.as_nested_tensor([x, x[:2]]),
            "quantized": lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
            "complex": lambda: torch.complex(x, x),
            "number": lambda: 1.0,
        }
        loss: Tensor = model(x, others[kind]()).square().mean()
        return loss

    assert trained(Takes(), call) == []
    assert "after an error of its own" not in caplog.text


def test_nothing_of_the_run_is_changed() -> None:
    """Buffers, modes, generators, the model's own counters."""

    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.calls = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1)), 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return self.body(x)

    def ended(watched: bool) -> tuple[Any, ...]:
        torch.manual_seed(0)
        model = Counts()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def training() -> None:
            for _ in range(5):
                optimizer.zero_grad()
                model(torch.randn(BATCH, 4)).square().mean().backward()
                optimizer.step()

        _ = alerts_of(model, training) if watched else training()
        state = {name: t.tolist() for name, t in model.state_dict().items()}
        return state, model.calls, model.training, torch.get_rng_state().tolist()

    assert ended(True) == ended(False)


def test_a_mode_of_the_script_s_counts_the_script_s_operations_alone() -> None:
    class Counts(TorchDispatchMode):
        number = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.number += func is not torch.ops.aten.detach.default  # of which a watch shows some
            return func(*args, **kwargs or {})

    def counted(watched: bool) -> int:
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        optimizer, x = torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(BATCH, 4)

        def training() -> None:
            for _ in range(5):
                optimizer.zero_grad()
                with mode:
                    loss = model(x).square().mean()
                loss.backward()
                optimizer.step()

        mode = Counts()
        _ = alerts_of(model, training) if watched else training()
        return mode.number

    assert counted(True) == counted(False)
