"""Trainings, each under three watches, compute bitwise what they compute without one: 63 comparisons.

Losses, weights, gradients, buffers, optimizers' states and all states of random generators are compared at every step.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import ScheduleInterleavedZeroBubble
from transformers.pytorch_utils import Conv1D

import numscope
from numscope.detect import diagnosis
from tests.harm.test_inspector_harm import ALL, few
from tests.harm.training import Notes, Run, Watch, assert_equal, assert_no_hooks, bare, noted

VOCABULARY = 48
FAULT = 1  # the step of three
SMALL: dict[str, Any] = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
NARROW: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}

Loss = Callable[[Any], Tensor]


class Plant:
    """A hook of the script's on the first layer of a model: where ``planted``, its output is nan at one step."""

    def __init__(self, model: nn.Module, planted: bool) -> None:
        self.step = 0
        self._planted = planted
        layers = [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d | Conv1D)]
        layers[0].register_forward_hook(self._spoil)

    def _spoil(self, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return output + (output.detach() * 0 - 1).log() if self._planted and self.step == FAULT else output


# ---- models of transformers


def t5() -> nn.Module:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    config = transformers.T5Config(**SMALL, **sizes, feed_forward_proj="gated-gelu", decoder_start_token_id=0, dropout_rate=0.1)
    return transformers.T5ForConditionalGeneration(config)


def llama() -> nn.Module:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, **NARROW, num_key_value_heads=1, attention_dropout=0.1))


def gpt2() -> nn.Module:  # its head's weight is its embedding's
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**SMALL, n_embd=16, n_layer=1, n_head=2, n_positions=16))


def bert() -> nn.Module:
    return transformers.BertForMaskedLM(transformers.BertConfig(**SMALL, **NARROW, max_position_embeddings=16))


def mixtral() -> nn.Module:
    experts = {"num_local_experts": 4, "router_jitter_noise": 0.1, "output_router_logits": True}
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(**SMALL, **NARROW, num_key_value_heads=1, **experts))


def mamba() -> nn.Module:
    return transformers.MambaForCausalLM(transformers.MambaConfig(**SMALL, hidden_size=16, num_hidden_layers=1, state_size=4))


def vit() -> nn.Module:
    return transformers.ViTForImageClassification(transformers.ViTConfig(**NARROW, image_size=8, patch_size=4, hidden_dropout_prob=0.1))


HF = {"t5": t5, "llama": llama, "gpt2": gpt2, "bert": bert, "mixtral": mixtral, "mamba": mamba, "vit": vit}


def batch(model: nn.Module) -> dict[str, Tensor]:
    if "ViT" in type(model).__name__:
        return {"pixel_values": torch.randn(2, 3, 8, 8), "labels": torch.randint(0, 2, (2,))}
    ids = torch.randint(3, VOCABULARY, (2, 7))
    return {"input_ids": ids, "labels": ids}


def of_transformers(name: str, variant: str, watch: Watch, notes: Notes, planted: bool) -> None:
    model = HF[name]().train()
    if variant.startswith("checkpoint"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": "reentrant" in variant})
        if "reentrant" in variant:
            model.enable_input_require_grads()
    plant = Plant(model, planted)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=variant == "scaler", init_scale=2.0**8)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=variant in ("autocast", "scaler"))
    with watch(model):
        for plant.step in range(3):
            for _ in range(3 if variant == "micro-batches" else 1):
                with autocast:
                    loss = model(**batch(model)).loss
                scaler.scale(loss).backward()
                notes.add("loss", loss)
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            notes.state(model)
            scaler.step(optimizer)
            scaler.update()
            notes.state(model, optimizer)
            optimizer.zero_grad()
    if variant != "checkpoint reentrant":  # transformers leaves a hook there whose repr names this test
        assert_no_hooks(model)


# ---- others


class Convolutions(nn.Sequential):
    def __init__(self) -> None:
        first = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout2d(0.2), nn.MaxPool2d(2))
        second = (nn.Conv2d(8, 8, 3, groups=2), nn.BatchNorm2d(8, momentum=None), nn.Hardswish())
        super().__init__(*first, *second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(8, 4))

    def loss(self) -> Tensor:
        return F.cross_entropy(self(torch.randn(4, 3, 8, 8)), torch.randint(0, 4, (4,)), label_smoothing=0.1)


class Denoiser(nn.Module):
    """A U-Net with the time embedded, trained to tell noise from image."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 8))
        self.begin = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.end = nn.Conv2d(16, 3, 3, padding=1)
        self.register_buffer("kept", torch.linspace(0.99, 0.01, 10))

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        angles = at[:, None] * torch.exp(-torch.arange(4) * math.log(100) / 4)
        early = self.begin(x) + self.time(torch.cat([angles.sin(), angles.cos()], -1))[:, :, None, None]
        low = F.silu(self.norm(self.down(early)))
        words = low.flatten(2).transpose(1, 2)
        low = low + self.attention(words, words, words, need_weights=False)[0].transpose(1, 2).unflatten(2, low.shape[2:])
        return self.end(torch.cat([early, self.up(low)], 1))

    def loss(self) -> Tensor:
        image, noise, at = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4), torch.randint(0, 10, (2,))
        kept = self.kept[at][:, None, None, None]
        return F.mse_loss(self(kept.sqrt() * image + (1 - kept).sqrt() * noise, at), noise)


class Experts(nn.Module):
    """Each token goes to two of four experts; their load is part of the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 4, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shares = self.router(x + 0.01 * torch.rand_like(x)).softmax(-1)
        weights, chosen = shares.topk(2, -1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            token, place = (chosen == number).nonzero(as_tuple=True)
            if len(token):
                out.index_add_(0, token, weights[token, place, None] * expert(x[token]))
        return out, shares.mean(0).square().sum() * 4

    def loss(self) -> Tensor:
        out, load = self(torch.randn(12, 8))
        return out.square().mean() + 0.1 * load


class Adapted(nn.Module):
    """A low-rank adapter on a frozen layer."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.drop = nn.Dropout(0.1)
        self.down, self.up = nn.Linear(base.in_features, 2, bias=False), nn.Linear(2, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2 * self.up(self.down(self.drop(x)))


class FineTuned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = llama().requires_grad_(False)
        for layer in self.model.model.layers:
            layer.self_attn.q_proj = Adapted(layer.self_attn.q_proj)
            layer.self_attn.v_proj = Adapted(layer.self_attn.v_proj)

    def forward(self, **given: Tensor) -> Tensor:
        return self.model(**given).loss

    def loss(self) -> Tensor:
        return self(**batch(self.model))


class Characters(nn.Module):
    """An LSTM whose state goes from one step into the next; its embedding is its head's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.cells = nn.LSTM(8, 8, num_layers=2, dropout=0.2)
        self.between = nn.Linear(8, 8)
        self.head = nn.Linear(8, VOCABULARY)
        self.head.weight = self.embedding.weight
        self.state: tuple[Tensor, Tensor] | None = None

    def forward(self, ids: Tensor) -> Tensor:
        out, state = self.cells(self.embedding(ids), self.state)
        self.state = state[0].detach(), state[1].detach()
        return self.head(self.between(out).tanh())

    def loss(self) -> Tensor:
        ids = torch.randint(0, VOCABULARY, (6, 3))
        return F.cross_entropy(self(ids[:-1]).flatten(0, 1), ids[1:].flatten())


def with_own_loss(build: Callable[[], Any], watch: Watch, notes: Notes, planted: bool) -> None:
    """A schedule of the learning rate, clipped gradients, an evaluation after each step."""
    model = build()
    plant = Plant(model, planted)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.05, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=4)
    with watch(model):
        for plant.step in range(3):
            loss = model.loss()
            loss.backward()
            torch.nn.utils.clip_grad_value_(trained, 0.5)
            notes.add("loss", loss)
            notes.state(model)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            notes.state(model, optimizer)
            with torch.no_grad():
                notes.add("evaluated", model.eval().loss())
            model.train()
    assert_no_hooks(model)


def adversarial(watch: Watch, notes: Notes, planted: bool) -> None:
    """Two models, two optimizers, a penalty on the slope (gradients of gradients)."""
    generator = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4))
    critic = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    first, second = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
    plant = Plant(generator, planted)
    with watch(generator), watch(critic):
        for plant.step in range(3):
            made = generator(torch.randn(4, 3))
            second.zero_grad()
            loss = critic(made.detach()).mean() - critic(torch.randn(4, 4)).mean()
            mixed = torch.randn(4, 4, requires_grad=True)
            (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
            (loss + (slope.norm(dim=1) - 1).pow(2).mean()).backward()
            second.step()
            first.zero_grad()
            (-critic(made).mean()).backward()
            first.step()
            notes.state(generator, first)
            notes.state(critic, second)
    assert_no_hooks(generator)
    assert_no_hooks(critic)


class Stage(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 12), nn.Tanh(), nn.Dropout(0.1), nn.Linear(12, 6))


def pipeline(watch: Watch, notes: Notes, planted: bool) -> None:
    """Two stages and three micro-batches; gradients of inputs are computed before those of weights."""
    with mock.patch.dict(os.environ, GLOO_SOCKET_IFNAME="lo"):  # else the host's own name is looked up
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=60))
    try:
        models = [Stage(), Stage()]
        stages: list[Any] = [PipelineStage(model, index, 2, torch.device("cpu")) for index, model in enumerate(models)]
        schedule = ScheduleInterleavedZeroBubble(stages, 3, loss_fn=F.mse_loss)
        optimizer = torch.optim.AdamW([p for model in models for p in model.parameters()])
        plant = Plant(models[0], planted)
        with watch(models[0]), watch(models[1]):
            for plant.step in range(3):
                losses: list[Tensor] = []
                optimizer.zero_grad()
                schedule.step(torch.randn(6, 6), target=torch.randn(6, 6), losses=losses)
                for model in models:
                    notes.state(model)
                optimizer.step()
                notes.add("losses", losses)
                for model in models:
                    notes.state(model, optimizer)
    finally:
        dist.destroy_process_group()
    for model in models:
        assert_no_hooks(model)


# ---- twenty-one trainings, five watches: of the middle two, and of the last two, every other training has the one

TRAININGS: dict[str, Callable[[Watch, Notes, bool], None]] = {
    **{name: functools.partial(of_transformers, name, "plain") for name in HF},
    **{
        f"{name}, {variant}": functools.partial(of_transformers, name, variant)
        for name, variant in (
            ("t5", "checkpoint"),
            ("llama", "checkpoint reentrant"),
            ("gpt2", "micro-batches"),
            ("llama", "scaler"),
            ("t5", "autocast"),
            ("bert", "autocast"),
            ("mixtral", "autocast"),
        )
    },
    "convolutions": functools.partial(with_own_loss, Convolutions),
    "diffusion": functools.partial(with_own_loss, Denoiser),
    "experts": functools.partial(with_own_loss, Experts),
    "adapters": functools.partial(with_own_loss, FineTuned),
    "lstm": functools.partial(with_own_loss, Characters),
    "gan": adversarial,
    "pipeline": pipeline,
}
STATISTICS = few(["mean", "std", "exponent_histogram", "e4m3_underflows_pct"], ALL)
WATCHES: dict[str, dict[str, Any]] = {
    "detection": {},
    "sentinel": {"level": "sentinel"},
    "statistics": {"config": STATISTICS, "on_nonfinite": None},
    "a finding": {"on_nonfinite": "warn", "alerts": {"scale falls": {"finding": 1}}},
    "a finding and statistics": {"config": STATISTICS, "on_nonfinite": "warn", "alerts": {"scale falls": {"finding": 1}}},
}


COMPARISONS = [
    (training, watched)
    for number, training in enumerate(TRAININGS)
    for watched in ("detection", ("sentinel", "statistics")[number // 2 % 2], ("a finding", "a finding and statistics")[number % 2])
]


def run_of(training: str, planted: bool) -> Run:
    return lambda watch, notes: TRAININGS[training](watch, notes, planted)


@functools.cache
def bare_notes(training: str, planted: bool) -> Notes:
    return noted(run_of(training, planted), bare)


@pytest.mark.tried
@pytest.mark.parametrize(("training", "watched"), COMPARISONS)
def test_model_trains_bitwise_the_same(training: str, watched: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    planted = "finding" in watched
    if "statistics" in watched:  # remedies are tried in every other training with a finding
        monkeypatch.setattr(diagnosis, "with_trials", lambda finding, *_: finding)
    scopes: list[Any] = []

    @contextlib.contextmanager
    def watch(model: nn.Module) -> Any:
        with numscope.watch(model, **WATCHES[watched], log_dir=tmp_path) as scope:
            scopes.append(scope)
            yield scope
            assert not scope.closed, "the watch gave up"

    assert_equal(noted(run_of(training, planted), watch), bare_notes(training, planted))
    assert all(scope.step_number >= 3 for scope in scopes)
    assert list(tmp_path.glob("statistics/*"))  # those that were asked for, or the history
    findings = [finding for scope in scopes for finding in scope.findings]
    assert bool(findings) is planted
    assert all(finding.step == FAULT for finding in findings)
    assert not planted or findings[0].culprit is not None, findings[0].replay


def test_they_are_as_many_as_the_promises_say() -> None:
    assert len(TRAININGS) == 21 and len(COMPARISONS) == 63
