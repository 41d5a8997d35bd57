"""On or off, a real model's training computes bitwise the same."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from tests.harm.training import Notes, Run, Watch, assert_no_hooks, assert_same_under_every_watch

VOCABULARY = 48
SMALL: dict[str, Any] = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
NARROW: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def t5() -> nn.Module:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    config = transformers.T5Config(**SMALL, **sizes, feed_forward_proj="gated-gelu", decoder_start_token_id=0, dropout_rate=0.1)
    return transformers.T5ForConditionalGeneration(config)


def llama() -> nn.Module:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, **NARROW, num_key_value_heads=1, attention_dropout=0.1))


def gpt2() -> nn.Module:
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**SMALL, n_embd=16, n_layer=2, n_head=2, n_positions=16))


def bert() -> nn.Module:
    return transformers.BertForMaskedLM(transformers.BertConfig(**SMALL, **NARROW, max_position_embeddings=16))


def mixtral() -> nn.Module:
    experts = {"num_local_experts": 4, "router_jitter_noise": 0.1, "output_router_logits": True}
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(**SMALL, **NARROW, num_key_value_heads=1, **experts))


def vit() -> nn.Module:
    return transformers.ViTForImageClassification(transformers.ViTConfig(**NARROW, image_size=8, patch_size=4, hidden_dropout_prob=0.1))


HF = {"t5": t5, "llama": llama, "gpt2": gpt2, "bert": bert, "mixtral": mixtral, "vit": vit}
VARIANTS = ("plain", "checkpoint reentrant", "checkpoint", "autocast", "scaler", "micro-batches")


def batch(model: nn.Module) -> dict[str, torch.Tensor]:
    if "ViT" in type(model).__name__:
        return {"pixel_values": torch.randn(2, 3, 8, 8), "labels": torch.randint(0, 2, (2,))}
    ids = torch.randint(3, VOCABULARY, (2, 7))
    return {"input_ids": ids, "labels": ids}


def training(name: str, variant: str) -> Run:
    def run(watch: Watch, notes: Notes) -> None:
        model = HF[name]().train()
        if variant.startswith("checkpoint"):
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": "reentrant" in variant})
            if "reentrant" in variant and hasattr(model, "enable_input_require_grads"):
                with contextlib.suppress(NotImplementedError):
                    model.enable_input_require_grads()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler("cpu", enabled=variant == "scaler", init_scale=2.0**8)
        autocast = torch.autocast("cpu", torch.bfloat16, enabled=variant in ("autocast", "scaler"))
        with watch(model):
            for _ in range(3):
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
        if not (variant == "checkpoint reentrant"):
            assert_no_hooks(model)

    return run


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", HF)
def test_transformers_model_trains_bitwise_the_same(name: str, variant: str) -> None:
    if variant not in ("plain", "autocast") and name not in ("t5", "llama", "gpt2"):
        pytest.skip("one of the three suffices")
    assert_same_under_every_watch(training(name, variant))
