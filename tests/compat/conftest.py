"""Small models of transformers, built from a config."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn


def _ids(*shape: int) -> torch.Tensor:
    return torch.randint(3, 60, shape, generator=torch.Generator().manual_seed(1))


def _pixels(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


def _t5() -> tuple[nn.Module, dict[str, Any]]:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu", decoder_start_token_id=0
    )
    return T5ForConditionalGeneration(config), {"input_ids": _ids(2, 7), "labels": _ids(2, 5)}


def _llama() -> tuple[nn.Module, dict[str, Any]]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1
    )
    return LlamaForCausalLM(config), {"input_ids": _ids(2, 7), "labels": _ids(2, 7)}


def _gpt2() -> tuple[nn.Module, dict[str, Any]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2)
    return GPT2LMHeadModel(config), {"input_ids": _ids(2, 7)}


def _bert() -> tuple[nn.Module, dict[str, Any]]:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=16
    )
    return BertForSequenceClassification(config), {"input_ids": _ids(2, 7), "labels": torch.tensor([0, 1])}


def _mixtral() -> tuple[nn.Module, dict[str, Any]]:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_local_experts=4,
        experts_implementation="eager",  # grouped GEMMs are not there for every dtype on CPU
    )
    return MixtralForCausalLM(config), {"input_ids": _ids(2, 7)}


def _vit() -> tuple[nn.Module, dict[str, Any]]:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=8)
    return ViTForImageClassification(config), {"pixel_values": _pixels(2, 3, 16, 16)}


def _clip() -> tuple[nn.Module, dict[str, Any]]:
    from transformers import CLIPConfig, CLIPModel

    size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = CLIPConfig(
        text_config={**size, "vocab_size": 64, "max_position_embeddings": 16, "eos_token_id": 2, "bos_token_id": 1},
        vision_config={**size, "image_size": 16, "patch_size": 8},
        projection_dim=8,
    )
    return CLIPModel(config), {"input_ids": _ids(2, 7), "pixel_values": _pixels(2, 3, 16, 16)}


def _whisper() -> tuple[nn.Module, dict[str, Any]]:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=64, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=32, decoder_ffn_dim=32, num_mel_bins=8, max_source_positions=10, max_target_positions=16,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    return WhisperForConditionalGeneration(config), {"input_features": _pixels(2, 8, 20), "decoder_input_ids": _ids(2, 5)}


def _mamba() -> tuple[nn.Module, dict[str, Any]]:
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(vocab_size=64, hidden_size=16, state_size=4, num_hidden_layers=2, time_step_rank=4)
    return MambaForCausalLM(config), {"input_ids": _ids(2, 5)}


BUILDERS = {
    "t5": _t5,
    "llama": _llama,
    "gpt2": _gpt2,
    "bert": _bert,
    "mixtral": _mixtral,
    "vit": _vit,
    "clip": _clip,
    "whisper": _whisper,
    "mamba": _mamba,
}


def _build(name: str, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, dict[str, Any]]:
    """The model in training mode, its weights always the same, and the keyword arguments of one call."""
    torch.manual_seed(0)
    model, kwargs = BUILDERS[name]()
    cast = {k: v.to(dtype) if v.is_floating_point() else v for k, v in kwargs.items()}
    return model.to(dtype).train(), cast


@pytest.fixture
def build() -> Callable[..., tuple[nn.Module, dict[str, Any]]]:
    """``build(name, dtype)``: a model of ``BUILDERS`` and the arguments of one call."""
    return _build


@pytest.fixture
def debug_tool_ends() -> Iterator[None]:
    """What a test has initialized ends with it."""
    import numscope.compat.debug_tool as debug_api

    yield
    debug_api.end_debug()
