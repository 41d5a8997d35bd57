"""Findings about torch's process group that did not start (phase 4), and child processes that died or hung (phases 4 to 7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from numscope.doctor.diagnose.blame import MOST_TEXT, Blame, most_accused
from numscope.doctor.findings import capital, finding, pasted
from numscope.doctor.records import Confidence, DoctorFinding, Examined, ExamPhase, PhaseResult
from numscope.records.words import named, unspanned

_MEMORY_WORDS = ("out of memory", "Cannot allocate memory", "MemoryError", "bad_alloc")


def children_gone(examined: Examined, blame: Blame) -> Iterator[DoctorFinding]:
    """Ranks whose torch process died, and those whose torch process hung while others did not.

    A child that hangs often only waits for another one: if all hang, or in a step with a peer, hanging is not a cause by itself.
    """
    for phase in filter(lambda phase: phase.in_child, ExamPhase):
        results = examined.of(phase)
        gone = {rank: result for rank, result in sorted(results.items()) if result.data.get("child") and rank not in blame.ranks}
        # A child that is gone is still gone in later phases, but reported once.
        gone = {rank: result for rank, result in gone.items() if "was gone before" not in result.error}
        hung = {rank: result for rank, result in gone.items() if result.data["child"].get("hung")}
        yield from blame.taken(_died(rank, result, blame) for rank, result in gone.items() if rank not in hung)
        others = [rank for rank, result in results.items() if rank not in hung and result.status != "skipped"]
        accused = _accused(examined, phase)
        most = max((accused[rank] for rank in hung), default=0)
        few = phase is ExamPhase.COMPUTE or len(hung) < len(others)
        stuck = [rank for rank in hung if (accused[rank] * 2 >= most if most else few)]
        for rank in stuck:
            told = [f"{accused[rank]} other rank(s) report that it did not join"] if accused[rank] else []
            words = {"phase": phase.title, "doing": hung[rank].data["child"].get("doing", "")}
            evidence = [_line(hung[rank]), *told, *_stderr(hung[rank])]
            confidence: Confidence = "certain" if len(stuck) == 1 and others else "likely"
            yield blame.finding("child-hung", ranks=(rank,), evidence=evidence, confidence=confidence, **words)


def backend(examined: Examined, blame: Blame) -> Iterator[DoctorFinding]:
    """Explains why the process group did not start, if no rank, link or child is known to be broken."""
    results = examined.of(ExamPhase.BACKEND)
    failed = {rank: result for rank, result in results.items() if result.status in ("failed", "timeout")}
    if not failed or blame.faults:
        return
    if unavailable := _unavailable(failed, blame):
        yield unavailable
        return
    missing = _accused(examined, ExamPhase.BACKEND)
    if missing:
        ranks = most_accused(missing)
        everybody = len(ranks) >= len(results)
        sure = not everybody and (max(missing.values()) > 1 or len(results) == 2)
        yield finding(
            "backend-rank-missing",
            ranks=() if everybody else ranks,
            hosts=blame.hosts_of(ranks),
            evidence=[f"{count} rank(s) waited for rank {rank}" for rank, count in sorted(missing.items())] + _errors(failed),
            confidence="likely" if sure else "possible",
            absent=capital(named(ranks)),
        )
        if not everybody:
            return
    unmet = {rank: result for rank, result in failed.items() if result.data.get("store", {}).get("error")}
    if unmet:
        yield _store_unreachable(unmet, blame)
        return
    for name in ("gloo", "nccl"):
        groups = {rank: result.data.get("groups", {}).get(name, {}) for rank, result in sorted(failed.items())}
        broken = {rank: group for rank, group in groups.items() if group.get("error")}
        if broken:
            only = most_accused(Counter(rank for group in broken.values() for rank in group.get("not_ready", ()))) or list(broken)
            attributed = len(only) < len(results)
            yield blame.finding(
                f"{name}-start-failed",
                ranks=only if attributed else (),
                evidence=[f"rank {rank}: {group['error'][:MOST_TEXT]}" for rank, group in broken.items()],
                confidence="likely" if attributed else "possible",
                why=f": {named(only)} {'is' if len(only) == 1 else 'are'} not ready." if attributed else " on any rank.",
            )


def _store_unreachable(unmet: dict[int, PhaseResult], blame: Blame) -> DoctorFinding:
    store = next(iter(unmet.values())).data["store"]
    host, away = blame.host(int(store["rank"])), blame.hosts_of(unmet)
    return finding(
        "store-unreachable",
        ranks=() if len(unmet) > 1 and len(away) > 1 else unmet,
        hosts={host, *away},
        links=[(other, host) for other in sorted(away - {host})],
        evidence=_errors(unmet),
        who=capital(named(unmet)),
        store=store["rank"],
        on=host,
        pasted_store=pasted(host),
        at=f"{store['address']}:{store['port']}",
    )


def _unavailable(failed: dict[int, PhaseResult], blame: Blame) -> DoctorFinding | None:
    """NCCL was requested but can't start: each rank reports what it lacks."""
    skipped = {rank: result.data for rank, result in failed.items() if result.data.get("groups", {}).get("nccl", {}).get("skipped")}
    bare, without_nccl = ([rank for rank, data in skipped.items() if data.get("lacks") == what] for what in ("gpu", "nccl"))
    lacking = sorted({*bare, *without_nccl})
    if not lacking:
        return None
    own = f"{named(bare)} {'has no GPU of its' if len(bare) == 1 else 'have no GPU of their'} own" if bare else ""
    built = f"torch on {named(without_nccl)} was built without NCCL" if without_nccl else ""
    gpus = ((rank, skipped[rank].get("num_gpus", 0), skipped[rank].get("torch", "")) for rank in lacking)
    lines = [f"rank {rank}: {num} GPU(s) visible to its torch {version}" for rank, num, version in gpus]
    return blame.finding(
        "backend-unavailable",
        ranks=lacking,
        evidence=lines,
        lacks=", and ".join(filter(None, (own, built))),
        gpus="nvidia-smi -L  # there: each rank of a host needs its own GPU; otherwise use fewer ranks per host" if own else "",
        build="pip install torch  # there: a CUDA build" if built else "",
    )


def _died(rank: int, result: PhaseResult, blame: Blame) -> DoctorFinding:
    child = result.data["child"]
    text, how = "\n".join(map(str, child.get("stderr", ()))), str(child.get("how", ""))
    case = why = ""
    if "No module named 'torch'" in text:
        case, why = "/torch", ": torch is not installed there"
    elif "SIGKILL" in how or any(word in text for word in _MEMORY_WORDS):
        case, why = "/memory", ", probably because memory ran out"
    elif "SIGBUS" in how:
        case, why = "/shm", ", probably because /dev/shm is full"
    evidence = (_line(result), *_stderr(result))
    return blame.finding(f"child-died{case}", ranks=(rank,), evidence=evidence, phase=result.phase.title, how=how, why=why)


def _accused(examined: Examined, phase: ExamPhase) -> Counter[int]:
    """Counts, for each rank, how many other ranks report that it did not join."""
    counts: Counter[int] = Counter()
    alike: Counter[tuple[frozenset[tuple[int, int]], frozenset[int]]] = Counter()  # most report the same
    for rank, result in examined.of(phase).items():
        missing = frozenset((first, last) for first, last in result.data.get("missing", ()))
        each = [*result.data.get("collectives", ()), *dict[str, Any](result.data.get("groups", {})).values()]
        absent = frozenset(other for one in each for key in ("missing", "not_ready") for other in one.get(key, ()))
        alike[missing, absent] += 1
        counts[rank] -= rank in absent or any(first <= rank <= last for first, last in missing)
    for (missing, absent), times in alike.items():
        for rank in {*unspanned(missing, examined.expected), *absent}:
            counts[rank] += times
    return +counts


def _line(result: PhaseResult) -> str:
    child = result.data["child"]
    return f"rank {result.rank}: {child.get('how', '')}, during: {child.get('doing', '')}, for {float(child.get('doing_s', 0)):.1f} s"


def _stderr(result: PhaseResult) -> list[str]:
    return [str(line)[:MOST_TEXT] for line in result.data["child"].get("stderr", ()) if str(line).strip()][-4:]


def _errors(results: dict[int, PhaseResult]) -> list[str]:
    ranks_of: dict[str, list[int]] = {}
    for rank, result in sorted(results.items()):
        store = result.data.get("store", {})
        ranks_of.setdefault(str(store.get("error") or result.error)[:MOST_TEXT], []).append(rank)
    return [f"{named(ranks)}: {text}" for text, ranks in ranks_of.items()]
