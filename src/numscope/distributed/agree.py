"""What all ranks must know before any of them acts: whether somebody's step went bad, and whose was first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def group_of(model: nn.Module, wrapper: nn.Module) -> Any | None:
    """The process group over which a model is spread, None when it is this process's own.

    DDP's own group; the mesh's group of FSDP2's or tensor-parallel parameters, the world where a mesh has several dimensions.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return None
    group = getattr(wrapper, "process_group", None)
    if group is not None:
        return group
    for parameter in model.parameters():
        mesh = getattr(parameter, "device_mesh", None)
        if mesh is not None:
            return mesh.get_group() if mesh.ndim == 1 else dist.group.WORLD
    return None


def rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _device(group: Any) -> torch.device:
    backend = dist.get_backend(group)
    return torch.device("cpu") if backend == "gloo" else torch.device("cuda", torch.cuda.current_device())


def any_rank(flag: bool, group: Any) -> bool:
    """Whether the flag is set on some rank. *Cost:* one collective of one element."""
    told = torch.tensor([1.0 if flag else 0.0], device=_device(group))
    dist.all_reduce(told, op=dist.ReduceOp.MAX, group=group)
    return bool(told.item())


def gather(value: Any, group: Any) -> list[Any]:
    """Each rank's JSON-ready value, in the group's order. JSON rather than pickle: nothing received is ever executed."""
    data = json.dumps(value).encode()
    device = _device(group)
    size = torch.tensor([len(data)], device=device)
    sizes: list[Tensor] = [torch.zeros_like(size) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, size, group=group)
    longest = max(int(s.item()) for s in sizes)
    padded = torch.zeros(max(longest, 1), dtype=torch.uint8, device=device)
    padded[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device) if data else padded[:0]
    parts = [torch.zeros_like(padded) for _ in sizes]
    dist.all_gather(parts, padded, group=group)
    return [json.loads(bytes(p[: int(s.item())].cpu().tolist()).decode()) if int(s.item()) else None for p, s in zip(parts, sizes, strict=True)]


def first(order: Sequence[tuple[Any, ...] | None]) -> int | None:
    """The position of the smallest key; None where no rank has one."""
    keyed = [(key, position) for position, key in enumerate(order) if key is not None]
    return min(keyed)[1] if keyed else None
