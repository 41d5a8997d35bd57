"""Flight-recorder dumps of torch.distributed: one file per rank, joined by process group.

Schema 2.x: ``entries`` (a ring of calls: ``collective_seq_id``, ``profiling_name``, sizes, dtypes, ``state``, ``frames``), ``pg_config``
(groups and their ranks), ``pg_status`` (last enqueued, started, completed). A dump does not contain its own rank: that is the last number
in the name of its file. Point-to-point calls are skipped: they are numbered per pair, and rings and pipelines differ by design.

*Source:* https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numscope.doctor.explain.log_files import Dump
from numscope.doctor.explain.masking import shown
from numscope.doctor.explain.sequences import CollectiveCall, Group, compare
from numscope.doctor.findings import finding, named
from numscope.doctor.records import DoctorFinding

MAX_ENTRIES = 20_000
MAX_FRAMES = 64
MAX_MEMBERS = 1 << 20
_INSIDE = ("/torch/", "\\torch\\", "<frozen", "/contextlib.py", "/threading.py")
_BACKENDS = ("nccl:", "gloo:", "ucc:", "mpi:", "xccl:", "hccl:")


@dataclass(slots=True)
class Recorders:
    """Collects dumps; only the calls are kept, about a hundredth of a dump."""

    groups: dict[tuple[str, str], Group] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)
    expected: set[int] = field(default_factory=set)

    def add(self, dump: Dump) -> None:
        """Adds one rank's dump."""
        if dump.rank < 0:
            return
        self.ranks.add(dump.rank)
        config = _groups(dump.values.get("pg_config"))
        everybody = set().union(*config.values()) if config else set()
        self.expected |= everybody
        status = dump.values.get("pg_status")
        for name, desc, call in _calls(dump):
            group = self.groups.get((name, desc))
            if group is None:
                group = self.groups[name, desc] = Group(desc if desc and desc != "undefined" else name)
            history = group.of(call.rank)
            # JSON next to a pickle of the same rank has no frames.
            if call.site or not (known := history.calls.get(call.seq)) or not known.site:
                history.calls[call.seq] = call
            if isinstance(status, Mapping) and isinstance(now := status.get(name), Mapping):
                history.last_enqueued = _whole(now.get("last_enqueued_collective"))

    def findings(self) -> list[DoctorFinding]:
        """Findings from the dumps of all ranks together."""
        found = [one for group in self.groups.values() for one in compare(group)]
        missing = self.expected - self.ranks
        if missing and self.ranks and len(self.expected) <= MAX_MEMBERS:
            ranks, evidence = missing if len(missing) <= 64 else (), [f"dumps of {named(self.ranks)}"]
            id = "flight-recorder-rank-missing"
            found.append(finding(id, ranks=ranks, evidence=evidence, whose=named(missing), count=len(self.expected)))
        return found


def _calls(dump: Dump) -> Iterable[tuple[str, str, CollectiveCall]]:
    entries = dump.values["entries"]
    for number, entry in enumerate(entries[-MAX_ENTRIES:], max(0, len(entries) - MAX_ENTRIES)):
        if not isinstance(entry, Mapping) or entry.get("is_p2p"):
            continue
        seq = _whole(entry.get("collective_seq_id", entry.get("seq_id")))
        op = entry.get("profiling_name")
        if seq < 0 or not isinstance(op, str):
            continue
        for backend in _BACKENDS:
            op = op.removeprefix(backend)
        pair = entry.get("process_group")
        name, desc = (
            (_text(pair[0]), _text(pair[1])) if isinstance(pair, (tuple, list)) and len(pair) >= 2 else (_text(entry.get("pg_id", "")), "")
        )
        state = entry.get("state")
        # gloo's entries stay "scheduled" forever and are retired at once, so their state means nothing.
        shown_state = state if state in ("scheduled", "started", "completed") else ""
        if shown_state == "scheduled" and entry.get("retired") and entry.get("time_discovered_completed_ns") in (None, 0):
            shown_state = ""
        yield (
            shown(name),
            shown(desc),
            CollectiveCall(
                rank=dump.rank,
                seq=seq,
                op=shown(op)[:80],
                numel=_numel(entry.get("input_sizes")),
                dtype=_dtypes(entry.get("input_dtypes")),
                state=shown_state,
                site=_site(entry.get("frames")),
                place=f"{dump.file}[{number}]",
            ),
        )


def _text(value: Any) -> str:
    """A name. The text of other values is not asked for: lists that contain each other can have an endless one."""
    return str(value) if isinstance(value, str | int) else "?"


def _whole(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 62 else -1


def _numel(sizes: Any) -> int:
    """Elements of all tensors of a call; -1 if unknown."""
    if not isinstance(sizes, (list, tuple)) or len(sizes) > MAX_ENTRIES:
        return -1
    total = 0
    for size in sizes:
        if not isinstance(size, (list, tuple)) or len(size) > 64 or any(_whole(extent) < 0 for extent in size):
            return -1
        total += min(math.prod(size), 1 << 62)
    return total


def _dtypes(dtypes: Any) -> str:
    if not isinstance(dtypes, (list, tuple)):
        return ""
    return "+".join(sorted({shown(_text(dtype))[:24] for dtype in dtypes[:MAX_FRAMES]}))


def _site(frames: Any) -> str:
    """The innermost frame outside of torch."""
    if not isinstance(frames, (list, tuple)):
        return ""
    first = ""
    for frame in frames[:MAX_FRAMES]:
        if not isinstance(frame, Mapping) or not isinstance(file := frame.get("filename"), str):
            continue
        site = shown(f"{file}:{_whole(frame.get('line'))} ({_text(frame.get('name', '?'))})")
        if not any(part in file for part in _INSIDE):
            return site
        first = first or site
    return first


def _groups(config: Any) -> dict[str, set[int]]:
    """The ranks of each group."""
    groups: dict[str, set[int]] = {}
    if not isinstance(config, Mapping):
        return groups
    for key, value in list(config.items())[:MAX_ENTRIES]:
        if not isinstance(value, Mapping):
            continue
        ranks = value.get("ranks")
        if isinstance(ranks, str):
            try:
                ranks = json.loads(ranks[: 1 << 24])
            except (ValueError, RecursionError):
                continue
        if isinstance(ranks, (list, tuple)):
            members = {rank for rank in ranks[:MAX_MEMBERS] if _whole(rank) >= 0}
            groups.setdefault(_text(key), set()).update(members)
    return groups
