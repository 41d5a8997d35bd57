"""Where a tensor is seen."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Phase(str, Enum):  # StrEnum needs Python 3.11
    """The part of a training step in which a tensor is seen."""

    __str__ = str.__str__

    FORWARD = "forward"
    LOSS = "loss"  # between the outermost forward's return and backward
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


@dataclass(frozen=True, slots=True)
class Site:
    """One place where tensors are seen, step after step.

    Args:
        module: qualified name within the watched model, wrappers' segments stripped; "" is the model itself.
        cls: the module's class name.
        phase: when in the step.
        slot: which tensor of it: ``weight``, ``input[0]``, ``output``, ``output[0][1]``, ``output[logits]``,
            for gradients ``grad output`` and ``grad weight``.
    """

    module: str
    cls: str
    phase: Phase
    slot: str

    def __str__(self) -> str:
        name = self.module or "(model)"
        return f"{name} ({self.cls}) {self.slot}" if self.cls else f"{name} {self.slot}"


# Containers that users put around a model; their attribute names are no part of a module's name.
# Each is (segment, names of the wrapper classes that own it): a user's own submodule called "module" keeps its name.
WRAPPER_SEGMENTS: dict[str, frozenset[str]] = {
    "_orig_mod": frozenset({"OptimizedModule"}),
    "module": frozenset({"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "Float16Module"}),
    "_fsdp_wrapped_module": frozenset({"FullyShardedDataParallel"}),
    "_checkpoint_wrapped_module": frozenset({"CheckpointWrapper", "OffloadWrapper", "ActivationWrapper"}),
}
