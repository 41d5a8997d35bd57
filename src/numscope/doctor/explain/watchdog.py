"""Log messages of ProcessGroupNCCL's watchdog, and of the checks of collectives by TORCH_DISTRIBUTED_DEBUG=DETAIL."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from numscope.doctor.explain.log_files import LogLine
from numscope.doctor.explain.masking import shown
from numscope.doctor.explain.patterns import PATTERNS
from numscope.doctor.explain.sequences import CallHistory, CollectiveCall, Group, compare
from numscope.doctor.findings import finding
from numscope.doctor.records import DoctorFinding

MAX_MESSAGES = 1 << 18
_FINGERPRINT = PATTERNS["fingerprint"]
_TIMEOUT, _GROUP, _AT, _STATUS = (PATTERNS[f"watchdog {name}"] for name in ("timeout", "group", "work", "status"))


@dataclass(slots=True)
class Watchdog:
    """Collects the messages."""

    timeouts: dict[int, dict[int, CollectiveCall]] = field(default_factory=dict)  # rank → sequence number → call
    groups: dict[tuple[int, int], str] = field(default_factory=dict)  # (rank, sequence number) → group
    status: dict[tuple[int, str], int] = field(default_factory=dict)  # (rank, group) → sequence number it enqueued last
    mismatches: list[tuple[LogLine, list[CollectiveCall]]] = field(default_factory=list)

    def line(self, line: LogLine, site: str) -> bool:
        """Adds a line; returns whether it is such a message."""
        text = line.text
        if "CollectiveFingerPrint" in text:
            calls: list[CollectiveCall] = []
            for said in _FINGERPRINT.finditer(text):
                numel, own_site = _product(said["shape"]), "" if calls else site  # the message's first rank is the one that raises
                rank, seq = int(said["rank"]), int(said["seq"] or 0)
                calls.append(CollectiveCall(rank, seq, said["op"], numel, said["dtype"] or "", site=own_site, place=line.place))
            if calls and len(self.mismatches) < 64:
                self.mismatches.append((line, calls))
            return bool(calls)
        if "ProcessGroupNCCL" not in text and "WorkNCCL" not in text:
            return False
        if len(self.timeouts) + len(self.groups) > MAX_MESSAGES:
            return True
        if (m := _TIMEOUT.search(text)) is not None:
            rank, seq = int(m["rank"]), int(m["seq"])
            numel = int(m["numel_in"]) if m["numel_in"] else -1
            self.timeouts.setdefault(rank, {}).setdefault(
                seq, CollectiveCall(rank, seq, m["op"], numel, state=f"timed out after {int(m['ran']) / 1000:.0f} s", place=line.place)
            )
        if (g := _GROUP.search(text)) is not None and (at := _AT.search(text)) is not None:
            rank, group = int(g["rank"]), shown(g["guid"] or g["desc"] or g["id"])
            self.groups[rank, int(at["seq"])] = group
            if (s := _STATUS.search(text)) is not None:
                self.status[rank, group] = int(s["enqueued"])
        return True

    def findings(self, members: set[int]) -> list[DoctorFinding]:
        """Findings from the messages of all ranks together; ``members`` are all ranks of the job, as far as known."""
        found = self._differing()
        groups: dict[str, Group] = {}
        for rank, calls in self.timeouts.items():
            first = min(calls)  # later calls time out too
            name = self.groups.get((rank, first), "")
            history = groups.setdefault(name, Group(name)).of(rank)
            history.calls[first], history.waits = calls[first], True
        for (rank, name), enqueued in self.status.items():
            if name in groups and rank not in groups[name].ranks:  # it reports its status, and did not wait itself
                groups[name].of(rank).last_enqueued = enqueued
        if "" in groups and len(groups) == 2:  # ranks with an unnamed group, next to a named one
            unnamed = groups.pop("")
            (group,) = groups.values()
            group.ranks = unnamed.ranks | group.ranks
        for group in groups.values():
            group.members = members if len(groups) == 1 else set(group.ranks)
            found += compare(group)
        return found

    def _differing(self) -> list[DoctorFinding]:
        """What the checks of collectives found to differ. Each message repeats the calls, one of them with its site."""
        seen: dict[int, CollectiveCall] = {}
        for _, calls in self.mismatches:
            seen |= {call.rank: call for call in calls if call.site or call.rank not in seen}
        lines = [line.quoted for line, _ in self.mismatches]
        if not seen:
            return []
        if len({call.seq for call in seen.values()}) > 1:
            behind = min(call.seq for call in seen.values())
            late = [rank for rank, call in seen.items() if call.seq == behind]
            calls_made = "; ".join(f"rank {call.rank} at #{call.seq} {call.what()}" for call in seen.values())
            evidence = [*(call.line() for call in seen.values()), *lines[:2]]
            return [finding("collective-mismatch/points", ranks=late, evidence=evidence, calls=calls_made)]
        group = Group("", ranks={rank: CallHistory({call.seq: call}) for rank, call in seen.items()})
        found = [one for one in compare(group) if one.id == "collective-mismatch"]
        return found or [finding("collective-mismatch/torch", ranks=seen, evidence=lines[:4])]


def _product(shape: str | None) -> int:
    parts = "?" if shape is None else shape.replace(",", " ").split()
    return min(math.prod(int(part[:18]) for part in parts), 1 << 62) if all(map(str.isdigit, parts)) else -1
