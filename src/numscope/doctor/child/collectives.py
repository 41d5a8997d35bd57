"""Phase 6: the collectives that training uses, checked against known results, and for identical bits in repeated runs.

Whole numbers in floats have exact sums in any order. Sums of random floats depend on the order, so their bits show whether repeated runs,
and all ranks, agree. With four or more ranks, each half repeats the collectives in its own group. After a failure, which makes others
hang, no more are run.

The phase fails if a collective is neither ok nor skipped, or if a rank is missing.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from numscope.doctor.budget import Overdue
from numscope.doctor.child.session import ChildSession, Failed, StoreLost, Wire, sentence, text_of
from numscope.records.words import few, in_bytes, named, spans

_LIMIT_SHARE = 0.3  # share of the time that is left, for one collective with its repetitions
_SIZE_SHARE = 0.04  # share of the phase: a size that would take longer, as extrapolated from the previous one, is skipped
_ABSENT_SHARE = 0.4  # share of the time that is left, to wait for a rank that failed elsewhere
_REPEATS = 5
_REPEATS_LARGE = 2  # above 1 MiB
_PERIOD = 1021  # after which the numbers in a payload repeat; a prime, so that no chunk equals its neighbor


def run(session: ChildSession, arguments: Mapping[str, Any]) -> None:
    """Runs the collectives between ``members`` with ``sizes``."""
    torch.set_num_threads(1)
    session.need_group()
    report = session.report
    ranks = tuple(rank for rank in session.members if rank in arguments["members"])
    report.set(members=spans(ranks), missing=[], collectives=[], stopped="")
    try:
        with report.step("wait for the other ranks: collectives"):
            present = session.gather("collectives/start", ranks, session.limit_s * 0.3, session.limit_s * 0.2)
        report.set(missing=spans(present.missing))
        if session.rank not in present.here:
            raise Failed(f"rank {session.rank} joined too late for the collectives")
        bad = [*_all(session, present.here, arguments["sizes"])]
    except StoreLost as error:
        report.set(stopped=str(error), missing=spans([error.rank]))
        raise Failed(str(error)) from error
    if present.missing:
        bad.append(f"{named(present.missing)} did not join the collectives")
    if bad:
        raise Failed(few(bad, 3, "; "))


def _all(session: ChildSession, ranks: tuple[int, ...], all_sizes: Sequence[int]) -> Iterator[str]:
    """Runs all collectives, in the same order on all ranks; yields sentences about what is wrong."""
    for group, party in (each for wire in session.wires for each in _groups(session, wire, ranks)):
        sizes = all_sizes if group == "all" else all_sizes[: 2 if len(all_sizes) > 2 else 1]
        for exercise in EXERCISES:
            before_s, before_bytes = 0.0, 0
            for size in exercise.sizes(sizes):
                expected_s = before_s * size / before_bytes if before_bytes >= 1 << 16 else 0.0
                entry: dict[str, Any] = {"name": exercise.name, "backend": party.wire.backend, "group": group, "ranks": spans(party.ranks)}
                entry |= {"bytes": size, "status": "ok", "repeats": 0, "seconds_min": None, "seconds_max": None}
                entry |= {"bytes_per_s_min": None, "bytes_per_s_max": None, "wrong": None, "digests": [], "error": "", "missing": []}
                if expected_s > _SIZE_SHARE * session.limit_s:
                    why = f"it would take {expected_s:.1f} s, as extrapolated from {in_bytes(before_bytes)}"
                    entry |= {"status": "skipped", "error": why}
                else:
                    what = f"{exercise.name}, {in_bytes(size)}, {group} of the ranks, {party.wire.backend}"
                    before_s, before_bytes = _one(session, exercise, party, entry, what), size
                    yield from _sentences(entry, what, session.rank)
                session.report.add("collectives", entry)
                if entry["status"] in ("timeout", "error"):
                    session.report.set(stopped=f"{what} failed")
                    return


def _groups(session: ChildSession, wire: Wire, ranks: tuple[int, ...]) -> Iterator[tuple[str, Party]]:
    """The groups of one backend that contain this rank."""
    halves = (ranks[: len(ranks) // 2], ranks[len(ranks) // 2 :]) if len(ranks) >= 4 else ()
    for name, members in (("all", ranks), *(("half", half) for half in halves if session.rank in half)):
        group = wire.group if members == session.members else _new_group(session, wire, members, name)
        yield name, Party(members, members.index(session.rank), Wire(wire.backend, group, wire.device))


def _new_group(session: ChildSession, wire: Wire, ranks: tuple[int, ...], name: str) -> Any:
    with session.report.step(f"start {wire.backend} between {name} of the ranks: {', '.join(map(str, ranks[:16]))}"):
        indices = [session.members.index(rank) for rank in ranks]
        timeout = timedelta(seconds=max(1.0, _LIMIT_SHARE * session.left))
        # Only its members create it, since ranks that are gone can't take part.
        return session.report.limited(
            timeout.total_seconds() * 1.1,
            lambda: dist.new_group(indices, timeout=timeout, backend=wire.backend, use_local_synchronization=True),
        )


def _one(session: ChildSession, exercise: Exercise, party: Party, entry: dict[str, Any], what: str) -> float:
    """Fills in the entry; returns the slowest rank's seconds, the same on all ranks."""
    seconds: list[float] = []

    def work() -> float:
        results = []
        exercise_now = exercise.prepare(party, entry["bytes"])
        for _ in range(_REPEATS if entry["bytes"] <= 1 << 20 else _REPEATS_LARGE):
            with session.report.step(what):
                began = time.perf_counter()
                result = exercise_now()
                if party.wire.device.type == "cuda":
                    torch.cuda.synchronize(party.wire.device)
                seconds.append(time.perf_counter() - began)
            if result is not None:
                entry["wrong"] = entry["wrong"] or exercise.check(party, entry["bytes"], result)
                if exercise.compares_bits:
                    results.append(hashlib.sha256(result.cpu().numpy().tobytes()).hexdigest()[:16])
        entry["digests"] = list(dict.fromkeys(results))
        return party.slowest(max(seconds))

    slowest = 0.0
    try:
        slowest = session.report.limited(_LIMIT_SHARE * session.left, work)
    except (Overdue, RuntimeError, ValueError, OSError) as error:
        entry |= {"status": "timeout" if isinstance(error, Overdue) else "error", "error": text_of(error)}
        with session.report.step(f"check which ranks are left after {what} failed"):
            call = f"collectives/{what}/{party.ranks[0]}/failed"
            entry["missing"] = session.absent(call, party.ranks, _ABSENT_SHARE * session.left)
    else:
        entry["status"] = "wrong" if entry["wrong"] else "unstable" if len(entry["digests"]) > 1 else "ok"
    if seconds:
        entry |= {"repeats": len(seconds), "seconds_min": min(seconds), "seconds_max": max(seconds)}
        if entry["bytes"]:
            entry |= {"bytes_per_s_min": entry["bytes"] / max(seconds), "bytes_per_s_max": entry["bytes"] / min(seconds)}
    return slowest


def _sentences(entry: Mapping[str, Any], what: str, rank: int) -> Iterator[str]:
    """Describes what is wrong with a collective."""
    if entry["error"]:
        missing = entry["missing"]
        lost = f"; {named(missing)} {'is' if len(missing) == 1 else 'are'} gone" if missing else ""
        yield f"{what}: {sentence(entry['error'])}{lost}"
    if wrong := entry["wrong"]:
        yield (
            f"{what}: {wrong['num_wrong']} of {wrong['num_elements']} results are wrong on rank {rank}, "
            f"the first at {wrong['index']}: {wrong['got']}, expected {wrong['expected']}"
        )
    elif len(entry["digests"]) > 1:
        yield f"{what}: {len(entry['digests'])} different sums of the same numbers in {entry['repeats']} runs on rank {rank}"


@dataclass(slots=True)
class Party:
    """A group, as the member with an index in it sees it."""

    ranks: tuple[int, ...]
    index: int
    wire: Wire

    @property
    def num(self) -> int:
        return len(self.ranks)

    def slowest(self, seconds: float) -> float:
        """The maximum over all ranks."""
        value = torch.tensor([seconds], dtype=torch.float64, device=self.wire.device)
        dist.all_reduce(value, op=dist.ReduceOp.MAX, group=self.wire.group)
        return float(value.item())

    def numbers(self, num: int, offset: int) -> torch.Tensor:
        """offset + 0, 1, 2, … up to the period, repeated; float32 [num], small enough for exact sums in any order."""
        period = torch.arange(offset, offset + _PERIOD, dtype=torch.float32)
        return period.repeat(-(-num // _PERIOD))[:num].to(self.wire.device)


@dataclass(frozen=True, slots=True)
class Exercise:
    """A collective and its expected result."""

    name: str
    source: Callable[[Party, int], torch.Tensor]  # makes this rank's input, from the group and the number of elements per rank
    # the function to time, from the group, the input and the number of elements per rank
    run: Callable[[Party, torch.Tensor, int], torch.Tensor | None]
    expected: Callable[[Party, int], torch.Tensor] | None = None  # makes the exact result in the same way; None if there is none
    sizes: Callable[[Sequence[int]], Sequence[int]] = lambda sizes: sizes  # chooses those of the requested sizes with which it runs
    compares_bits: bool = False  # repeated runs must return the same bits

    def prepare(self, party: Party, num_bytes: int) -> Callable[[], torch.Tensor | None]:
        """The function to time, which returns the result."""
        chunk = _chunk(party, num_bytes)
        source = self.source(party, chunk)
        return lambda: self.run(party, source, chunk)

    def check(self, party: Party, num_bytes: int, result: torch.Tensor) -> dict[str, Any] | None:
        """Describes the wrong elements of the result; None if there are none."""
        expected = result if self.expected is None else self.expected(party, _chunk(party, num_bytes))
        if torch.equal(result, expected) or self.expected is None:
            return None
        where = (result != expected).nonzero().view(-1)
        first = int(where[0])
        got, right = float(result[first].item()), float(expected[first].item())
        return {"index": first, "got": got, "expected": right, "num_wrong": len(where), "num_elements": len(result)}


def _chunk(party: Party, num_bytes: int) -> int:
    """Elements in one rank's part of a payload."""
    return max(1, num_bytes // 4 // party.num)


def _filled(result: torch.Tensor, collective: Callable[..., object], party: Party, *source: torch.Tensor, **how: int) -> torch.Tensor:
    """The result, into which a collective writes."""
    collective(result, *source, group=party.wire.group, **how)
    return result


def _all_reduce(party: Party, source: torch.Tensor, chunk: int) -> torch.Tensor:
    return _filled(source.clone(), dist.all_reduce, party)


def _summed(party: Party, num: int) -> torch.Tensor:
    return party.num * party.numbers(num, 0) + party.num * (party.num - 1) // 2


def _own_numbers(party: Party, chunk: int) -> torch.Tensor:
    return party.numbers(party.num * chunk, party.index)


def _random(party: Party, chunk: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(party.ranks[party.index])
    return torch.randn(party.num * chunk, generator=generator).to(party.wire.device)


def _letter(sender: int, to: int) -> int:
    return (31 * sender + 17 * to) % 8191


EXERCISES = (
    Exercise(
        "barrier",
        lambda party, chunk: torch.empty(0),
        lambda party, source, chunk: dist.barrier(group=party.wire.group),
        sizes=lambda sizes: (0,),
    ),
    Exercise("all_reduce", _own_numbers, _all_reduce, lambda party, chunk: _summed(party, party.num * chunk)),
    Exercise(
        "broadcast",
        lambda party, chunk: party.numbers(party.num * chunk, 7 + party.index),
        lambda party, source, chunk: _filled(source.clone(), dist.broadcast, party, group_src=party.num - 1),
        lambda party, chunk: party.numbers(party.num * chunk, 6 + party.num),
    ),
    Exercise(
        "all_gather",
        lambda party, chunk: party.numbers(chunk, party.index),
        lambda party, source, chunk: _filled(source.new_empty(party.num * chunk), dist.all_gather_into_tensor, party, source),
        lambda party, chunk: torch.cat([party.numbers(chunk, index) for index in range(party.num)]),
    ),
    Exercise(
        "reduce_scatter",
        _own_numbers,
        lambda party, source, chunk: _filled(source.new_empty(chunk), dist.reduce_scatter_tensor, party, source.clone()),
        lambda party, chunk: _summed(party, party.num * chunk)[party.index * chunk : (party.index + 1) * chunk],
    ),
    Exercise(
        "all_to_all",
        lambda party, chunk: torch.cat([party.numbers(chunk, _letter(party.index, to)) for to in range(party.num)]),
        lambda party, source, chunk: _filled(torch.empty_like(source), dist.all_to_all_single, party, source),
        lambda party, chunk: torch.cat([party.numbers(chunk, _letter(index, party.index)) for index in range(party.num)]),
    ),
    # Random floats, whose sum depends on the order in its last bits.
    Exercise("float_sum", _random, _all_reduce, sizes=lambda sizes: sizes[min(1, len(sizes) - 1) :][:1], compares_bits=True),
)
