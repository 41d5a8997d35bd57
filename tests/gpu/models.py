"""Models and loops that run on a GPU, and what a run of one leaves behind."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import numscope

DEVICE = "cuda"
STEPS = 6
Loop = Callable[[], list[Tensor]]  # makes a model, trains it, and gives its losses and weights


def watching(model: nn.Module, options: dict[str, Any] | None) -> contextlib.AbstractContextManager[Any]:
    return contextlib.nullcontext() if options is None else numscope.watch(model, **options)


class Block(nn.Module):
    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(-3, -2)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(-3, -2).flatten(-2))
        return x + self.mlp(x)


class GPT(nn.Module):
    def __init__(self, layers: int = 2, width: int = 64, vocabulary: int = 96, checkpointed: bool = False) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(x)


def ids(step: int, rows: int = 4, length: int = 32) -> Tensor:
    return torch.randint(0, 96, (rows, length + 1), generator=torch.Generator().manual_seed(step)).to(DEVICE)


def language_model(
    options: dict[str, Any] | None,
    *,
    dtype: torch.dtype = torch.float32,
    compiled: str | None = None,
    checkpointed: bool = False,
    stream: bool = False,
    fused: bool = True,
) -> list[Tensor]:
    torch.manual_seed(0)
    model = GPT(checkpointed=checkpointed).to(DEVICE, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)
    call = torch.compile(model, mode=compiled) if compiled else model
    losses = []
    side = torch.cuda.Stream() if stream else torch.cuda.current_stream()
    side.wait_stream(torch.cuda.current_stream())
    with watching(model, options), torch.cuda.stream(side):
        for step in range(STEPS):
            tokens = ids(step)
            loss = F.cross_entropy(call(tokens[:, :-1]).float().flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach().clone())
    torch.cuda.synchronize()
    return [*losses, *(p.detach() for p in model.parameters())]


def scaled_convolutions(options: dict[str, Any] | None) -> list[Tensor]:
    """float16 under autocast; the scale begins so large that first steps are skipped."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(),
        nn.Dropout(0.2), nn.Linear(32 * 36, 10),
    ).to(DEVICE, memory_format=torch.channels_last)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**24)
    losses = []
    with watching(model, options):
        for step in range(STEPS):
            generator = torch.Generator().manual_seed(step)
            x, y = torch.randn(8, 3, 16, 16, generator=generator).to(DEVICE), torch.randint(0, 10, (8,), generator=generator).to(DEVICE)
            optimizer.zero_grad()
            with torch.autocast(DEVICE, torch.float16):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
    return [*losses, *(p.detach() for p in model.parameters()), *model.buffers(), torch.tensor(scaler.get_scale())]


def captured_graph(options: dict[str, Any] | None) -> list[Tensor]:
    """A whole step in a CUDA graph that the script captures by itself, replayed with new data."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.zeros(16, 32, device=DEVICE), torch.zeros(16, 8, device=DEVICE)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    with watching(model, options):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            loss = step()
        losses = []
        for seed in range(STEPS):
            generator = torch.Generator().manual_seed(seed)
            x.copy_(torch.randn(16, 32, generator=generator))
            y.copy_(torch.randn(16, 8, generator=generator))
            graph.replay()
            losses.append(loss.detach().clone())
    torch.cuda.synchronize()
    return [*losses, *(p.detach() for p in model.parameters())]


LOOPS: dict[str, Callable[[dict[str, Any] | None], list[Tensor]]] = {
    "float32": language_model,
    "bfloat16": lambda options: language_model(options, dtype=torch.bfloat16),
    "unfused optimizer": lambda options: language_model(options, fused=False),
    "checkpointing": lambda options: language_model(options, checkpointed=True),
    "on a stream of its own": lambda options: language_model(options, stream=True),
    "compiled": lambda options: language_model(options, compiled="default"),
    "compiled, with CUDA graphs": lambda options: language_model(options, compiled="reduce-overhead"),
    "GradScaler": scaled_convolutions,
    "captured graph": captured_graph,
}
