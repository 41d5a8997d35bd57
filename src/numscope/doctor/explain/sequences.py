"""Compares the ranks' sequences of collective calls: which ranks differ, and which are behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from numscope.doctor.findings import capital, finding, named
from numscope.doctor.records import Confidence, DoctorFinding

# All ranks must contribute the same size to these, but not to others (gather, scatter, all_to_all, uneven all_gather …).
_EVEN = frozenset(
    {"allreduce", "broadcast", "reduce", "barrier", "allgatherbase", "reducescatterbase", "reducescattertensor", "allgatherintotensor"}
)
_USUALLY_EVEN = frozenset({"allgather", "reducescatter"})
SHOWN_RANKS = 8


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """One rank's call of a collective."""

    rank: int
    seq: int  # its number in the group's sequence
    op: str
    numel: int = -1  # elements contributed; -1 if unknown
    dtype: str = ""
    state: str = ""  # scheduled, started or completed; "" if unknown
    site: str = ""  # file:line (function) of the caller
    place: str = ""  # file and position where it was read

    @property
    def kind(self) -> str:
        return self.op.lower().replace("_", "")

    def what(self) -> str:
        """``all_reduce of 16 Float``."""
        size = f" of {self.numel:,} {self.dtype or 'elements'}" if self.numel >= 0 and self.kind != "barrier" else ""
        return f"{self.op}{size}"

    def line(self) -> str:
        """One line of evidence."""
        state = f", {self.state}" if self.state else ""
        site = f", called at {self.site}" if self.site else ""
        return f"{self.place}: rank {self.rank}: #{self.seq} {self.what()}{state}{site}"


@dataclass(slots=True)
class CallHistory:
    """One rank's calls in one group, as far as known."""

    calls: dict[int, CollectiveCall] = field(default_factory=dict)  # by number in the sequence
    last_enqueued: int = -1  # number in the sequence; -1 if unknown
    waits: bool = False  # the rank is known to have waited until a timeout

    @property
    def reached(self) -> int:
        return max(self.last_enqueued, max(self.calls, default=-1))


@dataclass(slots=True)
class Group:
    """A process group: all its ranks, as far as known, and what each did."""

    name: str
    members: set[int] = field(default_factory=set)
    ranks: dict[int, CallHistory] = field(default_factory=dict)

    @property
    def where(self) -> str:
        return f" in group {self.name}" if self.name else ""

    def of(self, rank: int) -> CallHistory:
        return self.ranks.setdefault(rank, CallHistory())


def compare(group: Group) -> list[DoctorFinding]:
    """Finds what is wrong in a group: the first call that differs; else which ranks are behind; else that all are stuck."""
    found = _mismatch(group) or _behind(group) or _stuck(group)
    return [found] if found is not None else []


def _essence(call: CollectiveCall) -> tuple[str, int, str]:
    """The part of a call that must be the same on all ranks."""
    if call.kind == "barrier":
        return ("barrier", -1, "")
    even = call.kind in _EVEN or call.kind in _USUALLY_EVEN
    return (call.kind, call.numel if even else -1, call.dtype if even else "")


def _mismatch(group: Group) -> DoctorFinding | None:
    by_seq: dict[int, list[CollectiveCall]] = {}
    for history in group.ranks.values():
        for seq, call in history.calls.items():
            by_seq.setdefault(seq, []).append(call)
    for seq in sorted(by_seq):
        calls = sorted(by_seq[seq], key=lambda call: call.rank)
        kinds = Counter(_essence(call) for call in calls)
        if len(kinds) < 2:
            continue
        (usual, most), (_, second) = kinds.most_common(2)
        odd = calls if most == second else [call for call in calls if _essence(call) != usual]
        others = [call for call in calls if call not in odd]
        sizes_only = len({essence[0] for essence in kinds}) == 1
        sure: Confidence = "likely" if sizes_only and calls[0].kind in _USUALLY_EVEN else "certain"
        calls_made = (" but " if odd is calls else "; ").join(map(_called, _alike(odd)))
        against = f" while {_called(others)}" if others else ""
        return finding(
            "collective-mismatch",
            ranks=[call.rank for call in odd],
            evidence=[call.line() for call in (*odd[:SHOWN_RANKS], *others[:2])],
            confidence=sure,
            seq=seq,
            where=group.where,
            calls=f"{calls_made}{against}",
            site=next((call.site for call in odd if call.site), "that point"),
        )
    return None


def _alike(calls: Sequence[CollectiveCall]) -> list[list[CollectiveCall]]:
    groups: dict[tuple[str, int, str], list[CollectiveCall]] = {}
    for call in calls:
        groups.setdefault(_essence(call), []).append(call)
    return list(groups.values())


def _called(calls: Sequence[CollectiveCall]) -> str:
    site = next((f" at {call.site}" for call in calls if call.site), "")
    return f"{named(call.rank for call in calls)} called {calls[0].what()}{site}"


def _behind(group: Group) -> DoctorFinding | None:
    reached = {rank: history.reached for rank, history in group.ranks.items() if history.reached >= 0}
    if not reached:
        return None
    front = max(reached.values())
    late = {rank for rank, seq in reached.items() if seq < front}
    # If others wait, a rank without any record is the one they wait for.
    silent = {rank for rank in group.members if rank not in group.ranks} if any(h.waits for h in group.ranks.values()) else set()
    if not late and not silent:
        return _unstarted(group, front)
    culprits = late or silent
    wanted = min((reached[rank] + 1 for rank in late), default=front)
    waiting = [h.calls[wanted] for rank, h in sorted(group.ranks.items()) if rank not in culprits and wanted in h.calls]
    if late and waiting and all(call.state == "completed" for call in waiting):
        return None  # only a snapshot: the others are ahead and do not wait
    lasts = [last for rank in sorted(late) if (last := group.ranks[rank].calls.get(reached[rank])) is not None]
    evidence = [*(f"{last.line()} (its last)" for last in lasts[:SHOWN_RANKS]), *(call.line() for call in waiting[:2])]
    if late:
        last_said = next((f" after #{c.seq} {c.what()}" + (f" at {c.site}" if c.site else "") for c in lasts), "")
        what = f"{named(late)} stopped{last_said}"
    else:
        what = f"{named(silent)} left no record"
    wait = (
        f"{named(c.rank for c in waiting)} wait{'s' if len(waiting) == 1 else ''} in #{wanted} {waiting[0].what()}"
        if waiting
        else f"others are at #{front}"
    )
    site = next((f" at {call.site}" for call in waiting if call.site), "")
    uncertain = any(call.state == "scheduled" for call in waiting) and not any(h.waits for h in group.ranks.values())
    return finding(
        "rank-behind",
        ranks=culprits,
        evidence=evidence,
        confidence="possible" if silent or uncertain else "likely",
        what=capital(what),
        where=group.where,
        wait=f"{wait}{site}",
    )


def _unstarted(group: Group, front: int) -> DoctorFinding | None:
    """All ranks called it, but some GPUs have not started it."""
    calls = [history.calls[front] for _, history in sorted(group.ranks.items()) if front in history.calls]
    started = [call for call in calls if call.state == "started"]
    waiting = [call for call in calls if call.state == "scheduled"]
    if not started or not waiting:
        return None
    return finding(
        "rank-behind/gpu",
        ranks=[call.rank for call in waiting],
        evidence=[call.line() for call in (*waiting[:SHOWN_RANKS], *started[:2])],
        seq=front,
        what=calls[0].what(),
    )


def _stuck(group: Group) -> DoctorFinding | None:
    front = max((history.reached for history in group.ranks.values()), default=-1)
    calls = [history.calls[front] for _, history in sorted(group.ranks.items()) if front in history.calls]
    stuck = [call for call in calls if call.state == "started" or group.ranks[call.rank].waits]
    if not stuck or len(stuck) < len(calls):
        return None
    if len(group.ranks) == 1 and group.members <= set(group.ranks):
        only = f"There is only a record of {named(group.ranks)}, which"
    else:
        only = capital(named(call.rank for call in stuck))
    site = next((f" at {call.site}" for call in calls if call.site), "")
    ranks, evidence = [call.rank for call in stuck], [call.line() for call in stuck[:SHOWN_RANKS]]
    return finding("collective-stuck", ranks=ranks, evidence=evidence, who=only, seq=front, what=f"{calls[0].what()}{site}")
