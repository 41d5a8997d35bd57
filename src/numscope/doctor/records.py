"""Records that ranks, hub and diagnosis exchange: plain data that becomes JSON on the wire and in the report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import IntEnum
from typing import Annotated, Any, Literal, TypeVar

Launcher = Literal["torchrun", "slurm", "mpi", "local", "nnodes"]
Status = Literal["ok", "failed", "skipped", "timeout", "silent"]
Severity = Literal["fault", "degraded", "note"]
Confidence = Literal["certain", "likely", "possible"]

# What a message may have in such a field, as ``meet/shapes.py`` checks it.
Rank = Annotated[int, range(1 << 24)]
Count = Annotated[int, range(1, 1 << 24)]
Port = Annotated[int, range(1 << 16)]
Name = Annotated[str, re.compile(r"(?!-)[^\x00-\x1f\x7f]{0,255}")]

_T = TypeVar("_T")


class Phase(IntEnum):
    """The phases of an examination, in order. Each is a module in ``phases/`` or ``child/``, except the rendezvous, which is ``meet/``."""

    FACTS = 0
    RENDEZVOUS = 1
    COMPARE = 2
    LINKS = 3
    BACKEND = 4
    PAIRS = 5
    COLLECTIVES = 6
    COMPUTE = 7

    @property
    def label(self) -> str:
        """``links``."""
        return self.name.lower()

    @property
    def title(self) -> str:
        """``phase 3 (links)``."""
        return f"phase {self.value} ({self.label})"

    @property
    def needs(self) -> tuple[Phase, ...]:
        """Phases that must have succeeded on a rank before it runs this one."""
        if self in (Phase.COMPARE, Phase.LINKS, Phase.BACKEND):
            return (Phase.RENDEZVOUS,)
        return (Phase.BACKEND,) if self in (Phase.PAIRS, Phase.COLLECTIVES) else ()

    @property
    def in_child(self) -> bool:
        """Whether the phase needs torch, and so runs in the rank's child process."""
        return self >= Phase.BACKEND


def to_json(record: Any) -> dict[str, Any]:
    """A record as JSON values."""
    return asdict(record)


def from_json(kind: type[_T], values: Mapping[str, Any]) -> _T:
    """A record from JSON values. Unknown keys are ignored, so that versions may differ by a field.

    Raises: ValueError for values that do not make such a record.
    """
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    try:
        return kind(**{key: _read(key, value) for key, value in values.items() if key in known})
    except TypeError as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from None


def _read(key: str, value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return value
    return tuple(from_json(Finding, each) if key == "findings" else tuple(each) if isinstance(each, list) else each for each in value)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a rank is, according to its launcher."""

    rank: Rank
    world_size: Count
    local_rank: Rank = 0
    local_world_size: Count = 1
    node: Rank = 0  # number of its host, from the launcher; numbered by host name where the launcher gives no number
    num_nodes: Count = 1
    hostname: Name = ""
    launcher: Launcher = "local"  # whose environment variables these are


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user asked for."""

    quick: bool = False  # use the smallest sizes and skip the compute phase
    phases: tuple[Phase, ...] = tuple(Phase)  # those to run; the phases they depend on run too
    deadline_s: float = 180.0  # for the whole examination; every rank has ended by then
    timeout_scale: float = 1.0  # factor on every time limit
    ifname: str = ""  # network interface whose address is given to other ranks; "" uses the route to the hub
    backend: str = ""  # gloo, nccl or both, comma-separated; "" decides by the hardware
    sizes: tuple[int, ...] = (8, 1 << 20, 64 << 20)  # payload sizes of the pairs and collectives phases, in bytes
    endpoint: str = ""  # host:port of the hub; "" derives it from the launcher
    token: str = ""  # the job's secret, which every connection must prove to hold; "" derives it from the launcher
    strict: bool = False
    redact: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "phases", tuple(map(Phase, self.phases)))


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """The result of one phase on one rank."""

    phase: Phase
    rank: Rank
    status: Status
    started: float = 0.0  # seconds on the hub's clock since the hub started
    seconds: float = 0.0
    doing: str = ""  # the step it was about to take when it failed or was lost
    error: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)  # as described in meet/shapes.py

    def __post_init__(self) -> None:
        object.__setattr__(self, "phase", Phase(self.phase))


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong or worth knowing."""

    id: str  # stable, from a catalog
    severity: Severity
    summary: str  # one sentence
    ranks: tuple[Rank, ...] = ()  # whom it concerns
    hosts: tuple[str, ...] = ()  # whom it concerns
    links: tuple[tuple[str, str], ...] = ()  # (from, to) pairs of host names
    evidence: tuple[str, ...] = ()  # what was observed, one line each
    confidence: Confidence = "likely"
    remedy: tuple[str, ...] = ()  # what to do, one line to paste each


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome that all ranks receive.

    Args:
        exit_code: of every rank: 0 healthy, 1 fault found and attributed, 2 wrong usage, 3 fault not attributed, 4 degraded (strict),
            5 incomplete, 70 internal error.
        ok: healthy ranks.
    """

    exit_code: int
    findings: tuple[Finding, ...] = ()
    ok: tuple[int, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Examined:
    """All observations, the input of the diagnosis."""

    settings: Settings
    expected: int  # world size
    # ranks that joined, with what the hub knows about them: identity, address, clock offset
    roster: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    results: Sequence[PhaseResult] = ()  # of all ranks and phases
    # connections that the hub rejected: address and reason (garbage, token, duplicate, world size)
    refused: Sequence[Mapping[str, Any]] = ()
    hub: Mapping[str, Any] = field(default_factory=dict)  # whether the hub was reached, and if not, why

    def each(self, phase: Phase, key: str) -> Iterator[tuple[int, Any]]:
        """The entries of a list in one phase's data, each with its rank."""
        for rank, result in sorted(self.of(phase).items()):
            for entry in result.data.get(key, ()):
                yield rank, entry

    def of(self, phase: Phase) -> dict[int, PhaseResult]:
        """One phase's results by rank."""
        return {result.rank: result for result in self.results if result.phase == phase}
