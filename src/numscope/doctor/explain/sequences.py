"""Compares the ranks' sequences of collective calls: which ranks differ, and which are behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from numscope.doctor.findings import capital, finding, named
from numscope.doctor.records import DoctorFinding

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

    def calls(self, seq: int) -> list[CollectiveCall]:
        """The calls with a number in the sequence, in the order of ranks."""
        return [history.calls[seq] for _, history in sorted(self.ranks.items()) if seq in history.calls]

    @property
    def waits(self) -> bool:
        """Whether any rank is known to have waited until a timeout."""
        return any(history.waits for history in self.ranks.values())


def compare(group: Group) -> list[DoctorFinding]:
    """Finds what is wrong in a group: the first call that differs; else which ranks are behind; else that all are stuck."""
    found = _mismatch(group) or _behind(group) or _stuck(group)
    return [found] if found is not None else []


def _essence(call: CollectiveCall) -> tuple[str, int, str]:
    """The part of a call that must be the same on all ranks."""
    even = call.kind in _EVEN or call.kind in _USUALLY_EVEN
    return (call.kind, call.numel, call.dtype) if even and call.kind != "barrier" else (call.kind, -1, "")


def _mismatch(group: Group) -> DoctorFinding | None:
    for seq in sorted({seq for history in group.ranks.values() for seq in history.calls}):
        alike: dict[tuple[str, int, str], list[CollectiveCall]] = {}
        for call in group.calls(seq):
            alike.setdefault(_essence(call), []).append(call)
        if len(alike) < 2:
            continue
        most, second, *_ = sorted(alike.values(), key=len, reverse=True)
        others = most if len(most) > len(second) else []
        differing = [calls for calls in alike.values() if calls is not others]
        odd = sorted((call for calls in differing for call in calls), key=lambda call: call.rank)
        sizes_only = len({kind for kind, _, _ in alike}) == 1
        return finding(
            "collective-mismatch",
            ranks=[call.rank for call in odd],
            evidence=[call.line() for call in (*odd[:SHOWN_RANKS], *others[:2])],
            confidence="likely" if sizes_only and odd[0].kind in _USUALLY_EVEN else "certain",
            seq=seq,
            where=group.where,
            calls=f"{'; '.join(map(_called, differing))} while {_called(others)}" if others else " but ".join(map(_called, differing)),
            site=next((call.site for call in odd if call.site), "that point"),
        )
    return None


def _called(calls: Sequence[CollectiveCall]) -> str:
    return f"{named(call.rank for call in calls)} called {calls[0].what()}{_site(calls)}"


def _site(calls: Sequence[CollectiveCall]) -> str:
    return next((f" at {call.site}" for call in calls if call.site), "")


def _behind(group: Group) -> DoctorFinding | None:
    reached = {rank: history.reached for rank, history in group.ranks.items() if history.reached >= 0}
    if not reached:
        return None
    front = max(reached.values())
    late = {rank for rank, seq in reached.items() if seq < front}
    # If others wait, a rank without any record is the one they wait for.
    silent = group.members - set(group.ranks) if group.waits else set()
    if not late and not silent:
        return _unstarted(group, front)
    wanted = min((reached[rank] + 1 for rank in late), default=front)
    waiting = [call for call in group.calls(wanted) if call.rank not in (late or silent)]
    if late and waiting and all(call.state == "completed" for call in waiting):
        return None  # only a snapshot: the others are ahead and do not wait
    lasts = [call for rank in sorted(late) if (call := group.ranks[rank].calls.get(reached[rank])) is not None]
    what = f"{named(silent)} left no record"
    if late:
        what = f"{named(late)} stopped" + (f" after #{lasts[0].seq} {lasts[0].what()}{_site(lasts[:1])}" if lasts else "")
    wait = f"others are at #{front}"
    if waiting:
        wait = f"{named(c.rank for c in waiting)} wait{'s' if len(waiting) == 1 else ''} in #{wanted} {waiting[0].what()}{_site(waiting)}"
    uncertain = silent or (not group.waits and any(call.state == "scheduled" for call in waiting))
    return finding(
        "rank-behind",
        ranks=late or silent,
        evidence=[*(f"{last.line()} (its last)" for last in lasts[:SHOWN_RANKS]), *(call.line() for call in waiting[:2])],
        confidence="possible" if uncertain else "likely",
        what=capital(what),
        where=group.where,
        wait=wait,
    )


def _unstarted(group: Group, front: int) -> DoctorFinding | None:
    """All ranks called it, but some GPUs have not started it."""
    started, waiting = ([call for call in group.calls(front) if call.state == state] for state in ("started", "scheduled"))
    if not started or not waiting:
        return None
    evidence = [call.line() for call in (*waiting[:SHOWN_RANKS], *started[:2])]
    return finding("rank-behind/gpu", ranks=[call.rank for call in waiting], evidence=evidence, seq=front, what=started[0].what())


def _stuck(group: Group) -> DoctorFinding | None:
    front = max((history.reached for history in group.ranks.values()), default=-1)
    calls = group.calls(front)
    if not calls or not all(call.state == "started" or group.ranks[call.rank].waits for call in calls):
        return None
    ranks = [call.rank for call in calls]
    alone = len(group.ranks) == 1 and group.members <= set(group.ranks)
    who = f"There is only a record of {named(ranks)}, which" if alone else capital(named(ranks))
    evidence = [call.line() for call in calls[:SHOWN_RANKS]]
    return finding("collective-stuck", ranks=ranks, evidence=evidence, who=who, seq=front, what=f"{calls[0].what()}{_site(calls)}")
