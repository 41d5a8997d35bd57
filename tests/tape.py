"""A driver for tests: run something under the op probe, with numbers from an oracle of plain torch rather than the kernel."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from numscope.records.finding import Culprit, Numbers
from numscope.records.site import Phase
from numscope.replay.culprit import find_culprit
from numscope.replay.op import OpProbe
from numscope.replay.tape import OpTape


class OracleRows:
    """Numbers at once, by float64."""

    def __init__(self) -> None:
        self.rows: list[Numbers] = []

    def observe(self, tensor: Tensor) -> int:
        if tensor.device.type == "meta" or tensor.layout != torch.strided:
            return -1
        x = tensor.detach()
        wide = torch.view_as_real(x.resolve_conj().clone()).double() if x.is_complex() else x.double()
        finite = wide[torch.isfinite(wide)]
        nonzero = finite[finite != 0].abs()
        bounds = [f(t).item() if t.numel() else None for f, t in ((torch.min, finite), (torch.max, finite), (torch.min, nonzero))]
        largest = finite.abs().max().item() if finite.numel() else None
        self.rows.append(
            Numbers(
                str(x.dtype).removeprefix("torch."),
                tuple(x.shape),
                x.numel(),
                int(wide.isnan().sum()),
                int((wide == float("inf")).sum()),
                int((wide == -float("inf")).sum()),
                int((finite == 0).sum()),
                0,
                *bounds,
                largest,
            )
        )
        return len(self.rows) - 1

    def numbers(self, handle: int) -> Numbers:
        return self.rows[handle]

    def is_bad(self, handle: int) -> bool:
        return self.rows[handle].num_nonfinite > 0


@dataclass
class Run:
    tape: OpTape
    rows: OracleRows
    result: Any = None
    names: dict[int, str] = field(default_factory=dict)
    graph: Any = None  # the result's autograd node

    def culprit(self, *escaped: Tensor | None) -> Culprit | None:
        return find_culprit(self.tape, [t for t in escaped if t is not None], self.rows)


def traced(
    fn: Callable[[], Any],
    *,
    backward: bool = False,
    names: dict[int, str] | None = None,
    phase: Phase = Phase.FORWARD,
    module_name: Callable[[], str] = str,
    parameters: Sequence[Tensor] = (),
) -> Run:
    """Run ``fn`` under the probe, and the backward of the sum of what it returns when asked."""
    run = Run(OpTape(), OracleRows(), names=names or {})
    here = sys._getframe().f_code
    probe = OpProbe(run.tape, run.rows, phase=phase, module_name=module_name, names=run.names, boundary=here)
    with probe:
        run.result = fn()
    if probe.error is not None:
        raise probe.error
    if backward:
        run.graph = run.result.grad_fn
        with contextlib.ExitStack() as stack:
            probe = OpProbe(run.tape, run.rows, phase=Phase.BACKWARD, names=run.names, boundary=here)
            stack.enter_context(probe)
            run.result.backward()
        if probe.error is not None:
            raise probe.error
    return run


def line_of(marker: str, file: str) -> int:
    """The line of a file that ends with a comment ``# marker``; exactly one."""
    with open(file) as f:
        found = [i for i, text in enumerate(f, 1) if text.rstrip().endswith(f"# {marker}")]
    assert len(found) == 1, (marker, found)
    return found[0]


def at(run: Run, *escaped: Tensor | None) -> tuple[str, int]:
    """File and line of the culprit."""
    culprit = run.culprit(*escaped)
    assert culprit is not None
    return culprit.file, culprit.line
