"""Comparison with an earlier report: what is slower now.

A baseline is a JSON report (``--json``). Its ``measured`` holds numbers by name; more is better for ``_per_s``, less for ``_s``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from numscope.doctor.diagnose.blame import Blame, hosts_of
from numscope.doctor.findings import listed
from numscope.doctor.records import DoctorFinding, Examined, ExamPhase, cells_of

SLOWER = 1.3
_LEAST_S = 1e-3  # shorter round trips vary with the host's load by more than matters


def measured(examined: Examined) -> dict[str, float]:
    """All measurements by stable names: ``link.node0.node1.bytes_per_s``, ``pair.gloo.0.1.bytes_per_s``, ``gemm.3.flops_per_s``, …"""
    hosts = hosts_of(examined)
    found: dict[str, float] = {}
    for rank, result in examined.of(ExamPhase.LINKS).items():
        for cell in cells_of(result):
            name = f"link.{hosts.get(rank, cell.from_host)}.{hosts.get(cell.to_rank, cell.to_host)}"
            for key, value in (("bytes_per_s", cell.bytes_per_s), ("rtt_min_s", cell.rtt_min_s)):
                if cell.status == "ok" and value:
                    found[f"{name}.{key}"] = value
    for rank, pair in examined.each(ExamPhase.PAIRS, "pairs"):
        speeds = [float(each["bytes_per_s"]) for each in pair.get("received", ()) if each.get("bytes_per_s")]
        if pair.get("status") == "ok" and speeds:
            found[f"pair.{pair.get('backend', 'gloo')}.{pair['peer']}.{rank}.bytes_per_s"] = max(speeds)
    for rank, each in examined.each(ExamPhase.COLLECTIVES, "collectives"):
        if each.get("status") == "ok" and each.get("bytes_per_s_max"):
            name = f"collective.{each['backend']}.{each['name']}.{each.get('group', 'all')}.{each['bytes']}.{rank}.bytes_per_s"
            found[name] = float(each["bytes_per_s_max"])
    for rank, result in examined.of(ExamPhase.COMPUTE).items():
        for probe, key in (("gemm", "flops_per_s"), ("copy", "bytes_per_s")):
            if (result.data.get(probe) or {}).get(key):
                found[f"{probe}.{rank}.{key}"] = float(result.data[probe][key])
    return found


def slower(examined: Examined, baseline: Mapping[str, Any], blame: Blame) -> Iterator[DoctorFinding]:
    """Finds what is more than 1.3 × slower than in the baseline: one finding per kind of measurement."""
    now, then = measured(examined), baseline.get("measured", {})
    lines: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for name, value in now.items():
        before = then.get(name) if isinstance(then, Mapping) else None
        if not isinstance(before, int | float) or before <= 0 or value <= 0:
            continue
        more_is_better = name.endswith("_per_s")
        ratio = before / value if more_is_better else value / before
        if ratio > SLOWER and (more_is_better or value - before > _LEAST_S):
            lines[name.partition(".")[0]].append((ratio, f"{name}: {value:.4g}, was {before:.4g} ({ratio:.1f} × slower)"))
    for kind, slow in sorted(lines.items()):
        slow.sort(reverse=True)
        compared = sum(name.startswith(f"{kind}.") and name in then for name in now)
        ranks = sorted({int(line.split(".")[1]) for _, line in slow if kind in ("gemm", "copy")})
        yield blame.finding(
            "slower-than-baseline",
            ranks=ranks,
            evidence=[line for _, line in slow],
            confidence="likely" if len(slow) > 1 else "possible",
            count=len(slow),
            compared=compared,
            kind=kind,
            times=SLOWER,
            worst=f"{slow[0][0]:.1f}",
            whose=f": {listed(f'rank {rank}' for rank in ranks)}" if ranks else "",
        )
