"""Tiny models of transformers, built from configs, each with a batch that trains it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import AttentionInterface

from tests.faults.planting import ARMED_AT, Training

VOCABULARY = 64
_SMALL: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
_TEXT: dict[str, Any] = {**_SMALL, "vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def ids() -> Tensor:
    return torch.randint(5, 60, (2, 6))


def _text() -> dict[str, Any]:
    given = ids()
    mask = torch.ones_like(given)
    mask[0, :2] = 0  # padding on the left
    return {"input_ids": given, "labels": given, "attention_mask": mask}


def _t5() -> tuple[nn.Module, Callable[[], dict[str, Any]]]:
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu", dropout_rate=0.0,
        decoder_start_token_id=0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config), _text


def _llama() -> tuple[nn.Module, Callable[[], dict[str, Any]]]:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**_TEXT, num_key_value_heads=1)), _text


def _gpt2() -> tuple[nn.Module, Callable[[], dict[str, Any]]]:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=16, n_embd=16, n_layer=2, n_head=2, pad_token_id=0, bos_token_id=1, eos_token_id=2
    )
    return transformers.GPT2LMHeadModel(config), _text


def _bert() -> tuple[nn.Module, Callable[[], dict[str, Any]]]:
    config = transformers.BertConfig(**_TEXT, max_position_embeddings=16)
    return transformers.BertForSequenceClassification(config), lambda: {**_text(), "labels": torch.tensor([0, 1])}


def _mixtral() -> tuple[nn.Module, Callable[[], dict[str, Any]]]:
    config = transformers.MixtralConfig(**_TEXT, num_key_value_heads=1, num_local_experts=4, output_router_logits=True)
    return transformers.MixtralForCausalLM(config), _text


def _vit() -> tuple[nn.Module, Callable[[], dict[str, Any]]]:
    config = transformers.ViTConfig(**_SMALL, image_size=8, patch_size=4)
    return transformers.ViTForImageClassification(config), lambda: {"pixel_values": torch.randn(2, 3, 8, 8), "labels": torch.tensor([0, 1])}


def _whisper() -> tuple[nn.Module, Callable[[], dict[str, Any]]]:
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=32, decoder_ffn_dim=32, num_mel_bins=8, max_source_positions=8, max_target_positions=16, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    return transformers.WhisperForConditionalGeneration(config), lambda: {"input_features": torch.randn(2, 8, 16), "labels": ids()}


def _mamba() -> tuple[nn.Module, Callable[[], dict[str, Any]]]:
    config = transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=16, state_size=4, num_hidden_layers=2, pad_token_id=0, bos_token_id=1, eos_token_id=2
    )

    def batch() -> dict[str, Any]:
        given = ids()
        return {"input_ids": given, "labels": given}

    return transformers.MambaForCausalLM(config), batch


def _clip() -> tuple[nn.Module, Callable[[], dict[str, Any]]]:
    text = {**_TEXT, "max_position_embeddings": 16, "num_hidden_layers": 1}
    vision = {**_SMALL, "image_size": 8, "patch_size": 4, "num_hidden_layers": 1}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)

    def batch() -> dict[str, Any]:
        return {"input_ids": ids(), "pixel_values": torch.randn(2, 3, 8, 8), "return_loss": True}

    return transformers.CLIPModel(config), batch


MODELS: dict[str, Callable[[], tuple[nn.Module, Callable[[], dict[str, Any]]]]] = {
    "t5": _t5, "llama": _llama, "gpt2": _gpt2, "bert": _bert, "mixtral": _mixtral, "vit": _vit, "whisper": _whisper, "mamba": _mamba,
    "clip": _clip,
}  # fmt: skip
ATTENTION = {  # where the planted attention is called last or first of all: the module that calls it first
    "llama": "model.layers.0.self_attn",
    "gpt2": "transformer.h.0.attn",
    "bert": "bert.encoder.layer.0.attention.self",
    "mixtral": "model.layers.0.self_attn",
    "vit": "vit.layers.0.attention",
    "whisper": "model.encoder.layers.0.self_attn",
    "clip": "vision_model.encoder.layers.0.self_attn",
}

armed = False  # whether the planted attention is faulty now


def attend(function: Callable[..., tuple[Tensor, Any]], name: str) -> str:
    """Make an attention function known to transformers."""
    AttentionInterface.register(name, function)
    return name


def training(
    name: str,
    *,
    attention: str = "",
    dtype: torch.dtype = torch.float32,
    plant: Callable[[nn.Module], object] | None = None,
    spoil: Callable[[dict[str, Any]], object] | None = None,
    checkpointed: bool = False,
) -> Training:
    """A model's training.

    Args:
        name: of ``MODELS``.
        attention: an implementation's name.
        plant: called with the model right before the armed step.
        spoil: called with that step's batch.
    """
    model, batch_of = MODELS[name]()
    model.to(dtype).train()
    if attention:
        model.set_attn_implementation(attention)  # type: ignore[operator]
    if checkpointed:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})  # type: ignore[operator]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(i: int) -> None:
        global armed
        armed = i == ARMED_AT
        batch = batch_of()
        if armed and plant is not None:
            with torch.no_grad():
                plant(model)
        if armed and spoil is not None:
            spoil(batch)
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()

    return Training(model, step, steps=2)
