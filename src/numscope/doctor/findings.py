"""Findings: their ids with usual severities and confidences, how they are made, and how they spell ranks, hosts and lists.

docs/doctor-json.md and docs/doctor-explain.md say what each id means. Something degraded becomes a fault if it made a phase fail, or if a
log mentions it, since logs do so only once it has caused harm.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Any, get_args

from numscope.doctor.records import Confidence, Finding, Severity
from numscope.records.words import escape, spans

_MOST_EVIDENCE = 12
_IDS: dict[Severity, str] = {
    # Training does not start, or not correctly.
    "fault": """
        hub-unresolved hub-loopback hub-refused hub-dropped hub-unreachable hub-port-silent hub-port-http hub-port-foreign hub-wrong-job
        hub-port-in-use hub-died hub-silent
        rank-missing rank-died rank-silent rank-stuck rank-duplicate rank-out-of-range world-size-differs
        interface-missing gpu-query-failed gpu-query-hung version-mismatch
        node-unreachable node-inbound-blocked node-outbound-blocked link-broken one-way-link links-failing network-split network-blocked
        ephemeral-ports-blocked mtu-mismatch wrong-address process-unresponsive loopback-blocked
        child-died child-hung backend-rank-missing store-unreachable backend-unavailable gloo-start-failed nccl-start-failed
        payload-corrupted rank-transfers-failing pair-failed pairs-failing collective-wrong collective-failed memory-unavailable
        cause-unknown
        nccl-wrong-interface nccl-missing-ranks nccl-connect-failed nccl-peer-closed nccl-system-error nccl-cuda-error nccl-duplicate-gpu
        gpu-out-of-memory gpu-fabric-manager gpu-xid ib-gid ib-timeout ib-transfer-failed
        collective-mismatch collective-stuck rank-behind rank-killed rank-crashed rank-aborted rank-failed job-terminated host-out-of-memory
        port-in-use rendezvous-timeout rendezvous-unreachable gloo-connect-failed gloo-timeout gloo-peer-closed
    """,
    # It runs, but worse than it could.
    "degraded": """
        name-resolves-to-loopback name-unresolved shm-too-small memlock-too-small nofile-too-small ranks-exceed-gpus
        environment-differs gpus-differ mtu-differs clock-skew address-translated
        link-slow link-lossy link-high-latency pair-slow rank-slow slower-than-baseline
        nccl-socket-fallback gpu-p2p-disabled
    """,
    # Worth knowing.
    "note": """
        hub-unauthenticated wrong-interface limits-differ hosts-differ collective-nondeterministic host-busy incomplete
        nccl-warning flight-recorder-rank-missing
    """,
}
_CONFIDENCES: dict[Confidence, str] = {  # of those that are not likely, but usually
    "certain": """
        hub-unresolved hub-loopback hub-refused hub-dropped hub-unreachable hub-port-silent hub-port-http hub-port-foreign hub-wrong-job
        hub-port-in-use hub-died hub-silent hub-unauthenticated rank-died rank-silent rank-duplicate rank-out-of-range world-size-differs
        interface-missing name-unresolved shm-too-small child-died backend-unavailable memory-unavailable collective-nondeterministic
        incomplete flight-recorder-rank-missing host-out-of-memory nccl-duplicate-gpu port-in-use rendezvous-unreachable
    """,
    "possible": "cause-unknown collective-stuck gloo-timeout links-failing pairs-failing nccl-system-error nccl-warning",
}
CATALOG: dict[str, Severity] = {id: severity for severity, ids in _IDS.items() for id in ids.split()}
_CONFIDENCE = {id: confidence for confidence, ids in _CONFIDENCES.items() for id in ids.split()}
# Usually caused by another fault: next to a cause, these are notes.
CONSEQUENCES = frozenset(
    "cause-unknown nccl-peer-closed nccl-system-error collective-stuck rank-aborted gloo-timeout gloo-peer-closed".split()
)


def finding(
    id: str,
    summary: str,
    *remedy: str,
    ranks: Iterable[int] = (),
    hosts: Iterable[str] = (),
    links: Iterable[tuple[str, str]] = (),
    evidence: Iterable[str] = (),
    confidence: Confidence | None = None,
    severity: Severity | None = None,
) -> Finding:
    """A finding with its id's usual severity and confidence, unless others are given. Unknown ranks (-1) and hosts ("") are left out."""
    return Finding(
        id=id,
        severity=severity or CATALOG[id],
        summary=summary,
        ranks=tuple(sorted({rank for rank in ranks if rank >= 0})),
        hosts=tuple(sorted({host for host in hosts if host})),
        links=tuple(dict.fromkeys(links)),
        evidence=tuple(dict.fromkeys(evidence))[:_MOST_EVIDENCE],
        confidence=confidence or _CONFIDENCE.get(id, "likely"),
        remedy=tuple(dict.fromkeys(remedy)),
    )


def gravity(finding: Finding) -> tuple[int, int]:
    """By which findings are sorted: the gravest first, then the most certain."""
    return get_args(Severity).index(finding.severity), get_args(Confidence).index(finding.confidence)


def named(ranks: Iterable[int], most: int = 8) -> str:
    """``rank 3``, ``ranks 0–3, 7``, ``ranks 0, 2, 4 and 40 more``."""
    numbers = sorted(set(ranks))
    if not numbers:
        return "no rank"
    runs = spans(numbers)
    words = [str(first) if first == last else f"{first}{', ' if last == first + 1 else '–'}{last}" for first, last in runs]
    shown, left = words[:most], sum(last - first + 1 for first, last in runs[most:])
    return ("rank " if len(numbers) == 1 else "ranks ") + ", ".join(shown) + (f" and {left} more" if left else "")


def listed(words: Iterable[Any], most: int = 6) -> str:
    """``a``, ``a and b``, ``a, b and c``, ``a, b and 40 more``."""
    items = [str(word) for word in words]
    if len(items) > most:
        return f"{', '.join(items[: most - 1])} and {len(items) - most + 1} more"
    return " and ".join(filter(None, (", ".join(items[:-1]), items[-1]))) if items else ""


def capital(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def without(host: str) -> str:
    """The remedy that leaves a host out of the job, in SLURM's words."""
    return f"srun --exclude={pasted(host)} …"


def pasted(host: str) -> str:
    """A host's name in a shell's line: its real name, without the number that tells two hosts of one name apart, and quoted."""
    return shlex.quote(escape(re.sub(r"#\d+$", "", host)))
