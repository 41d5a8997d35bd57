"""Phase 7: how fast this rank computes and copies memory, independently of the others; comparison reveals stragglers.

It needs no process group: if the child is gone, a fresh one runs it. The number of threads is that of the CPUs this process may use,
divided by the ranks of its host. Repetitions of the two measurements alternate, so that a disturbance affects both.

``data``, as far as the phase got::

    device      "cpu" or "cuda:<local rank>"
    threads     of torch
    load        the host's load average over the last minute at the start, or -1
    gemm        {"n": rows and columns of the square float32 matrices, "repeats", "min_s", "median_s", "max_s", "flops_per_s": by min_s}
    copy        {"bytes": copied, "repeats", "min_s", "median_s", "max_s", "bytes_per_s": by min_s, a read and its write count once}

``min_s`` reflects the machine, ``median_s`` also its load: more than 1.5 × the median of the others in ``min_s`` is a straggler, in
``median_s`` alone a busy host. The phase fails only if nothing could be measured.
"""

from __future__ import annotations

from typing import Any

from numscope.doctor.phases import children
from numscope.doctor.phases.context import Context
from numscope.doctor.records import Phase


def run(context: Context) -> dict[str, Any]:
    """Measures this rank's compute and memory.

    Raises: PhaseFailed.
    """
    return children.of(context, fresh=True).run(Phase.COMPUTE, children.surroundings(context), context.deadline, context.say)
