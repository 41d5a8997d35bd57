"""Phase 2: what differs between ranks that should be equal, by majority.

Data of a rank:
    ``master``: how the name of rank 0's host (MASTER_ADDR where it is set) resolves here, as ``facts.resolve`` says
    ``interface``: the one that holds the address by which others reach this rank: ``name``, ``mtu``, ``address``; ``name`` is "" where
        no interface of this host has that address (it is translated on the way)
    ``offset_s``, ``round_trip_s``: this clock before the hub's, and how long asking took: the offset is known to half of that
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
from numscope.doctor.records import Examined

CLOCK_S = 1.0  # offsets above this are told: logs, certificates and caches go wrong by it
ABSENT = "nothing"
# Set by the launcher a rank or a host, so that they differ rightly.
_OWN = re.compile(
    r"TORCHELASTIC_(?!RUN_ID|MAX_RESTARTS)|CUDA_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|MASTER_ADDR|UCX_NET_DEVICES"
)


def run(context: Context) -> dict[str, Any]:
    """Looks up what can only be asked once the others are known.

    *Cost:* one name lookup, 2 s at most, whatever the number of ranks.
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
    """Something that ranks have differently.

    Args:
        subject: what it is: ``torch version``, ``NCCL_ALGO``.
        kind: version, environment, gpus, mtu, limit, cpus, system.
        majority: value of more than half of the ranks; "" for a tie.
        others: of each other value the ranks that have it; for a tie, of all values.
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
        """Who differs; with a tie, all."""
        return tuple(sorted(rank for ranks in self.others.values() for rank in ranks))


def split(values: Mapping[int, Hashable], subject: str, kind: str) -> Difference | None:
    """The difference in a value by rank; None where all have the same."""
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
    """All differences between the facts of the ranks, those that break things first."""
    facts = {rank: result.data for rank, result in sorted(examined.of(0).items()) if result.data}
    if len(facts) < 2:
        return []
    found: list[Difference | None] = []
    for name in _names(facts, "versions"):
        found.append(split(_named(facts, "versions", name, ABSENT), f"{name} version", "version"))
    found.append(split(_each(facts, lambda data: data["gpus"].get("driver", ABSENT), "gpus"), "GPU driver version", "version"))
    for name in _names(facts, "environment"):
        if not _OWN.match(name):
            values = {rank: _said(value) for rank, value in _named(facts, "environment", name, None).items()}
            found.append(split(values, name, "environment"))
    found.append(split(_each(facts, _gpus, "gpus"), "GPUs", "gpus"))
    mtus = {
        rank: f"{result.data['interface']['mtu']}"
        for rank, result in examined.of(2).items()
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
    """Clocks that are off by more than can be, in seconds before (positive) or behind the middle one."""
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
    """The value of each rank that has the fact: a fact that could not be had is no difference."""
    return {rank: value(data) for rank, data in facts.items() if key in data}


def _named(facts: Mapping[int, Mapping[str, Any]], key: str, name: str, absent: str | None) -> dict[int, str | None]:
    """One of the named values of each rank that has the fact."""
    return {rank: data[key].get(name, absent) for rank, data in facts.items() if key in data}


def _gpus(data: Mapping[str, Any]) -> str:
    names = Counter(str(device["name"]) for device in data["gpus"]["devices"])
    return ", ".join(f"{count} × {name}" for name, count in sorted(names.items())) or "none"


def _limit(value: int) -> str:
    return "none" if value < 0 else f"{value:,}"


def _said(value: str | None) -> str:
    return "not set" if value is None else repr(value)
