"""Phase 5: every pair of ranks exchanges random patterns, compared bit by bit, in the rounds of a tournament.

The pairs of a round are disjoint. Both sides of a pair generate the pattern from the same seed, so the receiver knows every bit. With
``quick`` and more than 16 ranks only rounds 0, 1, 2, 4, 8, … are played. A size that would take too long, as extrapolated from the previous
one, is skipped and reported as such. A pair that hangs is given up at the end of its round; all others go on.

``data``, as far as the phase got::

    sizes       [bytes] of the payloads
    members     [ranks] of the process group
    missing     [ranks] that did not join this phase, or did not report at the end of a round: their child hangs, died or is cut off
    num_rounds, rounds_done
    stopped     "" or why not all rounds were played
    pairs       [{"peer": rank, "backend": "gloo" | "nccl", "round": number,
                  "status": "ok" | "corrupt" | "timeout" | "error" | "skipped",
                  "doing": the step in which it hung or failed, such as "recv from 3, 64 MiB", "error": torch's own text, or why skipped,
                  "round_trip_s": smallest of several, 8 bytes each way,
                  "received": [{"bytes", "seconds": smallest of three up to 1 MiB, "bytes_per_s", "skipped": "" or why,
                                "corrupt": None | {"first_offset": byte, "num_bytes": that differ, "num_bits": that differ}}]}]

``received`` is the direction from the peer to this rank; the other direction is in the peer's data.
The phase fails if a pair is not ok or a rank is missing.
"""

from __future__ import annotations

from typing import Any

from numscope.doctor.phases import children
from numscope.doctor.phases.context import Context
from numscope.doctor.records import Phase


def run(context: Context) -> dict[str, Any]:
    """Exchanges patterns with every other rank.

    Raises: PhaseFailed.
    """
    return children.of(context).run(Phase.PAIRS, children.surroundings(context), context.deadline, context.say)
