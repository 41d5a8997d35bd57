"""Megatron Core's own distributed optimizer on CPUs: it asks for CUDA by name, though nothing that it computes needs it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from numscope.parity.recording import StepRecorder
from tests.integrations.gpt import LENGTH, batch, config, megatron
from tests.parity.gpts import STEPS, doubled, gpt


@contextlib.contextmanager
def on_cpus() -> Iterator[None]:
    """What asks for CUDA gets the CPU."""
    kind = Tensor.type

    def here(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **kwargs: Any) -> Any:
            return make(*args, **{**kwargs, "device": "cpu"} if str(kwargs.get("device", "")).startswith("cuda") else kwargs)

        return made

    with pytest.MonkeyPatch.context() as patch:
        for name in ("tensor", "zeros", "empty", "full"):
            patch.setattr(torch, name, here(getattr(torch, name)))
        patch.setattr(torch.cuda, "current_device", lambda: "cpu")
        patch.setattr(Tensor, "type", lambda t, *a, **k: kind(t, *a, **k) if a or k else kind(t).replace("torch.", "torch.cuda."))
        yield


SPOILS: dict[str, Callable[[nn.Module], None]] = {"healthy": lambda model: None, "twice": doubled, "unreduced": lambda model: None}


def train(rank: int, name: str, folder: Path, reference: Path, is_low: bool = False) -> None:
    """Each rank's optimizer has a part of each gradient bucket, clipped by the norm of all."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    low = torch.bfloat16 if is_low else torch.float32
    with megatron(1) as state, on_cpus():
        settings = config(1, qk_layernorm=True)
        net = gpt(settings).to(low)
        SPOILS[name](net)
        is_spread = state.get_data_parallel_world_size() > 1
        how = DistributedDataParallelConfig(use_distributed_optimizer=is_spread, grad_reduce_in_fp32=True)
        model = DistributedDataParallel(settings, how, net)
        told = OptimizerConfig(optimizer="adam", lr=0.01, use_distributed_optimizer=is_spread, params_dtype=low, bf16=is_low, clip_grad=0.5)
        optimizer = get_megatron_optimizer(told, [model]) if is_spread else torch.optim.AdamW(net.parameters(), lr=0.01)
        recorder = StepRecorder(str(folder), STEPS, reference=str(reference) if reference.exists() else "")
        recorder.open()
        try:
            recorder.add(net)
            for _ in range(STEPS + 1):
                ids = batch().chunk(state.get_data_parallel_world_size())[state.get_data_parallel_rank()]
                position, mask = torch.arange(LENGTH).expand_as(ids), torch.ones(1, 1, LENGTH, LENGTH).tril() < 0.5
                model.zero_grad_buffer()
                optimizer.zero_grad()
                model(ids, position, mask, labels=ids).float().mean().backward()
                if name != "unreduced":
                    finalize_model_grads([model])
                if not is_spread:
                    for parameter in net.parameters():
                        parameter.grad = parameter.main_grad.to(low)  # type: ignore[attr-defined]
                    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                optimizer.step()
        finally:
            recorder.close()
