"""Records that ranks, hub and diagnosis exchange: plain data that becomes JSON on the wire and in the report."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, TypeAdapter

Launcher = Literal["torchrun", "slurm", "mpi", "local", "nnodes"]
Status = Literal["ok", "failed", "skipped", "timeout", "silent"]
Severity = Literal["fault", "degraded", "note"]
Confidence = Literal["certain", "likely", "possible"]
# Status of a link.
Word = Literal[
    "ok",
    "refused",  # nothing listens there, or a firewall rejects the connection
    "dropped",  # no answer at all
    "unreachable",  # there is no route, or no host has the address
    "reset",  # the connection was reset
    "silent",  # the kernel of the other side accepted the connection, but its process sends nothing
    "stranger",  # something else, or another rank, listens there: a wrong address
    "denied",  # the other side has another token
    "stalled",  # small messages pass, 64 KiB do not: the MTU on the way is smaller than both ends assume
    "skipped",  # no time was left
    "failed",
]

# What a record and a message may have in such a field.
Text = Annotated[str, Field(max_length=64 << 10)]
Int = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
Number = Annotated[float, Field(ge=-(2.0**63), le=2.0**63, allow_inf_nan=False)]
Rank = Annotated[int, Field(ge=0, lt=1 << 24)]
Count = Annotated[int, Field(ge=1, lt=1 << 24)]
Port = Annotated[int, Field(ge=0, lt=1 << 16)]
Name = Annotated[str, Field(pattern=r"^([^\x00-\x1f\x7f-][^\x00-\x1f\x7f]{0,254})?$")]  # a shell takes what begins with - for an option
Address = Annotated[str, Field(pattern=r"^[0-9A-Za-z.:%_-]{0,100}$")]

_T = TypeVar("_T")
_MAKING = threading.RLock()  # pydantic can't make the schemas of one type in two threads at once


class ExamPhase(IntEnum):
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
    def needs(self) -> tuple[ExamPhase, ...]:
        """Phases that must have succeeded on a rank before it runs this one."""
        if self in (ExamPhase.COMPARE, ExamPhase.LINKS, ExamPhase.BACKEND):
            return (ExamPhase.RENDEZVOUS,)
        return (ExamPhase.BACKEND,) if self in (ExamPhase.PAIRS, ExamPhase.COLLECTIVES) else ()

    @property
    def together(self) -> bool:
        """Whether torch connects the ranks."""
        return self in (ExamPhase.BACKEND, ExamPhase.PAIRS, ExamPhase.COLLECTIVES)

    @property
    def in_child(self) -> bool:
        """Whether the phase needs torch, and so runs in the rank's child process."""
        return self >= ExamPhase.BACKEND


def to_json(record: Any) -> dict[str, Any]:
    return asdict(record)


@functools.cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Checks values of a type. *Cost:* some milliseconds for a type's first one."""
    with _MAKING:
        return TypeAdapter(kind)


def from_json(kind: type[_T], values: Mapping[str, Any]) -> _T:
    """A record from JSON values. Unknown keys are ignored. Raises: ValueError for values that do not make such a record."""
    return adapter(kind).validate_python(values)  # type: ignore[no-any-return, arg-type]


@dataclass(frozen=True, slots=True)
class Identity:
    """A rank's identity, according to its launcher."""

    rank: Rank
    world_size: Count
    local_rank: Rank = 0
    local_world_size: Count = 1
    node: Rank = 0  # number of its host, from the launcher; numbered by host name where the launcher gives no number
    num_nodes: Count = 1
    hostname: Name = ""
    launcher: Launcher = "local"  # the one that set these environment variables


@dataclass(frozen=True, slots=True)
class Settings:
    """The user's options."""

    quick: bool = False  # use the smallest sizes and skip the compute phase
    phases: tuple[ExamPhase, ...] = tuple(ExamPhase)  # those to run; the phases they depend on run too
    deadline_s: float = 180.0  # for the whole examination; every rank has ended by then
    timeout_scale: float = 1.0  # factor on every time limit
    ifname: str = ""  # network interface whose address is given to other ranks; "" uses the route to the hub
    backend: str = ""  # gloo, nccl or both, comma-separated; "" decides by the hardware
    sizes: tuple[int, ...] = (8, 1 << 20, 64 << 20)  # payload sizes of the pairs and collectives phases, in bytes
    endpoint: str = ""  # host:port of the hub; "" derives it from the launcher
    token: str = ""  # the job's secret, which every connection must prove to hold; "" derives it from the launcher
    node_rank: int = -1  # this node's number among those of ``--nnodes``; -1: the hub assigns it
    file: str = ""  # path given with ``--settings``
    strict: bool = False
    redact: bool = False


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """The result of one phase on one rank."""

    phase: ExamPhase
    rank: Rank
    status: Status
    started: Number = 0.0  # seconds on the hub's clock since the hub started
    seconds: Number = 0.0
    doing: Text = ""  # the step it was about to take when it failed or was lost
    error: Text = ""
    data: Mapping[str, Any] = field(default_factory=dict)  # as described in meet/messages.py


@dataclass(slots=True)
class Cell:
    """One direction of a link, as its sending side measured it. Numbers are 0 where they were not measured."""

    from_node: Rank
    to_node: Rank
    from_rank: Rank
    to_rank: Rank
    from_host: Text
    to_host: Text
    address: Text
    port: Port
    round: Int = 0
    status: Word = "ok"
    error: Text = ""  # a sentence; "" if ok
    # Status of the hub's port number at that address, if the link is dropped, refused or unreachable. With ok or refused, packets arrive
    # there, so a firewall treats the two port numbers differently.
    known: Word | Literal[""] = ""
    ephemeral: Word | Literal[""] = ""  # status of a port that the other side opened on request, as gloo and NCCL do
    connect_s: Number = 0.0
    rtt_s: Number = 0.0  # median round trip
    rtt_min_s: Number = 0.0
    payload_s: Number = 0.0  # 64 KiB and an acknowledgment
    bytes: Int = 0  # of all bursts
    bytes_per_s: Number = 0.0  # of the fastest burst, including its acknowledgment; 0 if either node was too busy
    # From the kernel, on Linux. A full queue loses packets too, so a slow link is reported as slow, not as lossy.
    segments: Int = 0
    retransmitted: Int = 0  # without needless ones
    loss: Number = 0.0  # retransmitted / segments
    mss: Int = 0
    pmtu: Int = 0
    burst_losses: tuple[tuple[Int, Int], ...] = ()  # segments and retransmitted (negative if earlier ones prove needless) of each burst

    @property
    def works(self) -> bool:
        return self.status == "ok" and self.ephemeral in ("ok", "")


def cells_of(result: PhaseResult) -> list[Cell]:
    """The links that a rank examined."""
    return [from_json(Cell, cell) for cell in result.data.get("cells", ())]


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """Something that is wrong or worth knowing."""

    id: Text  # stable, from a catalog
    severity: Severity
    summary: Text  # one sentence
    ranks: tuple[Rank, ...] = ()  # those it concerns
    hosts: tuple[Text, ...] = ()  # those it concerns
    links: tuple[tuple[Text, Text], ...] = ()  # (from, to) pairs of host names
    evidence: tuple[Text, ...] = ()  # observations, one line each
    confidence: Confidence = "likely"
    remedy: tuple[Text, ...] = ()  # lines to paste


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome that all ranks receive."""

    # Of every rank: 0 healthy, 1 fault found and attributed, 2 wrong usage, 3 fault not attributed, 4 degraded (strict), 5 incomplete,
    # 70 internal error.
    exit_code: Annotated[int, Field(ge=0, lt=256)]
    findings: tuple[DoctorFinding, ...] = ()
    ok: tuple[Rank, ...] = ()  # healthy ranks
    seconds: Number = 0.0


@dataclass(frozen=True, slots=True)
class Examined:
    """All observations, the input of the diagnosis."""

    settings: Settings
    expected: int  # world size
    # ranks that joined, with what the hub knows about them: identity, address, clock offset
    roster: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    results: Sequence[PhaseResult] = ()  # all ranks and phases
    # connections that the hub rejected: address and reason (garbage, token, duplicate, world size)
    refused: Sequence[Mapping[str, Any]] = ()
    hub: Mapping[str, Any] = field(default_factory=dict)  # whether the hub was reached, and if not, why

    def each(self, phase: ExamPhase, key: str) -> Iterator[tuple[int, Any]]:
        """The entries of a list in one phase's data, each with its rank."""
        for rank, result in sorted(self.of(phase).items()):
            for entry in result.data.get(key, ()):
                yield rank, entry

    def of(self, phase: ExamPhase) -> dict[int, PhaseResult]:
        """One phase's results by rank."""
        return {result.rank: result for result in self.results if result.phase == phase}
