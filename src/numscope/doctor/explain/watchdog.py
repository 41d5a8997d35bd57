"""Messages of ProcessGroupNCCL's watchdog, and of the checks of collectives by TORCH_DISTRIBUTED_DEBUG=DETAIL."""

from __future__ import annotations

import math

from numscope.doctor.explain.masking import shown
from numscope.doctor.explain.patterns import PATTERNS, Messages
from numscope.doctor.explain.sequences import CallHistory, CollectiveCall, Group, compare
from numscope.doctor.findings import finding
from numscope.doctor.records import DoctorFinding


def ranks_timed_out(messages: Messages) -> set[int]:
    """The ranks whose watchdog reported a timeout."""
    return {int(seen.match["rank"]) for seen in messages.of("watchdog timeout")}


def explain_watchdog(messages: Messages, members: set[int]) -> list[DoctorFinding]:
    """Findings from the messages of all ranks together; ``members`` are all ranks of the job, as far as known."""
    first: dict[int, CollectiveCall] = {}  # by rank; later calls time out too
    for seen in messages.of("watchdog timeout"):
        m = seen.match
        state = f"timed out after {int(m['ran']) / 1000:.0f} s"
        call = CollectiveCall(int(m["rank"]), int(m["seq"]), m["op"], int(m["numel_in"] or -1), state=state, place=seen.line.place)
        first[call.rank] = min(call, first.get(call.rank, call), key=lambda call: call.seq)
    names: dict[tuple[int, int], str] = {}  # by rank and number in the sequence
    enqueued: dict[tuple[int, str], int] = {}  # by rank and group, the number of the last call
    for seen in messages.of("watchdog group"):
        m = seen.match
        rank, name = int(m["rank"]), shown(m["guid"] or m["desc"] or m["id"])
        names[rank, int(m["seq"])] = name
        if m["enqueued"]:
            enqueued[rank, name] = int(m["enqueued"])
    groups: dict[str, Group] = {}
    for rank, call in first.items():
        name = names.get((rank, call.seq), "")
        groups.setdefault(name, Group(name)).ranks[rank] = CallHistory({call.seq: call}, waits=True)
    for (rank, name), last in enqueued.items():
        if name in groups and rank not in groups[name].ranks:  # it reports its status, and did not wait itself
            groups[name].of(rank).last_enqueued = last
    if "" in groups and len(groups) == 2:  # ranks with an unnamed group, next to a named one
        unnamed = groups.pop("")
        (group,) = groups.values()
        group.ranks = unnamed.ranks | group.ranks
    found = _differing(messages)
    for group in groups.values():
        group.members = members if len(groups) == 1 else set(group.ranks)
        found += compare(group)
    return found


def _differing(messages: Messages) -> list[DoctorFinding]:
    """Findings of collectives whose arguments differ. Each message repeats the calls; the first is that of the rank that raises it."""
    calls: dict[int, CollectiveCall] = {}
    for seen in messages.of("fingerprint"):
        site = seen.site
        for said in PATTERNS["fingerprint"].finditer(seen.line.text):
            rank, numel = int(said["rank"]), _product(said["shape"])
            call = CollectiveCall(rank, int(said["seq"] or 0), said["op"], numel, said["dtype"] or "", site=site, place=seen.line.place)
            if site or rank not in calls:
                calls[rank] = call
            site = ""
    lines = [seen.line.quoted for seen in messages.of("fingerprint")]
    if not calls:
        return []
    if len({call.seq for call in calls.values()}) > 1:
        behind = min(call.seq for call in calls.values())
        late = [rank for rank, call in calls.items() if call.seq == behind]
        calls_made = "; ".join(f"rank {call.rank} at #{call.seq} {call.what()}" for call in calls.values())
        evidence = [*(call.line() for call in calls.values()), *lines[:2]]
        return [finding("collective-mismatch/points", ranks=late, evidence=evidence, calls=calls_made)]
    group = Group("", ranks={rank: CallHistory({call.seq: call}) for rank, call in calls.items()})
    found = [one for one in compare(group) if one.id == "collective-mismatch"]
    return found or [finding("collective-mismatch/torch", ranks=calls, evidence=lines[:4])]


def _product(shape: str | None) -> int:
    parts = "?" if shape is None else shape.replace(",", " ").split()
    return min(math.prod(int(part[:18]) for part in parts), 1 << 62) if all(map(str.isdigit, parts)) else -1
