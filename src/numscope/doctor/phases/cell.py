"""What one node measured on its link to another: a cell of the matrix of links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from numscope.doctor.records import PhaseResult, Port, Rank, from_json

Word = Literal["ok", "refused", "dropped", "unreachable", "reset", "silent", "stranger", "denied", "stalled", "skipped", "failed"]


@dataclass(slots=True)
class Cell:
    """One direction of a link, as its sending side measured it. Numbers are 0 where they were not measured.

    Args:
        from_node, to_node, from_rank, to_rank, from_host, to_host: its ends.
        status: ok
            refused: nothing listens there, or a firewall rejects the connection
            dropped: no answer at all
            unreachable: there is no route, or no host has the address
            reset: the connection was reset
            silent: the kernel of the other side accepted the connection, but its process sends nothing
            stranger: something else, or another rank, listens there: a wrong address
            denied: the other side has another token
            stalled: small messages pass, 64 KiB do not: the MTU on the way is smaller than both ends assume
            skipped: no time was left
            failed: anything else
        error: a sentence; "" if ok.
        known: the status of the hub's port number at that address, if the link is dropped, refused or unreachable. With ok or refused,
            packets arrive there, so a firewall treats the two port numbers differently.
        ephemeral: the status of a port that the other side opened on request, as gloo and NCCL do.
        rtt_s, rtt_min_s: median and smallest round trip.
        payload_s: 64 KiB and an acknowledgment.
        bytes: of all bursts.
        bytes_per_s: of the fastest burst, including its acknowledgment; 0 if either node was too busy.
        segments, retransmitted, loss, mss, pmtu: from the kernel, on Linux; ``retransmitted`` excludes needless ones, ``loss`` is its ratio
            to ``segments``. A full queue loses packets too, so a slow link is reported as slow, not as lossy.
        burst_losses: of each burst its segments and how many were retransmitted (negative if earlier ones turn out to be needless).
    """

    from_node: Rank
    to_node: Rank
    from_rank: Rank
    to_rank: Rank
    from_host: str
    to_host: str
    address: str
    port: Port
    round: int = 0
    status: Word = "ok"
    error: str = ""
    known: Word | Literal[""] = ""
    ephemeral: Word | Literal[""] = ""
    connect_s: float = 0.0
    rtt_s: float = 0.0
    rtt_min_s: float = 0.0
    payload_s: float = 0.0
    bytes: int = 0
    bytes_per_s: float = 0.0
    segments: int = 0
    retransmitted: int = 0
    loss: float = 0.0
    mss: int = 0
    pmtu: int = 0
    burst_losses: tuple[tuple[int, int], ...] = ()

    @property
    def works(self) -> bool:
        return self.status == "ok" and self.ephemeral in ("ok", "")


def cells_of(result: PhaseResult) -> list[Cell]:
    """The links that a rank examined."""
    return [from_json(Cell, cell) for cell in result.data.get("cells", ())]
