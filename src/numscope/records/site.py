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
    SCRIPT = "script"  # the script's own code after backward, and between steps
    OPTIMIZER = "optimizer"


@dataclass(frozen=True, slots=True)
class Site:
    """A place where tensors are seen, step after step.

    Args:
        module: qualified name in the watched model, without wrappers' segments; "" is the model.
        cls: the module's class name.
        phase: part of the step.
        slot: the tensor: ``weight``, ``input[0]``, ``output``, ``output[0][1]``, ``output[logits]``, and for gradients ``grad output`` and
            ``grad weight``.
    """

    module: str
    cls: str
    phase: Phase
    slot: str

    def __str__(self) -> str:
        name = self.module or "(model)"
        return f"{name} ({self.cls}) {self.slot}" if self.cls else f"{name} {self.slot}"


def tensor_of(phase: Phase, slot: str) -> str:
    """The name in statistics of a site's slot: ``activation`` for ``input[0]``, ``wgrad[bias]`` for ``grad bias``."""
    is_gradient = slot.startswith("grad ")
    name, bracket, rest = slot.removeprefix("grad ").partition("[")
    if name == "input":
        kind = "dgrad" if is_gradient else "activation"
    elif name == "output":
        kind = "gradient" if is_gradient else "output"
    elif phase is Phase.LOSS:
        kind = "loss"
    else:
        return ("wgrad" if is_gradient else "weight") + ("" if name == "weight" else f"[{name}]")
    return kind if not bracket or rest == "0]" else f"{kind}[{rest}"


# Containers around a model, whose attribute names are not part of a module's name.
# Each is (segment, names of the wrapper classes that own it): a user's own submodule called "module" keeps its name.
WRAPPER_SEGMENTS: dict[str, frozenset[str]] = {
    "_orig_mod": frozenset({"OptimizedModule"}),
    "module": frozenset(
        {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "Float16Module", "DeepSpeedEngine", "DeepSpeedHybridEngine"}
    ),
    "_fsdp_wrapped_module": frozenset({"FullyShardedDataParallel"}),
    "_checkpoint_wrapped_module": frozenset({"CheckpointWrapper", "OffloadWrapper", "ActivationWrapper"}),
}
