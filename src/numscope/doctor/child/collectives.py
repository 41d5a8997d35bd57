"""Phase 6: the collectives that training uses, checked against known results, and for identical bits in repeated runs.

Whole numbers in floats have exact sums in any order. Sums of random floats depend on the order, so their bits show whether repeated runs,
and all ranks, agree. With four or more ranks, each half repeats the collectives in its own group. After a failure, which makes others
hang, no more are run.

The phase fails if a collective is neither ok nor skipped, if memory could not be allocated, or if a rank is missing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from numscope.doctor.budget import Overdue
from numscope.doctor.child.exercises import EXERCISES, Exercise, Party, digest
from numscope.doctor.child.session import ChildSession, Failed, StoreLost, Wire, sentence, text_of
from numscope.records.words import few, in_bytes, named, spans

_LIMIT_SHARE = 0.3  # share of the time that is left, for one collective with its repetitions
_SIZE_SHARE = 0.04  # share of the phase: a size that would take longer, as extrapolated from the previous one, is skipped
_ABSENT_SHARE = 0.4  # share of the time that is left, to wait for a rank that failed elsewhere
_REPEATS = 5
_REPEATS_LARGE = 2  # above 1 MiB
_CPU_BYTES = 8 << 20
_GPU_BYTES = 1 << 30


def run(session: ChildSession, arguments: Mapping[str, Any]) -> None:
    """Allocates memory, and runs the collectives between ``members`` with ``sizes``."""
    torch.set_num_threads(1)
    session.need_group()
    report = session.report
    ranks = tuple(rank for rank in session.members if rank in arguments["members"])
    report.set(members=spans(ranks), missing=[], collectives=[], stopped="")
    bad = [wrong for wire in session.wires[-1:] if (wrong := _allocate(session, wire))]
    try:
        with report.step("wait for the other ranks: collectives"):
            present = session.gather("collectives/start", ranks, session.limit_s * 0.3, session.limit_s * 0.2)
        report.set(missing=spans(present.missing))
        if session.rank not in present.here:
            raise Failed(f"rank {session.rank} joined too late for the collectives")
        bad += _Course(session, present.here, arguments["sizes"]).run()
    except StoreLost as error:
        report.set(stopped=str(error), missing=spans([error.rank]))
        raise Failed("; ".join([*bad, str(error)])) from error
    if present.missing:
        bad.append(f"{named(present.missing)} did not join the collectives")
    if bad:
        raise Failed(few(bad, 3, "; "))


def _allocate(session: ChildSession, wire: Wire) -> str:
    """Allocates memory on the device, fills it and reads it back; returns what is wrong, or ""."""
    num_bytes = _CPU_BYTES
    error, began = "", time.perf_counter()
    with session.report.step(f"allocate memory on {wire.device}"):
        try:
            if wire.device.type == "cuda":
                num_bytes = min(_GPU_BYTES, torch.cuda.mem_get_info(wire.device)[0] // 2)
            block = torch.full((num_bytes // 4,), 3, dtype=torch.int32, device=wire.device)
            total = int(block.sum(dtype=torch.int64).item())
            if total != 3 * (num_bytes // 4):
                error = f"the sum of the written values is {total}, expected {3 * (num_bytes // 4)}"
        except (RuntimeError, MemoryError) as failure:
            error = str(failure).splitlines()[0]
    seconds = time.perf_counter() - began
    session.report.set(memory={"device": str(wire.device), "bytes": num_bytes, "seconds": seconds, "error": error})
    return f"rank {session.rank}: {in_bytes(num_bytes)} on {wire.device}: {error}" if error else ""


class _Course:
    """All collectives, in the same order on all ranks."""

    def __init__(self, session: ChildSession, ranks: tuple[int, ...], sizes: Sequence[int]) -> None:
        self._session = session
        self._ranks = ranks
        self._sizes = sizes
        self._number = 0
        self._bad: list[str] = []

    def run(self) -> list[str]:
        """Returns sentences about what is wrong."""
        for wire in self._session.wires:
            for name, ranks, wire_of_group in self._groups(wire):
                sizes = self._sizes if name == "all" else self._sizes[: 2 if len(self._sizes) > 2 else 1]
                for exercise in EXERCISES:
                    if not self._all_sizes(exercise, Party(ranks, ranks.index(self._session.rank), wire_of_group), name, sizes):
                        return self._bad
        return self._bad

    def _groups(self, wire: Wire) -> list[tuple[str, tuple[int, ...], Wire]]:
        """The groups of one backend that contain this rank."""
        here = self._ranks
        whole = wire if here == self._session.members else Wire(wire.backend, self._new_group(wire, here, "all"), wire.device)
        groups = [("all", here, whole)]
        if len(here) >= 4:
            middle = len(here) // 2
            half = here[:middle] if self._session.rank in here[:middle] else here[middle:]
            groups.append(("half", half, Wire(wire.backend, self._new_group(wire, half, "half"), wire.device)))
        return groups

    def _new_group(self, wire: Wire, ranks: tuple[int, ...], name: str) -> Any:
        with self._session.report.step(f"start {wire.backend} between {name} of the ranks: {', '.join(map(str, ranks[:16]))}"):
            indices = [self._session.members.index(rank) for rank in ranks]
            timeout = timedelta(seconds=max(1.0, _LIMIT_SHARE * self._session.left))
            # Only its members create it, since ranks that are gone can't take part.
            return self._session.report.limited(
                timeout.total_seconds() * 1.1,
                lambda: dist.new_group(indices, timeout=timeout, backend=wire.backend, use_local_synchronization=True),
            )

    def _all_sizes(self, exercise: Exercise, party: Party, group: str, sizes: Sequence[int]) -> bool:
        """Runs one collective with each of its sizes; returns whether to continue."""
        before_s, before_bytes = 0.0, 0
        for size in exercise.sizes(sizes):
            expected_s = before_s * size / before_bytes if before_bytes >= 1 << 16 else 0.0
            entry: dict[str, Any] = {"name": exercise.name, "backend": party.wire.backend, "group": group, "ranks": spans(party.ranks)}
            entry |= {"bytes": size, "status": "ok", "repeats": 0, "seconds_min": None, "seconds_max": None}
            entry |= {"bytes_per_s_min": None, "bytes_per_s_max": None, "wrong": None, "digests": [], "error": "", "missing": []}
            if expected_s > _SIZE_SHARE * self._session.limit_s:
                entry |= {"status": "skipped", "error": f"it would take {expected_s:.1f} s, as extrapolated from {in_bytes(before_bytes)}"}
                self._session.report.add("collectives", entry)
                continue
            what = f"{exercise.name}, {in_bytes(size)}, {group} of the ranks, {party.wire.backend}"
            before_s = self._one(exercise, party, entry, what)
            before_bytes = size
            self._session.report.add("collectives", entry)
            if entry["status"] in ("timeout", "error"):
                self._session.report.set(stopped=f"{what} failed")
                return False
        return True

    def _one(self, exercise: Exercise, party: Party, entry: dict[str, Any], what: str) -> float:
        """Fills in the entry; returns the slowest rank's seconds, the same on all ranks."""
        session = self._session
        self._number += 1
        call = f"collectives/{entry['group']}/{party.ranks[0]}/{self._number}/failed"
        repeats = _REPEATS if entry["bytes"] <= 1 << 20 else _REPEATS_LARGE
        seconds: list[float] = []

        def work() -> float:
            results = []
            exercise_now = exercise.prepare(party, entry["bytes"])
            for _ in range(repeats):
                with session.report.step(what):
                    began = time.perf_counter()
                    result = exercise_now()
                    if party.wire.device.type == "cuda":
                        torch.cuda.synchronize(party.wire.device)
                    seconds.append(time.perf_counter() - began)
                if result is not None:
                    if not entry["wrong"]:
                        entry["wrong"] = exercise.check(party, entry["bytes"], result)
                    if exercise.compares_bits:
                        results.append(digest(result))
            entry["digests"] = list(dict.fromkeys(results))
            return party.slowest(max(seconds))

        limit = _LIMIT_SHARE * session.left
        slowest = 0.0
        try:
            slowest = session.report.limited(limit, work)
        except (Overdue, RuntimeError, ValueError, OSError) as error:
            entry["status"] = "timeout" if isinstance(error, Overdue) else "error"
            entry["error"] = text_of(error)
            with session.report.step(f"check which ranks are left after {what} failed"):
                entry["missing"] = session.absent(call, party.ranks, _ABSENT_SHARE * session.left)
            lost = f"; {named(entry['missing'])} {'is' if len(entry['missing']) == 1 else 'are'} gone" if entry["missing"] else ""
            self._bad.append(f"{what}: {sentence(error)}{lost}")
        if seconds:
            entry |= {"repeats": len(seconds), "seconds_min": min(seconds), "seconds_max": max(seconds)}
            if entry["bytes"]:
                entry |= {"bytes_per_s_min": entry["bytes"] / max(seconds), "bytes_per_s_max": entry["bytes"] / min(seconds)}
        if entry["wrong"]:
            wrong = entry["wrong"]
            entry["status"] = "wrong" if entry["status"] == "ok" else entry["status"]
            self._bad.append(
                f"{what}: {wrong['num_wrong']} of {wrong['num_elements']} results are wrong on rank {session.rank}, "
                f"the first at {wrong['index']}: {wrong['got']}, expected {wrong['expected']}"
            )
        elif len(entry["digests"]) > 1:
            entry["status"] = "unstable"
            self._bad.append(f"{what}: {len(entry['digests'])} different sums of the same numbers in {repeats} runs on rank {session.rank}")
        return slowest
