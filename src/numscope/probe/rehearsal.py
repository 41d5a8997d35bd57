"""Calls of stages by torch.distributed.pipelining. In a rehearsal, to learn shapes, it calls each stage and the loss once on memory that
nothing has written: what comes of that means nothing and is used for nothing.

The package is not imported: a process that runs a pipeline has already loaded it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from numscope.probe.patching import patch

_STAGE = "torch.distributed.pipelining.stage"
_NAMES = ("_shape_inference", "_forward_metadata_inference", "_backward_metadata_inference")  # the first one up to torch 2.12


def hear_rehearsals(ours: Callable[..., Any]) -> list[Callable[[], None]]:
    """Have rehearsals run by ours, if pipelining is loaded. Returns: what ends it."""
    stage = sys.modules.get(_STAGE)
    return [] if stage is None else [patch(stage.PipelineStage, name, ours) for name in _NAMES if name in vars(stage.PipelineStage)]


def is_rehearsal() -> bool:
    """Whether a rehearsal is at work that began before it could be heard. *Cost:* a walk over the frames where pipelining is loaded."""
    frame: FrameType | None = sys._getframe(1) if _STAGE in sys.modules else None
    while frame is not None and not (frame.f_code.co_name in _NAMES and frame.f_globals.get("__name__") == _STAGE):
        frame = frame.f_back
    return frame is not None


def is_later_stage() -> bool:
    """Whether a stage is called that is not the first of its pipeline. *Cost:* as of ``is_rehearsal``."""
    frame: FrameType | None = sys._getframe(1) if _STAGE in sys.modules else None
    while frame is not None and frame.f_globals.get("__name__") != _STAGE:
        frame = frame.f_back
    return frame is not None and not getattr(frame.f_locals.get("self"), "is_first", True)
