"""A small GPT of Megatron Core on CPU, and steps of it, for the ranks of a test."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

VOCABULARY, LENGTH = 32, 6


@contextlib.contextmanager
def megatron(tensor: int = 1, pipeline: int = 1) -> Iterator[Any]:
    """Megatron's groups over those of the process, and what it takes to run without a GPU."""
    warnings.filterwarnings("ignore", module="megatron")
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import get_cuda_rng_tracker

    device, tracker = torch.cuda.current_device, get_cuda_rng_tracker()
    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment, return-value]
    tracker.fork = lambda *_: contextlib.nullcontext()
    parallel_state.initialize_model_parallel(tensor, pipeline)
    try:
        yield parallel_state
    finally:
        parallel_state.destroy_model_parallel()
        del tracker.fork
        torch.cuda.current_device = device


def config(tensor: int = 1, pipeline: int = 1, layers: int = 2, **more: Any) -> Any:
    from megatron.core.transformer.transformer_config import TransformerConfig

    return TransformerConfig(
        num_layers=layers,
        hidden_size=16,
        num_attention_heads=4,
        use_cpu_initialization=True,
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline,
        pipeline_dtype=torch.float32,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        bias_dropout_fusion=False,
        **more,
    )


def gpt(settings: Any) -> nn.Module:
    """A model, or this rank's stage of it, by Megatron's local layer spec; the same weights however it is split."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel

    torch.manual_seed(0)
    return GPTModel(
        settings,
        get_gpt_layer_local_spec(),
        vocab_size=VOCABULARY,
        max_sequence_length=16,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
    )


def batch(rows: int = 4) -> Tensor:
    return torch.randint(0, VOCABULARY, (rows, LENGTH), generator=torch.Generator().manual_seed(1))


def loss_of(model: nn.Module, ids: Tensor) -> Tensor:
    """Summed, so that ranks with parts of a batch have the gradients of the whole."""
    position = torch.arange(LENGTH).expand_as(ids)
    mask = torch.ones(1, 1, LENGTH, LENGTH).tril() < 0.5
    loss: Tensor = model(ids, position, mask, labels=ids).sum()
    return loss


def reduce_gradients(model: nn.Module, group: Any) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad, group=group)


class SequenceParallel(nn.Module):
    """An MLP whose ranks have parts of the sequence around its two layers. Torch's LayerNorm refuses a GPT to be so."""

    def __init__(self, settings: Any) -> None:
        super().__init__()
        from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear

        torch.manual_seed(0)
        self.config = settings
        more: dict[str, Any] = {"config": settings, "init_method": nn.init.xavier_uniform_, "bias": True, "skip_bias_add": False}
        self.norm = nn.LayerNorm(16)
        self.linear_fc1 = ColumnParallelLinear(16, 64, gather_output=False, **more)
        self.linear_fc2 = RowParallelLinear(64, 16, input_is_parallel=True, **more)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear_fc2(torch.tanh(self.linear_fc1(self.norm(x))[0]))[0]
        return y


def sequence(rank: int = 0, world: int = 1) -> Tensor:
    """This rank's part."""
    whole = torch.randn(8, 3, 16, generator=torch.Generator().manual_seed(2))
    return whole.chunk(world)[rank].clone().requires_grad_()
