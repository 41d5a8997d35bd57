"""Links and ranks that are slower, lossier or later than the others (phases 3, 5 and 7).

Only comparison decides, with one exception: between two hosts there is nothing to compare with, and 100 Mbit/s is too slow for any job.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from numscope.doctor.diagnose.blame import Blame
from numscope.doctor.diagnose.matrix import CommonCause, attribute
from numscope.doctor.diagnose.network import LinkMatrix, Pair, links_of
from numscope.doctor.diagnose.transfers import pair_cells
from numscope.doctor.findings import finding, without
from numscope.doctor.records import Cell, Confidence, DoctorFinding, Examined, ExamPhase

# (seconds, ratio): a link is slow if it is slower than the fastest quarter by the ratio and took at least those seconds to measure. Shorter
# measurements depend more on the hosts' schedulers, or a single lost packet (0.2 s), than on the link.
SLOW_LINK = ((0.4, 2.5), (0.25, 8.0))
SLOW_PAIR = 4.0  # messages are smaller, and neighbors share cores
SLOW_RANK = 1.5
FLOOR_BYTES_PER_S = 12.5e6
# A lossy link loses packets in burst after burst. A starved host retransmits a whole window once: 13 segments in one burst of eight were
# seen on a link without losses, 68 on another. So without the quarter of the bursts that lost most, half of the least loss must remain.
WORST_BURSTS, FEWEST_BURSTS, STEADY = 0.25, 4, 0.5
LOSS, LOSS_RATIO, FEWEST_LOST, FEWEST_SEGMENTS = 0.003, 4.0, 3, 200
LATE_RATIO, LATE_S = 5.0, 2e-3
_PAIR_BYTES = 1 << 20  # smaller payloads measure latency, not bandwidth


def slow_links(examined: Examined, blame: Blame) -> Iterator[DoctorFinding]:
    """Links that are slow, lossy or late, compared with the others."""
    links = links_of(examined, blame)
    cells = {pair: cell for pair, cell in links.examined.items() if cell.status == "ok"}
    speeds = {pair: cell.bytes_per_s for pair, cell in cells.items() if cell.bytes_per_s}
    quick = _quantile(speeds, 0.75)
    # Two directions between two hosts are not comparable unless they differ by far.
    compared = len(speeds) > 2 or quick > 2 * SLOW_LINK[0][1] * min(speeds.values(), default=0.0)
    least = {pair: quick / _slow_ratio(cells[pair]) if compared else FLOOR_BYTES_PER_S for pair in speeds}
    slow = {pair for pair, speed in speeds.items() if speed < least[pair]}
    lines = {pair: f"{_rate(speed)}{_losses(cells[pair])}" for pair, speed in speeds.items()}
    usual = f"the fastest quarter of the links has at least {_rate(quick)}" if compared else f"any job needs {_rate(FLOOR_BYTES_PER_S)}"
    yield from _matrix_findings("link-slow", "is slow", slow, lines, links, usual)

    losses = {pair: cell.loss for pair, cell in cells.items() if cell.segments >= FEWEST_SEGMENTS and pair not in slow}
    usual_loss = statistics.median_low(losses.values()) if len(losses) > 2 else 0.0
    most = max(LOSS, LOSS_RATIO * usual_loss)
    lossy = {pair for pair, loss in losses.items() if loss >= most and cells[pair].retransmitted >= FEWEST_LOST}
    lossy = {pair for pair in lossy if _steady_loss(cells[pair]) >= STEADY * most}
    lines = {pair: f"{loss:.2%} of the segments are lost" for pair, loss in losses.items()}
    yield from _matrix_findings("link-lossy", "loses packets", lossy, lines, links, f"the others lose {usual_loss:.2%}")

    # Packets wait in the queue of a slow link.
    queued = slow | {(other, one) for one, other in slow}
    times = {pair: cell.rtt_min_s for pair, cell in cells.items() if cell.rtt_min_s and pair not in queued}
    usual_s = _quantile(times, 0.25)
    late = {pair for pair, seconds in times.items() if seconds > LATE_RATIO * usual_s and seconds - usual_s > LATE_S}
    lines = {pair: f"a round trip takes {seconds * 1e3:.1f} ms" for pair, seconds in times.items()}
    late = late if len(times) > 2 else set()
    yield from _matrix_findings("link-high-latency", "has long round trips", late, lines, links, f"{usual_s * 1e3:.2f} ms is usual")


def _slow_ratio(cell: Cell) -> float:
    """How much slower than usual a link must be to count as slow."""
    took_s = cell.bytes / cell.bytes_per_s
    return next((ratio for least_s, ratio in SLOW_LINK if took_s >= least_s), math.inf)


def slow_pairs(examined: Examined, blame: Blame) -> Iterator[DoctorFinding]:
    """Pairs of ranks whose transfers are slower than others; those within a host and those between hosts are compared separately."""
    named_slow = {rank for each in blame.faults for rank in each.ranks}
    for backend, cells in sorted(pair_cells(examined).items()):
        groups: dict[bool, dict[Pair, float]] = defaultdict(dict)
        for pair, cell in cells.items():
            speeds = [
                float(each["bytes_per_s"]) for each in cell.get("received", ()) if each.get("bytes_per_s") and each["bytes"] >= _PAIR_BYTES
            ]
            if speeds and not set(pair) & named_slow:
                groups[blame.hosts.get(pair[0]) == blame.hosts.get(pair[1])][pair] = max(speeds)
        for within, all_speeds in groups.items():
            if len(all_speeds) < 6:
                continue
            usual = statistics.median(all_speeds.values())
            slow = {pair for pair, speed in all_speeds.items() if speed * SLOW_PAIR < usual}
            for cause in attribute({pair: pair not in slow for pair in all_speeds}).causes:
                lines = [f"rank {one} to rank {other}: {_rate(all_speeds[one, other])}" for one, other in sorted(cause.cells)]
                yield blame.finding(
                    "pair-slow",
                    ranks=cause.nodes,
                    evidence=[*lines, f"{_rate(usual)} is usual"],
                    confidence=_unsure(cause),
                    where=cause.where(lambda rank: f"rank {rank}") or "between several pairs",
                    backend=backend,
                    times=f"{SLOW_PAIR:.0f}",
                    among="on a host" if within else "between hosts",
                )


def stragglers(examined: Examined, blame: Blame) -> Iterator[DoctorFinding]:
    """Ranks that compute or copy more slowly than others with the same kind of device, by themselves or because of other load."""
    by_device: dict[str, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for rank, result in sorted(examined.of(ExamPhase.COMPUTE).items()):
        if result.data.get("gemm") and result.data.get("copy"):
            by_device[str(result.data.get("device", "cpu")).partition(":")[0]][rank] = result.data
    for device, data in by_device.items():
        slow: dict[int, list[str]] = defaultdict(list)
        busy: dict[int, list[str]] = defaultdict(list)
        for probe, what in (("gemm", "a matrix product"), ("copy", "a memory copy")):
            # A slow rank may have used a smaller size, so seconds per unit of work are compared.
            best, typical = (_compared({rank: _unit_s(each[probe], key) for rank, each in data.items()}) for key in ("min_s", "median_s"))
            fewest = SLOW_RANK if len(data) > 2 else 2 * SLOW_RANK  # with a single other rank, that one may be the exception
            for rank in best:
                (at_best, apart), (typically, usually_apart) = best[rank], typical[rank]
                line = f"{what} takes {at_best:.1f} × as long as on the others at best, {typically:.1f} × typically"
                if at_best > fewest and apart:
                    slow[rank].append(line)
                elif typically > 2 * SLOW_RANK and usually_apart:
                    busy[rank].append(line)
        for rank, lines in (busy | slow).items():
            own = data[rank]
            load = f"load average {own['load']}, " if float(own.get("load", -1)) >= 0 else ""
            yield blame.finding(
                "rank-slow" if rank in slow else "host-busy",
                ranks=(rank,),
                evidence=[*lines, f"{load}{own.get('threads', '?')} threads"],
                confidence="likely" if len(data) > 2 else "possible",
                device=device,
                line=lines[0].partition(" at best")[0],
            )


def _compared(seconds: Mapping[int, float]) -> dict[int, tuple[float, bool]]:
    """By rank, if there are others, the ratio to their median, and whether it is clearly longer than the longest of them."""
    ordered, found = sorted(seconds.values()), {}
    for rank, own in seconds.items() if len(seconds) > 1 else ():
        at, last = bisect_left(ordered, own), len(ordered) - 2
        lower, upper, most = (ordered[number + (number >= at)] for number in (last // 2, (last + 1) // 2, last))
        found[rank] = 2 * own / (lower + upper), own > 1.2 * most
    return found


def _unit_s(probe: Mapping[str, Any], key: str) -> float:
    """Seconds per unit of work, so that different sizes can be compared."""
    work = float(probe["n"]) ** 3 if "n" in probe else float(probe.get("bytes", 1))
    return float(probe[key]) / max(work, 1.0)


def _matrix_findings(
    id: str, word: str, bad: set[Pair], lines: Mapping[Pair, str], links: LinkMatrix, usual: str
) -> Iterator[DoctorFinding]:
    """A finding for each node or link that explains the bad ones of the pairs; ``lines``: what was measured."""
    for cause in attribute({pair: pair not in bad for pair in lines}).all_causes:
        hosts = tuple(links.hosts[node] for node in cause.nodes)
        where = cause.where(lambda node: links.hosts[node])
        yield finding(
            id,
            ranks=links.ranks.get(cause.nodes[0], ()) if cause.one_node else (),
            hosts=hosts,
            links=() if cause.one_node else links.names(cause.cells),
            evidence=[*(f"{links.hosts[one]} to {links.hosts[other]}: {lines[one, other]}" for one, other in sorted(cause.cells)), usual],
            confidence=_unsure(cause),
            where=f"{where} " if where else "",
            word=word,
            share="" if where else f", in {len(cause.cells)} of {len(lines)} directions",
            places=" and ".join(hosts) if len(hosts) in (1, 2) else "all hosts",
            without_one=without(hosts[0]) if cause.one_node else "",
        )


def _unsure(cause: CommonCause) -> Confidence:
    """Measurements vary, so nothing is certain."""
    return "possible" if cause.confidence == "possible" else "likely"


def _steady_loss(cell: Cell) -> float:
    """The loss without the bursts that lost most; with too few bursts, the whole loss."""
    pairs = [burst for burst in cell.burst_losses if len(burst) == 2]  # another rank may send anything
    bursts = sorted(pairs, key=lambda burst: burst[1] / max(burst[0], 1))
    if len(bursts) < FEWEST_BURSTS:
        return cell.loss
    kept = bursts[: len(bursts) - math.ceil(WORST_BURSTS * len(bursts))]
    return sum(max(0, burst[1]) for burst in kept) / max(sum(burst[0] for burst in kept), 1)


def _losses(cell: Cell) -> str:
    return f", {cell.loss:.2%} of the segments are lost" if cell.loss >= LOSS else ""


def _rate(bytes_per_s: float) -> str:
    bits = bytes_per_s * 8
    return f"{bits / 1e9:,.1f} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:,.0f} Mbit/s"


def _quantile(values: Mapping[Pair, float], share: float) -> float:
    ordered = sorted(values.values())
    return ordered[round(share * (len(ordered) - 1))] if ordered else 0.0
