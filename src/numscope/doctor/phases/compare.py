"""Phase 2: differences between ranks that should be equal, decided by majority.

Data of a rank:
    ``master``: how the name of rank 0's host (MASTER_ADDR if it is set) resolves here, as ``facts.resolve`` returns it
    ``interface``: the interface with the address at which others reach this rank: ``name``, ``mtu``, ``address``; ``name`` is "" if no
        interface of this host has that address (it is translated on the way)
    ``offset_s``, ``round_trip_s``: this clock minus the hub's, and how long that measurement took; the error is at most half of it
"""

from __future__ import annotations

import os
import re
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from numscope.doctor.phases.context import Context
from numscope.doctor.phases.facts import NAME_S, interfaces, resolve
from numscope.doctor.records import Examined, Phase

CLOCK_S = 1.0  # larger offsets are reported: logs, certificates and caches suffer from them
ABSENT = "nothing"
# Set by the launcher per rank or host, so they are expected to differ.
_OWN = re.compile(
    r"TORCHELASTIC_(?!RUN_ID|MAX_RESTARTS)|CUDA_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|MASTER_ADDR|UCX_NET_DEVICES"
)


def run(context: Context) -> dict[str, Any]:
    """Looks up what requires the roster.

    *Cost:* one name lookup, at most 2 s, whatever the number of ranks.
    """
    entry = context.roster.get(context.identity.rank, {})
    address = str(entry.get("address", ""))
    first = context.roster.get(0, {}).get("identity", {})
    name = os.environ.get("MASTER_ADDR") or str(first.get("hostname", ""))
    data: dict[str, Any] = {
        "offset_s": float(entry.get("offset_s", 0.0)),
        "round_trip_s": float(entry.get("round_trip_s", 0.0)),
        "interface": {"name": "", "mtu": 0, "address": address},
    }
    try:
        for interface, facts in interfaces().items():
            if address and address in facts["addresses"]:
                data["interface"] = {"name": interface, "mtu": facts.get("mtu", 0), "address": address}
    except OSError as error:
        data["interface"]["error"] = str(error)
    if name:
        context.say(f"look up {name}")
        data["master"] = resolve(name, context.deadline.within(NAME_S * context.settings.timeout_scale))
    return data


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that differs between ranks.

    Args:
        subject: what it is a value of: ``torch version``, ``NCCL_ALGO``.
        kind: version, environment, gpus, mtu, limit, cpus, system.
        majority: the value of more than half of the ranks; "" for a tie.
        others: by each other value the ranks that have it; for a tie, all values.
    """

    subject: str
    kind: str
    majority: str
    others: Mapping[str, tuple[int, ...]]

    @property
    def tie(self) -> bool:
        return not self.majority

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that differ; all of them for a tie."""
        return tuple(sorted(rank for ranks in self.others.values() for rank in ranks))


def split(values: Mapping[int, Hashable], subject: str, kind: str) -> Difference | None:
    """The difference in a value by rank; None if all ranks have the same."""
    counts = Counter(values.values())
    if len(counts) < 2:
        return None
    value, votes = counts.most_common(1)[0]
    majority = votes * 2 > len(values)
    others: dict[str, tuple[int, ...]] = {}
    for other in sorted(counts, key=str):
        if not (majority and other == value):
            others[str(other)] = tuple(sorted(rank for rank, own in values.items() if own == other))
    return Difference(subject, kind, str(value) if majority else "", others)


def differences(examined: Examined) -> list[Difference]:
    """All differences between the facts of the ranks, the most harmful first."""
    facts = {rank: result.data for rank, result in sorted(examined.of(Phase.FACTS).items()) if result.data}
    if len(facts) < 2:
        return []
    found = [split(_named(facts, "versions", name, ABSENT), f"{name} version", "version") for name in _names(facts, "versions")]
    found.append(split(_each(facts, lambda data: data["gpus"].get("driver", ABSENT), "gpus"), "GPU driver version", "version"))
    for name in filter(lambda name: not _OWN.match(name), _names(facts, "environment")):
        values = {rank: _spelled(value) for rank, value in _named(facts, "environment", name, None).items()}
        found.append(split(values, name, "environment"))
    found.append(split(_each(facts, _gpus, "gpus"), "GPUs", "gpus"))
    mtus = {
        rank: f"{result.data['interface']['mtu']}"
        for rank, result in examined.of(Phase.COMPARE).items()
        if result.data.get("interface", {}).get("mtu") and not result.data["interface"]["name"].startswith("lo")
    }
    found.append(split(mtus, "MTU of the interface used", "mtu"))
    found.append(split(_each(facts, lambda data: _limit(data["limits"]["memlock_bytes"]), "limits"), "memlock limit", "limit"))
    found.append(split(_each(facts, lambda data: _limit(data["limits"]["nofile"]), "limits"), "open files limit", "limit"))
    found.append(split(_each(facts, lambda data: data["machine"], "machine"), "architecture", "system"))
    found.append(split(_each(facts, lambda data: data["cpus"].get("quota", data["cpus"]["usable"]), "cpus"), "usable CPUs", "cpus"))
    found.append(split(_each(facts, lambda data: data["kernel"], "kernel"), "kernel", "system"))
    return [difference for difference in found if difference is not None]


def clocks(examined: Examined) -> dict[int, float]:
    """By rank, seconds by which its clock is ahead of (positive) or behind the median, where that exceeds ``CLOCK_S`` and the error."""
    offsets = {rank: float(entry.get("offset_s", 0.0)) for rank, entry in examined.roster.items()}
    if len(offsets) < 2:
        return {}
    middle = statistics.median_low(sorted(offsets.values()))
    return {
        rank: offset - middle
        for rank, offset in sorted(offsets.items())
        if abs(offset - middle) > CLOCK_S + float(examined.roster[rank].get("round_trip_s", 0.0)) / 2
    }


def _names(facts: Mapping[int, Mapping[str, Any]], key: str) -> list[str]:
    return sorted({name for data in facts.values() for name in data.get(key, {})})


def _each(facts: Mapping[int, Mapping[str, Any]], value: Callable[[Mapping[str, Any]], Hashable], key: str) -> dict[int, Hashable]:
    """The value of each rank that has the fact; a missing fact is not a difference."""
    return {rank: value(data) for rank, data in facts.items() if key in data}


def _named(facts: Mapping[int, Mapping[str, Any]], key: str, name: str, absent: str | None) -> dict[int, str | None]:
    """One of the fact's named values, for each rank that has the fact."""
    return {rank: data[key].get(name, absent) for rank, data in facts.items() if key in data}


def _gpus(data: Mapping[str, Any]) -> str:
    names = Counter(str(device["name"]) for device in data["gpus"]["devices"])
    return ", ".join(f"{count} × {name}" for name, count in sorted(names.items())) or "none"


def _limit(value: int) -> str:
    return "none" if value < 0 else f"{value:,}"


def _spelled(value: str | None) -> str:
    return "not set" if value is None else repr(value)
