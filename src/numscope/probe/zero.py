"""Where DeepSpeed's ZeRO keeps gradients and optimizers' states: in flat tensors, of which each rank has a stretch of each parameter.

DeepSpeed is not imported: what it puts on a parameter says where the rest is. Nothing here waits for another rank.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from numscope.probe.optimizers import ids_of, living_optimizers
from numscope.summary.sketch import Piece, part_of
from numscope.summary.unwrap import plain


@dataclass(frozen=True, slots=True)
class Stretch:
    """The part of a parameter that a rank's optimizer has.

    Args:
        flat: the optimizer's own parameter, with stretches of many.
        offset: where it begins there.
        part: where it lies in the parameter.
    """

    flat: Tensor
    offset: int
    part: Piece

    def of(self, tensor: Tensor) -> Piece:
        """This parameter's part of a tensor that lies as ``flat`` does: of its gradient, or of a state."""
        own = plain(tensor).view(-1)[self.offset : self.offset + self.part.tensor.numel()]
        return replace(self.part, tensor=own)


def is_spread(parameter: Parameter) -> bool:
    """Whether ZeRO spreads what an optimizer has of a parameter over ranks; this one may have nothing of it."""
    return hasattr(parameter, "_hp_mapping") or hasattr(parameter, "_z3_optimizer")


def num_here(parameter: Parameter) -> int:
    """How many elements this rank has of a parameter, which ZeRO 3 empties between its module's calls."""
    partition = getattr(parameter, "ds_tensor", None)
    return parameter.numel() if partition is None else int(partition.numel())


def groups_of(model: nn.Module) -> list[Any]:
    """The process group over which ZeRO spreads a model; none without it."""
    found = (getattr(p, "ds_process_group", getattr(p, "_dp_group", None)) for p in model.parameters())
    return [group for group in found if group is not None][:1]


def stretch_of(parameter: Parameter) -> Stretch | None:
    """The part of a parameter that this rank's optimizer has; None without ZeRO, and where it has nothing of it."""
    owner, mapping = (getattr(parameter, name, None) for name in ("_z3_optimizer", "_hp_mapping"))
    if not parameter.requires_grad:
        return None
    if owner is not None:
        group, offset, _ = owner.grad_position[owner.get_param_id(parameter)]
        return Stretch(owner.fp32_partitioned_groups_flat[group], offset, part_of(parameter))
    if mapping is None or mapping.hp_fragment._base is None:
        return None
    here, own = mapping.lp_fragment_address, plain(parameter).view(-1)
    part = Piece.stretch(own[here.start : here.start + here.numel], here.start, parameter.shape)
    return Stretch(mapping.hp_fragment._base, mapping.hp_fragment_address.start, part)


def optimizers_of(parameters: Iterable[Parameter]) -> list[Optimizer]:
    """Torch's optimizers that ZeRO has step its flat tensors; ZeRO 3's have no parameters between their steps."""
    owners = {id(owner): owner.optimizer for p in parameters if (owner := getattr(p, "_z3_optimizer", None)) is not None}
    flat = {id(one.flat) for p in parameters if hasattr(p, "_hp_mapping") and (one := stretch_of(p)) is not None}
    return [*owners.values(), *(one for one in living_optimizers() if not flat.isdisjoint(ids_of(one)))] if owners or flat else []


def states_here(optimizer: Optimizer, parameter: Parameter) -> dict[str, Any]:
    """An optimizer's state of a parameter: numbers as they are, of the rest this rank's stretch, which may have no elements."""
    here = stretch_of(parameter)
    if here is not None:
        states = optimizer.state.get(here.flat, {})
        return {key: here.of(one) if isinstance(one, Tensor) and one.dim() else one for key, one in states.items()}
    states = next(iter(optimizer.state.values()), {})
    spread = {key: plain(one).view(-1)[:0] for key, one in states.items() if isinstance(one, Tensor) and one.dim()}
    return {key: Piece.stretch(one, 0, parameter.shape) for key, one in spread.items()}


def clipped_by() -> tuple[float, float]:
    """Within the step of such an optimizer: by what DeepSpeed, or Megatron, has divided the gradients to clip them, and the largest norm
    that it lets them have; 1 and 0 where it does not clip. *Cost:* a walk over the frames; a sync for a norm on a device.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        owner: Any = frame.f_locals.get("self")
        limits, norms = owner, getattr(owner, "_global_grad_norm", None)
        if norms is None:  # Megatron's is a local name of the method that clips and steps
            limits, norms = getattr(owner, "config", None), frame.f_locals.get("grad_norm")
        if norms is not None and hasattr(limits, "clip_grad"):
            limit, norm = float(limits.clip_grad or 0.0), float(norms)
            return (max(1.0, (norm + 1e-6) / limit), limit) if limit > 0 else (1.0, 0.0)
        frame = frame.f_back
    return 1.0, 0.0
