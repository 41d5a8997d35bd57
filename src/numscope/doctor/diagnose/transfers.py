"""Which ranks or pairs fail to exchange data, or exchange wrong data (phases 5 and 6)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from numscope.doctor.diagnose.blame import MOST_TEXT, Blame, most_accused
from numscope.doctor.diagnose.matrix import CommonCause, attribute
from numscope.doctor.diagnose.network import Pair
from numscope.doctor.findings import finding, listed, named, without
from numscope.doctor.records import DoctorFinding, Examined, ExamPhase


def pair_cells(examined: Examined) -> dict[str, dict[Pair, Mapping[str, Any]]]:
    """The receivers' reports, by backend and (sender, receiver)."""
    cells: dict[str, dict[Pair, Mapping[str, Any]]] = defaultdict(dict)
    for rank, pair in examined.each(ExamPhase.PAIRS, "pairs"):
        cells[str(pair.get("backend", "gloo"))][int(pair["peer"]), rank] = pair
    return dict(cells)


def pairs(examined: Examined, blame: Blame) -> Iterator[DoctorFinding]:
    """Corrupt payloads, and pairs that do not work."""
    for backend, cells in sorted(pair_cells(examined).items()):
        done = {pair: cell for pair, cell in cells.items() if cell["status"] != "skipped"}
        wrong = {pair: cell["status"] != "corrupt" for pair, cell in done.items() if cell["status"] in ("ok", "corrupt")}
        yield from blame.taken(_corrupt(backend, cause, done, blame) for cause in attribute(wrong).all_causes)
        works = {pair: cell["status"] in ("ok", "corrupt") for pair, cell in done.items() if not blame.between(*pair)}
        yield from blame.taken(_failing(backend, works, done, blame))


def collectives(examined: Examined, blame: Blame) -> Iterator[DoctorFinding]:
    """Wrong results, nondeterministic results, and collectives that failed."""
    yield from _nondeterministic(examined)
    wrong: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = defaultdict(dict)
    broken: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = defaultdict(dict)
    num_ranks = len(examined.of(ExamPhase.COLLECTIVES))
    for rank, each in examined.each(ExamPhase.COLLECTIVES, "collectives"):
        kept = {"wrong": wrong, "timeout": broken, "error": broken}.get(each["status"])
        if kept is not None:
            kept[str(each["name"]), str(each["backend"])].setdefault(rank, each)
    if wrong and not any(each.id == "payload-corrupted" for each in blame.faults):
        yield _wrong(wrong, num_ranks, blame)
    if broken and not blame.faults:
        yield _broken(broken, num_ranks, blame)


def _wrong(wrong: Mapping[tuple[str, str], Mapping[int, Mapping[str, Any]]], num_ranks: int, blame: Blame) -> DoctorFinding:
    ranks = {rank for each in wrong.values() for rank in each}
    few = len(ranks) * 2 < num_ranks
    lines = []
    for (name, backend), each in wrong.items():
        rank, first = next(iter(each.items()))
        what = first.get("wrong") or {}
        seen = f"element {what.get('index')} is {what.get('got')}, expected {what.get('expected')}"
        seen += f", {what.get('num_wrong')} of {what.get('num_elements')} are wrong"
        lines.append(f"{backend} {name}, {named(each)}: on rank {rank} {seen}")
    return blame.finding(
        "collective-wrong",
        ranks=ranks if few else (),
        evidence=lines,
        confidence="likely" if few else "possible",
        names=listed(sorted({name for name, _ in wrong})),
        on=named(ranks),
        unknown="" if few else "; the cause is unknown",
        without_one=without(blame.host(min(ranks))) if few else "",
    )


def _corrupt(backend: str, cause: CommonCause, cells: Mapping[Pair, Mapping[str, Any]], blame: Blame) -> DoctorFinding:
    lines = []
    for one, other in sorted(cause.cells):
        for received in cells[one, other].get("received", ()):
            what = received.get("corrupt")
            if what:
                size = f"{received['bytes']:,} bytes, {what['num_bytes']:,} differ, the first at offset {what['first_offset']:,}"
                lines.append(f"{backend}, rank {one} to rank {other}: of {size}")
    where = cause.where(lambda rank: f"rank {rank} on {blame.host(rank)}")
    ranks = cause.nodes if where else ()
    return blame.finding(
        "payload-corrupted" if where else "payload-corrupted/unknown",
        ranks=ranks,
        links=cause.links(blame.host),
        evidence=lines,
        confidence=cause.confidence if where else "possible",
        where=where,
        without_one=without(blame.host(ranks[0])) if where else "",
        path=_path(backend),
    )


def _failing(backend: str, works: Mapping[Pair, bool], cells: Mapping[Pair, Mapping[str, Any]], blame: Blame) -> Iterator[DoctorFinding]:
    """Pairs that fail, attributed to hosts if whole hosts fail, else to ranks."""
    if all(works.values()):
        return
    by_host: dict[tuple[str, str], dict[Pair, bool]] = defaultdict(dict)
    for (one, other), ok in works.items():
        by_host[blame.host(one), blame.host(other)][one, other] = ok
    between = {pair: set(oks.values()) for pair, oks in by_host.items() if pair[0] != pair[1]}
    within = all(ok for (one, other), oks in by_host.items() if one == other for ok in oks.values())
    hosts = {host for pair in between for host in pair}
    spans: Mapping[Any, Iterable[Pair]] = {pair: [pair] for pair in works}
    if within and 1 < len(hosts) < len(blame.hosts) and all(len(oks) == 1 for oks in between.values()):
        spans = {pair: by_host[pair] for pair in between}
        attribution = attribute({pair: True in oks for pair, oks in between.items()})
    else:
        attribution = attribute(works)
    for cause in attribution.all_causes:
        lines = _lines(backend, [pair for cell in cause.cells for pair in spans[cell]], cells)
        yield _failed(backend, cause, lines, blame)


def _failed(backend: str, cause: CommonCause, lines: list[str], blame: Blame) -> DoctorFinding:
    """The finding for a cause, whose nodes are ranks or names of hosts."""

    def host_of(node: Any) -> str:
        return blame.host(node) if isinstance(node, int) else str(node)

    where = cause.where(lambda node: f"rank {node} on {host_of(node)}" if isinstance(node, int) else str(node))
    if not where:
        case = "/split" if cause.kind in ("split", "groups") else "/all" if cause.nodes else ""
        return finding(f"pairs-failing{case}", evidence=lines, backend=backend, path=_path(backend))
    hosts = tuple(map(host_of, cause.nodes))
    ranks = [rank for node in cause.nodes for rank in ([node] if isinstance(node, int) else blame.ranks_on(node))]
    alone, apart = cause.one_node, len(set(hosts)) > 1
    return finding(
        "rank-transfers-failing" if alone else "pair-failed",
        ranks=() if apart else ranks,
        hosts=hosts,
        links=cause.links(host_of) if apart else (),
        evidence=lines,
        confidence=cause.confidence,
        where=where,
        backend=backend,
        path=_path(backend),
    )


def _path(backend: str) -> str:
    hint = "export NCCL_P2P_DISABLE=1  # tests whether the direct path between GPUs is the cause; NCCL_IB_DISABLE=1 for the network"
    return hint if backend == "nccl" else ""


def _lines(backend: str, failed: Iterable[Pair], cells: Mapping[Pair, Mapping[str, Any]]) -> list[str]:
    return [
        f"{backend}, rank {one} to rank {other}: {(cell := cells[one, other])['status']}, {cell.get('doing', '')}; "
        f"{str(cell.get('error', ''))[:MOST_TEXT]}"
        for one, other in sorted(failed)
    ]


def _nondeterministic(examined: Examined) -> Iterator[DoctorFinding]:
    """Sums of the same numbers that differ in their bits, between repetitions or ranks."""
    within: dict[str, list[int]] = defaultdict(list)
    digests: dict[tuple[str, str], dict[int, tuple[str, ...]]] = defaultdict(dict)
    for rank, each in examined.each(ExamPhase.COLLECTIVES, "collectives"):
        if each["status"] == "unstable":
            within[f"{each['backend']} {each['name']}"].append(rank)
        if each["name"] == "float_sum" and each.get("group", "all") == "all" and each["status"] == "ok":
            digests[f"{each['backend']}, {each['bytes']:,} bytes", str(each.get("ranks"))][rank] = tuple(each.get("digests", ()))
    lines = [f"{name}: repetitions differ in their bits on {named(ranks)}" for name, ranks in within.items()]
    for (name, _), by_rank in digests.items():
        values = sorted(set(by_rank.values()))
        if len(values) > 1:
            values_of = (f"{named([rank for rank, own in by_rank.items() if own == value])}: {listed(value)}" for value in values)
            lines.append(f"{name}: {'; '.join(values_of)}")
    if lines:
        yield finding("collective-nondeterministic", evidence=lines)


def _broken(broken: Mapping[tuple[str, str], Mapping[int, Mapping[str, Any]]], num_ranks: int, blame: Blame) -> DoctorFinding:
    (name, backend), first = next(iter(broken.items()))
    worst = most_accused(Counter(int(rank) for each in first.values() for rank in each.get("missing", ())))
    attributed = 0 < len(worst) < num_ranks
    lines = [
        f"rank {rank}: {backend} {name}, {each['status']}: {str(each.get('error', ''))[:MOST_TEXT]}" for rank, each in sorted(first.items())
    ]
    return blame.finding(
        "collective-failed",
        ranks=worst if attributed else (),
        evidence=lines,
        confidence="likely" if attributed else "possible",
        what=f"{backend} {name}",
        why=f": {named(worst)} did not enter it." if attributed else "; the cause is unknown.",
    )
