"""The stages of torch.distributed.pipelining. It is not imported: a process that runs a pipeline has already loaded it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import nn

from numscope.records.heap import instances_of

_STAGE = "torch.distributed.pipelining.stage"


@dataclass(frozen=True, slots=True)
class Stage:
    """A model's place in a pipeline.

    Args:
        index: of the stage, from the input to the loss.
        row: which of this rank's stages it is; each rank of the group has one in each row.
    """

    index: int
    row: int
    group: Any


def stage_of(model: nn.Module) -> Stage | None:
    """The stage that a model is, or is part of; None outside pipelines. *Cost:* where pipelining is loaded, one walk over all objects."""
    known = sys.modules.get(_STAGE)
    for stage in () if known is None else instances_of(known.PipelineStage):
        if any(module is model for module in stage.submod.modules()):
            return Stage(stage.stage_index, stage.stage_index // stage.group_size, stage.group or dist.group.WORLD)
    return None
