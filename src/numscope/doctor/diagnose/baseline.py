"""A report of a time when all was well, to compare with: what was measured then and is slower now.

A baseline is the doctor's own JSON report (``--json``); its ``measured`` holds, by name, numbers of which more is better (``_per_s``) or
less is (``_s``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from numscope.doctor.diagnose.blame import hosts_of
from numscope.doctor.findings.telling import finding, listed
from numscope.doctor.records import Examined, Finding

SLOWER = 1.3
_LEAST_S = 1e-3  # round trips shorter than that vary with the host's load by more than what matters


def measured(examined: Examined) -> dict[str, float]:
    """What was measured, by stable names: ``link.node0.node1.bytes_per_s``, ``pair.gloo.0.1.bytes_per_s``, ``gemm.3.flops_per_s``, …"""
    hosts = hosts_of(examined)
    found: dict[str, float] = {}
    for rank, result in examined.of(3).items():
        for cell in result.data.get("cells", ()):
            name = f"link.{hosts.get(rank, cell.get('from_host', ''))}.{hosts.get(int(cell['to_rank']), cell.get('to_host', ''))}"
            for key in ("bytes_per_s", "rtt_min_s"):
                if cell.get("status") == "ok" and cell.get(key):
                    found[f"{name}.{key}"] = float(cell[key])
    for rank, result in examined.of(5).items():
        for pair in result.data.get("pairs", ()):
            speeds = [float(each["bytes_per_s"]) for each in pair.get("received", ()) if each.get("bytes_per_s")]
            if pair.get("status") == "ok" and speeds:
                found[f"pair.{pair.get('backend', 'gloo')}.{pair['peer']}.{rank}.bytes_per_s"] = max(speeds)
    for rank, result in examined.of(6).items():
        for each in result.data.get("collectives", ()):
            if each.get("status") == "ok" and each.get("bytes_per_s_max"):
                name = f"collective.{each['backend']}.{each['name']}.{each.get('group', 'all')}.{each['bytes']}.{rank}.bytes_per_s"
                found[name] = float(each["bytes_per_s_max"])
    for rank, result in examined.of(7).items():
        for probe, key in (("gemm", "flops_per_s"), ("copy", "bytes_per_s")):
            if (result.data.get(probe) or {}).get(key):
                found[f"{probe}.{rank}.{key}"] = float(result.data[probe][key])
    return found


def slower(examined: Examined, baseline: Mapping[str, Any]) -> list[Finding]:
    """What is slower than 1.3 × what the baseline says, a finding each kind of measurement."""
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
    found = []
    for kind, told in sorted(lines.items()):
        told.sort(reverse=True)
        compared = [name for name in now if name.startswith(f"{kind}.") and name in then]
        ranks = {int(line.split(".")[1]) for _, line in told if kind in ("gemm", "copy")}
        hosts = hosts_of(examined)
        found.append(
            finding(
                "slower-than-baseline",
                f"{len(told)} of {len(compared)} measurements ({kind}) are more than {SLOWER} × slower than in the baseline, "
                f"the worst {told[0][0]:.1f} ×" + (f": {listed(f'rank {rank}' for rank in sorted(ranks))}." if ranks else "."),
                ranks=ranks,
                hosts={hosts.get(rank, "") for rank in ranks},
                evidence=[line for _, line in told],
                confidence="likely" if len(told) > 1 else "possible",
            )
        )
    return found
