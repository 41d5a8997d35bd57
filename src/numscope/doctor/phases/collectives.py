"""Phase 6: the collectives that training uses, with results known beforehand, and the same bits each time.

Whole numbers in floats have exact sums, whatever the order. Random floats have not, so their sum shows by its bits whether repeated runs,
and all ranks, come to the same one. Of four ranks and more, each half does it in a group of its own as well.

``data``, as far as it came::

    members     [ranks] of the process group
    missing     [ranks] that did not come to this phase
    memory      {"device", "bytes", "seconds", "error": "" or why it could not be allocated and filled}
    collectives [{"name": "all_reduce" | "broadcast" | "all_gather" | "reduce_scatter" | "all_to_all" | "barrier" | "float_sum",
                  "backend": "gloo" | "nccl", "group": "all" | "half", "ranks": [of the group],
                  "bytes": of the whole payload of a rank, as asked for (at least one float32 a rank is sent),
                  "by": "" or what it was done with where the backend lacks it, such as "isend and irecv",
                  "status": "ok" | "wrong" | "unstable" | "timeout" | "error" | "skipped",
                  "repeats", "seconds_min", "seconds_max", "bytes_per_s_min", "bytes_per_s_max",
                  "wrong": None | {"index": first element, "got", "expected", "num_wrong", "num_elements"},
                  "digests": [of the results' bits, without repetitions]; float_sum: more than one is unstable; all ranks' must agree
                             within a group,
                  "error": torch's own text or why skipped, "missing": [ranks] that did not enter it, where it failed}]
    stopped     "" or why not all were done

Fails where a collective is not ok (skipped is), memory could not be had, or a rank is missing.
"""

from __future__ import annotations

from typing import Any

from numscope.doctor.phases import children
from numscope.doctor.phases.context import Context


def run(context: Context) -> dict[str, Any]:
    """Runs the collectives.

    Raises: PhaseFailed.
    """
    return children.of(context).run(6, children.surroundings(context), context.deadline, context.say)
