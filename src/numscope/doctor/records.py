"""What ranks, hub and diagnosis tell each other: plain data that is JSON on the wire and in the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypeVar

Launcher = Literal["torchrun", "slurm", "mpi", "local", "nnodes"]
Status = Literal["ok", "failed", "skipped", "timeout", "silent"]
Severity = Literal["fault", "degraded", "note"]
Confidence = Literal["certain", "likely", "possible"]

PHASES = ("facts", "rendezvous", "compare", "links", "backend", "pairs", "collectives", "compute")  # by number
DEPENDS = {1: (0,), 2: (1,), 3: (1,), 4: (1,), 5: (4,), 6: (4,), 7: (0,)}  # a phase that failed skips these that name it

_T = TypeVar("_T")


def to_json(record: Any) -> dict[str, Any]:
    """A record as JSON values."""
    return asdict(record)


def from_json(kind: type[_T], values: Mapping[str, Any]) -> _T:
    """A record from JSON values; unknown keys are left out, so that versions can differ by a field.

    Raises: ValueError for what is no such record.
    """
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    try:
        return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items() if key in known})
    except TypeError as error:
        raise ValueError(f"no {kind.__name__}: {error}") from None


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a rank is, as its launcher says.

    Args:
        node: number of its host among the hosts, by the launcher; by host name where the launcher says none.
        launcher: whose environment said so.
    """

    rank: int
    world_size: int
    local_rank: int = 0
    local_world_size: int = 1
    node: int = 0
    num_nodes: int = 1
    hostname: str = ""
    launcher: Launcher = "local"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user asked for.

    Args:
        quick: the smallest sizes, no compute phase.
        phases: numbers of those to run; those that they depend on run too.
        deadline_s: for everything, after which each rank has ended.
        timeout_scale: of every budget.
        ifname: network interface whose address others are told; "" lets the route to the hub say.
        backend: gloo, nccl or both, comma-separated; "" lets the hardware say.
        sizes: bytes of the payloads of phase 5 and 6.
        endpoint: host:port of the hub; "" lets the launcher say.
        token: the job's secret, which a connection must show; "" lets the launcher say.
    """

    quick: bool = False
    phases: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7)
    deadline_s: float = 180.0
    timeout_scale: float = 1.0
    ifname: str = ""
    backend: str = ""
    sizes: tuple[int, ...] = (8, 1 << 20, 64 << 20)
    endpoint: str = ""
    token: str = ""
    strict: bool = False
    redact: bool = False


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """One rank's phase.

    Args:
        doing: what it was about to do when it ended, for one that did not end well.
        started: seconds of the hub's clock since its start.
        data: as the phase's module says.
    """

    phase: int
    rank: int
    status: Status
    started: float = 0.0
    seconds: float = 0.0
    doing: str = ""
    error: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return PHASES[self.phase]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be.

    Args:
        id: stable, from ``catalog.py``.
        ranks, hosts: whom it is about.
        links: (from, to) pairs of host names.
        summary: one sentence.
        evidence: what was seen, a line each.
        remedy: what to do, a line to paste each.
    """

    id: str
    severity: Severity
    summary: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    evidence: tuple[str, ...] = ()
    confidence: Confidence = "likely"
    remedy: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What all ranks are told at the end.

    Args:
        exit_code: of every rank: 0 healthy, 1 fault attributed, 2 usage, 3 fault not attributed, 4 degraded (strict), 5 incomplete,
            70 internal.
        ok: ranks that are healthy.
    """

    exit_code: int
    findings: tuple[Finding, ...] = ()
    ok: tuple[int, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Examined:
    """All that diagnosis looks at.

    Args:
        settings: what was asked for.
        expected: world size.
        roster: the ranks that came, with what the hub saw of them: address, clock offset.
        results: of all ranks and phases.
        refused: connections that the hub did not let in: address and why (garbage, token, duplicate, world size).
        hub: what ranks said who could not reach the hub, where that is known.
    """

    settings: Settings
    expected: int
    roster: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    results: Sequence[PhaseResult] = ()
    refused: Sequence[Mapping[str, Any]] = ()
    hub: Mapping[str, Any] = field(default_factory=dict)

    def of(self, phase: int) -> dict[int, PhaseResult]:
        """One phase's results by rank."""
        return {result.rank: result for result in self.results if result.phase == phase}
