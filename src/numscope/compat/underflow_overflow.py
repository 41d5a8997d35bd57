"""The names of transformers' ``debug_utils``, with the same text on stdout and the same exceptions, by one pass over each tensor.

Change ``from transformers.debug_utils import …`` to ``from numscope.compat.underflow_overflow import …``; nothing else changes.
transformers is not needed. To find more than this class can (the operation, its line, backward, gradients), use ``numscope.watch(model)``.

*Source:* the behavior of transformers 5.23, observed and compared in the tests.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn

from numscope.records.errors import UsageError
from numscope.records.faults import ours
from numscope.records.finding import magnitudes
from numscope.report import frames as text
from numscope.summary.dispatch import summarize
from numscope.summary.state import Groups, Summary

# Dtypes for which torch's abs, min, max, isnan and isinf are all defined and the summary gives their very results. Whatever else comes
# (bool, fp8, complex, empty, sparse, subclasses…) goes through those torch calls themselves, so that results and exceptions are torch's.
_ONE_PASS_DTYPES = frozenset({torch.float32, torch.float64, torch.bfloat16, torch.float16})
_PLAIN_TYPES = frozenset({Tensor, nn.Parameter})


class DebugOption(str, Enum):
    UNDERFLOW_OVERFLOW = "underflow_overflow"
    TPU_METRICS_DEBUG = "tpu_metrics_debug"

    @classmethod
    def _missing_(cls, value: object) -> DebugOption:
        raise ValueError(f"{value} is not a valid {cls.__name__}, please select one of {list(cls._value2member_map_.keys())}")


def _health(var: Any) -> Summary | None:
    """The summary of a tensor that one pass can answer for; None for any other."""
    if torch.compiler.is_compiling() or type(var) not in _PLAIN_TYPES or var.dtype not in _ONE_PASS_DTYPES:
        return None
    if var.layout is not torch.strided or var.numel() == 0:
        return None
    try:
        return summarize(var, Groups.HEALTH)
    except ours(UsageError, RuntimeError):  # nothing there to read: meta, a tensor within torch.func's transforms
        return None


def _magnitude_line(var: Tensor, ctx: str, health: Summary | None) -> str:
    if health is not None:
        return text.magnitude_line(*magnitudes(health), ctx)
    magnitude = var.abs()
    return text.magnitude_line(magnitude.min(), magnitude.max(), ctx)


def _print_overflow(var: Tensor, ctx: str, health: Summary | None) -> bool:
    # One after the other, not both first: where isinf is undefined, the line on nans is on stdout before the exception.
    has_nan = health.num_nan > 0 if health is not None else bool(torch.isnan(var).any().item())
    if has_nan:
        print(f"{ctx} has nans")
    has_inf = health.num_pos_inf + health.num_neg_inf > 0 if health is not None else bool(torch.isinf(var).any().item())
    if has_inf:
        print(f"{ctx} has infs")
    return has_nan or has_inf


def get_abs_min_max(var: Tensor, ctx: str) -> str:
    """One line ``abs min  abs max  ctx`` on a tensor, such as ``1.01e-06 6.44e+00 weight``; a nan makes both numbers nan.

    Raises: what torch's ``abs``, ``min`` or ``max`` raise for bool, fp8, empty tensors and the like.

    *Cost:* one pass, one sync.
    """
    return _magnitude_line(var, ctx, _health(var))


def detect_overflow(var: Tensor, ctx: str) -> bool:
    """Whether the tensor holds a nan or inf; prints it on stdout, after ``ctx``, such as ``after layer_norm``.

    *Cost:* one pass, one sync.
    """
    return _print_overflow(var, ctx, _health(var))


class DebugUnderflowOverflow:
    """Watch weights, inputs and outputs of every module's forward: raise at the first nan or inf, or trace chosen batches.

    Args:
        model: the model; hooks stay on it for good.
        max_frames_to_save: how many frames are printed up to the first bad one.
        trace_batch_nums: batches, counted from 0, to print in full; no detection in them.
        abort_after_batch_num: raise after this batch, counted from 0.

    Raises:
        ValueError: (from the model's forward) a nan or inf was seen, or the batch to abort after has finished.

    *Cost:* one pass and one sync for each tensor seen. Weights are read at every call: a write through ``.data`` moves no version counter,
    and a nan that was missed for that would cost more than the passes saved.
    """

    def __init__(
        self,
        model: nn.Module,
        max_frames_to_save: int = 21,
        trace_batch_nums: Iterable[int] | None = None,
        abort_after_batch_num: int | None = None,
    ) -> None:
        self.model = model
        self.trace_batch_nums: Any = [] if trace_batch_nums is None else trace_batch_nums
        self.abort_after_batch_num = abort_after_batch_num
        self.frames: collections.deque[str] | list[str] = collections.deque(maxlen=max_frames_to_save)
        self.frame: list[str] = []
        self.batch_number = 0
        self.total_calls = 0
        self.detected_overflow = False
        self.prefix = text.PREFIX
        self.module_names: dict[nn.Module, str] = {}
        self.analyse_model()
        self.register_forward_hook()

    # Their names, their spelling: subclasses and notebooks use them.

    def analyse_model(self) -> None:
        self.module_names = {module: name for name, module in self.model.named_modules()}

    def register_forward_hook(self) -> None:
        """Put the hook on every module. One that is reachable n ways gets n hooks, hence n equal frames: the known text has them."""
        self.model.apply(self._register_forward_hook)

    def _register_forward_hook(self, module: nn.Module) -> None:
        module.register_forward_hook(self.forward_hook)

    def expand_frame(self, line: str) -> None:
        self.frame.append(line)

    def save_frame(self, frame: str | None = None) -> None:
        """Finish the frame being made, with one more line if given, and start the next."""
        if frame is not None:
            self.expand_frame(frame)
        self.frames.append("\n".join(self.frame))
        self.frame = []

    def reset_saved_frames(self) -> None:
        self.frames = []  # unbounded from here on, as in the known text: after a traced batch a report has more than 21 frames

    def trace_frames(self) -> None:
        print("\n".join(self.frames))
        self.reset_saved_frames()

    def dump_saved_frames(self) -> None:
        head = "\n".join(text.report_head(self.batch_number, len(self.frames)))
        # Frames apart from the head: with none saved (max_frames_to_save=0) the known text has an empty line in their place.
        print(f"\n{head}", "\n".join(self.frames), "\n\n", sep="\n")
        self.reset_saved_frames()

    def batch_start_frame(self) -> None:
        self.expand_frame(text.batch_line(self.batch_number))
        self.expand_frame(text.HEADER)

    def batch_end_frame(self) -> None:
        """Say in the frame being made that the batch before has finished; nothing here calls it."""
        self.expand_frame(f"{self.prefix} *** Finished batch number={self.batch_number - 1} ***\n\n")

    def analyse_variable(self, var: Any, ctx: str) -> None:
        if torch.is_tensor(var):
            health = _health(var)
            self.expand_frame(_magnitude_line(var, ctx, health))
            if _print_overflow(var, ctx, health):
                self.detected_overflow = True
        else:
            self.expand_frame(text.note_line("None" if var is None else "not a tensor", ctx))

    def create_frame(self, module: nn.Module, input: Any, output: Any) -> None:
        """Make and finish the frame of one call: own parameters, inputs, outputs to the second level of tuples."""
        self.expand_frame(text.module_line(self.module_names[module], type(module).__name__))
        for name, parameter in module.named_parameters(recurse=False):
            self.analyse_variable(parameter, name)
        for slot, value in _slots(input, "input", levels=1):
            self.analyse_variable(value, slot)
        for slot, value in _slots(output, "output", levels=2):
            self.analyse_variable(value, slot)
        self.save_frame()

    def forward_hook(self, module: nn.Module, input: Any, output: Any) -> None:
        """The hook, which runs after every module's forward."""
        tracing = self.batch_number in self.trace_batch_nums
        if tracing:
            self.reset_saved_frames()
        if self.total_calls == 0:
            self.batch_start_frame()
        self.total_calls += 1
        # The model's own hook fires last in its batch; the number moves before its frame is made, so a detection there counts one more.
        batch_is_over = module == self.model
        if batch_is_over:
            self.batch_number += 1
        self.create_frame(module, input, output)
        if tracing:
            self.trace_frames()
        if batch_is_over:
            self.batch_start_frame()
        if self.detected_overflow and not tracing:
            self.dump_saved_frames()
            raise ValueError(
                "DebugUnderflowOverflow: inf/nan detected, aborting as there is no point running further. "
                "Please scroll up above this traceback to see the activation values prior to this event."
            )
        if self.abort_after_batch_num is not None and self.batch_number > self.abort_after_batch_num:
            raise ValueError(
                f"DebugUnderflowOverflow: aborting after {self.batch_number} batches due to"
                f" `abort_after_batch_num={self.abort_after_batch_num}` arg"
            )


def _slots(value: Any, name: str, levels: int) -> Iterable[tuple[str, Any]]:
    """``(slot, value)`` of every leaf; tuples open down to ``levels`` deep, anything else is a leaf."""
    if levels and isinstance(value, tuple):
        for i, part in enumerate(value):
            yield from _slots(part, f"{name}[{i}]", levels - 1)
    else:
        yield name, value
