"""Phase 7: how fast this rank computes and copies memory, without waiting for anybody: stragglers show by comparison.

It needs no process group: where the child is gone, a fresh one does it. Threads: the CPUs that this process may use, divided by the
ranks of its host. The repetitions of both alternate, so that a disturbance meets both.

``data``, as far as it came::

    device      "cpu" or "cuda:<local rank>"
    threads     that torch computes with
    load        load average of the host's last minute when it began, or -1
    gemm        {"n": rows and columns of the square float32 matrices, "repeats", "min_s", "median_s", "max_s", "flops_per_s": by min_s}
    copy        {"bytes": copied, "repeats", "min_s", "median_s", "max_s", "bytes_per_s": by min_s, read and written counted once}

``min_s`` is the machine, ``median_s`` what its neighbors leave of it: slower than 1.5 × the median of the others by ``min_s`` is a
straggler, by ``median_s`` alone a busy host. Fails only where it could not be measured.
"""

from __future__ import annotations

from typing import Any

from numscope.doctor.phases import children
from numscope.doctor.phases.context import Context


def run(context: Context) -> dict[str, Any]:
    """Measures this rank's compute and memory.

    Raises: PhaseFailed.
    """
    return children.of(context, fresh=True).run(7, children.surroundings(context), context.deadline, context.say)
