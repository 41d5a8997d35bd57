"""Phase 6: the collectives that training uses, checked against known results, and for identical bits in repeated runs.

Whole numbers in floats have exact sums in any order. Sums of random floats depend on the order, so their bits show whether repeated runs,
and all ranks, agree. With four or more ranks, each half repeats the collectives in a group of its own.

``data``, as far as the phase got::

    members     [ranks] of the process group
    missing     [ranks] that did not join this phase
    memory      {"device", "bytes", "seconds", "error": "" or why it could not be allocated and filled}
    collectives [{"name": "all_reduce" | "broadcast" | "all_gather" | "reduce_scatter" | "all_to_all" | "barrier" | "float_sum",
                  "backend": "gloo" | "nccl", "group": "all" | "half", "ranks": [of the group],
                  "bytes": of a rank's whole payload, as asked for (at least one float32 per rank is sent),
                  "by": "" or what replaced it if the backend lacks it, such as "isend and irecv",
                  "status": "ok" | "wrong" | "unstable" | "timeout" | "error" | "skipped",
                  "repeats", "seconds_min", "seconds_max", "bytes_per_s_min", "bytes_per_s_max",
                  "wrong": None | {"index": first element, "got", "expected", "num_wrong", "num_elements"},
                  "digests": [of the results' bits, without duplicates]; float_sum: more than one is unstable, and all ranks of a group
                             must agree,
                  "error": torch's own text or why skipped, "missing": [ranks] that did not enter it, if it failed}]
    stopped     "" or why not all were run

The phase fails if a collective is neither ok nor skipped, if memory could not be allocated, or if a rank is missing.
"""

from __future__ import annotations

from typing import Any

from numscope.doctor.phases import children
from numscope.doctor.phases.context import Context
from numscope.doctor.records import Phase


def run(context: Context) -> dict[str, Any]:
    """Runs the collectives.

    Raises: PhaseFailed.
    """
    return children.of(context).run(Phase.COLLECTIVES, children.surroundings(context), context.deadline, context.say)
