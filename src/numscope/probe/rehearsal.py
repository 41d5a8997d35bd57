"""Recognizes calls that train nothing. In a rehearsal, to learn shapes, torch.distributed.pipelining calls each stage and the loss once on
memory that nothing has written; torch.distributed.checkpoint steps an optimizer to have its state made.

Neither package is imported: a process that runs them has already loaded them.
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
    return _frame(_STAGE, *_NAMES) is not None


def is_later_stage() -> bool:
    """Whether a stage is called that is not the first of its pipeline. *Cost:* as of ``is_rehearsal``."""
    frame = _frame(_STAGE)
    return frame is not None and not getattr(frame.f_locals.get("self"), "is_first", True)


def makes_state() -> bool:
    """Whether an optimizer is stepped to have its state made, by torch's checkpoints, with a rate and gradients of 0. *Cost:* a walk over
    the frames where these are loaded.
    """
    return _frame("torch.distributed.checkpoint.state_dict", "_init_optim_state") is not None


def _frame(module: str, *names: str) -> FrameType | None:
    """The innermost frame at work of a module's functions, or of some of them."""
    frame: FrameType | None = sys._getframe(1) if module in sys.modules else None
    while frame is not None and not (frame.f_globals.get("__name__") == module and (not names or frame.f_code.co_name in names)):
        frame = frame.f_back
    return frame
