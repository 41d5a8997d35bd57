"""The types of the doctor's messages. ``wire.py`` checks each message before anything reads it, strictly: no value is converted.

Text has at most 64 KiB, whole numbers 64 bits, other numbers are finite. Unknown keys are dropped, so that versions may differ.
Names carry the units: seconds, bytes.
"""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar, Union

from pydantic import Field
from typing_extensions import NotRequired, TypedDict

from numscope.doctor.records import Address, Cell, Count, ExamPhase, Identity, Int, Name, Number, Port, Rank, Status, Text, Verdict

Key = Annotated[str, Field(pattern=r"^\d{1,8}$")]  # a rank as a key
Spans = list[tuple[Rank, Rank]]  # ranks, as the first and last of each stretch of them

# ---- The measurements of each phase until it ended: the ``data`` of a result. ------------------------------------------------------


class Measured(TypedDict, total=False):
    """Data that any phase may have."""

    internal: Text  # the traceback of a bug of the doctor


# How a name resolves; loopback: there are addresses, and all are loopback.
Resolved = TypedDict("Resolved", {"name": Text, "addresses": list[Text], "loopback": bool, "error": Text, "seconds": Number})
Shm = TypedDict("Shm", {"size_bytes": Int, "free_bytes": Int})
Limits = TypedDict("Limits", {"memlock_bytes": Int, "nofile": Int})
Cpus = TypedDict("Cpus", {"count": Int, "usable": Int, "quota": NotRequired[Number]})
Gpu = TypedDict("Gpu", {"index": Int, "name": Text, "uuid": Text, "memory_bytes": Int})
Interface = TypedDict("Interface", {"addresses": list[Text], "mtu": NotRequired[Int]})
# status: ok, none, failed, timeout
Gpus = TypedDict("Gpus", {"status": Text, "error": Text, "driver": NotRequired[Text], "devices": list[Gpu]})


class Facts(Measured, total=False):
    """Phase 0."""

    hostname: Text
    system: Text
    kernel: Text
    machine: Text
    name: Resolved  # how the host's own name resolves
    interfaces: dict[Text, Interface]
    shm: Shm  # /dev/shm
    limits: Limits  # -1: unlimited
    cpus: Cpus  # usable: affinity; quota: of the cgroup, in CPUs
    versions: dict[Text, Text]  # python, numscope, torch, nccl, …, as installed
    environment: dict[Text, Text]  # variables that matter for collectives, up to 200 characters each
    gpus: Gpus
    infiniband: dict[Text, dict[Text, Text]]  # by device: port, state, rate, link_layer
    errors: dict[Text, Text]  # by fact: why it is absent


class Rendezvous(Measured, total=False):
    """Phase 1."""

    ifname: Text  # as given with --ifname
    ifname_address: Text


# The interface at which others reach a rank; the name is "" if no interface of its host has that address (it is translated on the way).
Reached = TypedDict("Reached", {"name": Text, "mtu": Int, "address": Text, "error": NotRequired[Text]})


class Compare(Measured, total=False):
    """Phase 2."""

    interface: Reached


class Links(Measured, total=False):
    """Phase 3."""

    node: Int  # this node's number
    representative: Int  # the rank that examines this node's links
    # By rank the datagrams received from it. It sends three before it connects: if they arrive although no connection works, this
    # direction of the link works.
    heard: dict[Key, Int]
    loopback: Cell | None  # to this node's representative, from ranks that are not it
    cells: list[Cell]  # the outgoing links of this node


class LostChild(TypedDict):
    """A rank's torch process that died or was killed."""

    hung: bool  # killed by its agent at the deadline
    how: Text  # it ended
    doing: Text  # its current step
    doing_s: Number  # time in that step
    stderr: list[Text]  # its last lines


class GroupMeasured(Measured, total=False):
    """Data of the phases with a process group."""

    members: Spans  # ranks of the process group
    missing: Spans  # ranks that did not join the phase, or did not report at the end of a round: the child hangs, died or is cut off
    stopped: Text  # why not all was run
    child: LostChild


class GroupStart(TypedDict, total=False):
    """The start of a backend's process group."""

    seconds: Number
    error: Text  # torch's own text
    skipped: Text  # why it was not started
    not_ready: list[Rank]  # ranks whose group did not start, known only where ours did not start either


class Store(TypedDict):
    """Torch's store, as this rank reached it."""

    rank: Rank  # its host
    address: Text
    port: Port
    connect_s: NotRequired[Number | None]
    error: Text  # torch's own text, "" if it was reached


class Backend(GroupMeasured, total=False):
    """Phase 4."""

    torch: Text  # version
    import_s: Number  # time to import torch
    device: Text  # cpu, or cuda:<local rank> if NCCL was started; the same in later phases
    num_gpus: Int  # visible to this rank's child
    lacks: Text  # what NCCL needs and this rank has not: "gpu" (none of its own), "nccl" (its torch has none), "" nothing
    store: Store
    groups: dict[Text, GroupStart]  # gloo, nccl


class Corrupt(TypedDict):
    first_offset: Int
    num_bytes: Int
    num_bits: Int  # numbers of those that differ


class Received(TypedDict):
    """The payloads that a rank received from its peer; what the peer received is in the peer's own data."""

    bytes: Int
    seconds: NotRequired[Number | None]  # the smallest of three up to 1 MiB
    bytes_per_s: NotRequired[Number | None]
    skipped: NotRequired[Text]  # why
    corrupt: NotRequired[Corrupt | None]


class PairTransfer(TypedDict):
    """One pair of ranks over one backend."""

    peer: Rank
    backend: Text  # gloo, nccl
    round: Int
    status: Text  # ok, corrupt, timeout, error, skipped
    doing: NotRequired[Text]  # the step in which it hung or failed, such as "recv from 3, 64 MiB"
    error: NotRequired[Text]  # torch's own text, or why skipped
    round_trip_s: NotRequired[Number | None]  # the smallest of several, 8 bytes each way
    received: NotRequired[list[Received]]


class Pairs(GroupMeasured, total=False):
    """Phase 5."""

    sizes: list[Int]
    num_rounds: Int
    rounds_done: Int
    pairs: list[PairTransfer]


# index: of the first
Wrong = TypedDict("Wrong", {"index": Int, "got": Number | Text, "expected": Number | Text, "num_wrong": Int, "num_elements": Int})


class Collective(TypedDict):
    """One collective in one group with one size."""

    name: Text  # all_reduce, broadcast, all_gather, reduce_scatter, all_to_all, barrier, float_sum
    backend: Text  # gloo, nccl
    group: Text  # all, half
    ranks: Spans  # the group's
    bytes: Int  # a rank's whole payload, as asked for (at least one float32 per rank is sent)
    status: Text  # ok, wrong, unstable, timeout, error, skipped
    repeats: NotRequired[Int]
    seconds_min: NotRequired[Number | None]
    seconds_max: NotRequired[Number | None]
    bytes_per_s_min: NotRequired[Number | None]
    bytes_per_s_max: NotRequired[Number | None]
    wrong: NotRequired[Wrong | None]
    digests: NotRequired[list[Text]]  # fingerprints of the results' bits; float_sum must have one, the same on all ranks of a group
    error: NotRequired[Text]  # torch's own text, or why skipped
    missing: NotRequired[list[Rank]]  # ranks that did not enter it, if it failed


class Collectives(GroupMeasured, total=False):
    """Phase 6."""

    collectives: list[Collective]


class Timed(TypedDict):
    """Seconds of repeated runs; rates are those of the fastest."""

    repeats: Int
    min_s: Number
    median_s: Number
    max_s: Number


class Gemm(Timed):
    """A product of square float32 matrices with n rows."""

    n: Int
    flops_per_s: Number


class Copied(Timed):
    """A copy of memory; a read and its write count once."""

    bytes: Int
    bytes_per_s: Number


class Compute(Measured, total=False):
    """Phase 7."""

    child: LostChild
    device: Text
    threads: Int  # used by torch
    load: Number  # the host's load average over the last minute at the start, or -1
    gemm: Gemm
    copy: Copied


# ---- Messages ----------------------------------------------------------------------------------------------------------------------

_Number = TypeVar("_Number", bound=int)
_Data = TypeVar("_Data", bound=Measured)


class Of(TypedDict, Generic[_Number, _Data]):
    """The result of one phase on one rank, see ``PhaseResult``."""

    phase: _Number
    rank: Rank
    status: Status
    started: NotRequired[Number]
    seconds: NotRequired[Number]
    doing: NotRequired[Text]
    error: NotRequired[Text]
    data: _Data


Result = Annotated[
    Of[Literal[0], Facts]
    | Of[Literal[1], Rendezvous]
    | Of[Literal[2], Compare]
    | Of[Literal[3], Links]
    | Of[Literal[4], Backend]
    | Of[Literal[5], Pairs]
    | Of[Literal[6], Collectives]
    | Of[Literal[7], Compute],
    Field(discriminator="phase"),
]


Listen = TypedDict("Listen", {"address": Address, "port": Port, "store_port": Port})
_NodeRank = Annotated[int, Field(ge=-1, lt=1 << 24)]


class Introduced(TypedDict):
    """A rank's introduction."""

    identity: Identity
    pid: Int
    listen: Listen


class Joined(Introduced):
    """A rank in the roster."""

    address: Address


class Join(Introduced):
    """See hub.py."""

    kind: Literal["join"]
    t: Number  # the rank's clock, seconds since 1970


# To the hub.
Beat = TypedDict("Beat", {"kind": Literal["beat"], "t": Number, "phase": ExamPhase, "doing": Text, "for_s": Number})
Node = TypedDict("Node", {"kind": Literal["node"], "hostname": Name, "nnodes": Count, "nproc": Count, "node_rank": _NodeRank})
Outcome = TypedDict("Outcome", {"kind": Literal["result"], "result": Result})
Leave = TypedDict("Leave", {"kind": Literal["leave"], "signal": Name})
Bye = TypedDict("Bye", {"kind": Literal["bye"]})
# From the hub.
Alive = TypedDict("Alive", {"kind": Literal["alive"]})
Welcome = TypedDict("Welcome", {"kind": Literal["welcome"]})
Refused = TypedDict("Refused", {"kind": Literal["refused"], "why": Text, "reason": Text, "stay": bool})
Place = TypedDict("Place", {"kind": Literal["place"], "node": Rank})


class Begin(TypedDict):
    """A phase begins."""

    kind: Literal["phase"]
    phase: ExamPhase
    alive: Spans
    budget_s: Number
    roster: dict[Key, Joined]  # the ranks that this one asks, without those that it knows already
    meetings: list[tuple[Int, Rank]]  # see phases/rounds.py


Judged = TypedDict("Judged", {"kind": Literal["judged"], "for_s": Number})  # the verdict is made, for so long at most: no more heartbeats
Decided = TypedDict("Decided", {"kind": Literal["verdict"], "verdict": Verdict, "ok": bool})  # ok: the receiving rank is healthy
End = TypedDict("End", {"kind": Literal["end"]})
# To and from the port of a rank.
Here = TypedDict("Here", {"kind": Literal["rank"], "rank": Rank})
Bursts = TypedDict("Bursts", {"kind": Literal["bursts"], "alone": bool})
Ephemeral = TypedDict("Ephemeral", {"kind": Literal["ephemeral"]})
Opened = TypedDict("Opened", {"kind": Literal["port"], "port": Port})
Go = TypedDict("Go", {"kind": Literal["go"], "go": bool})
_by_kind = Field(discriminator="kind")
ToHub = Annotated[Union[Join, Beat, Node, Outcome, Leave, Bye], _by_kind]  # noqa: UP007
ToRank = Annotated[Union[Begin, Judged, Decided, End, Alive], _by_kind]  # noqa: UP007
ToListener = Annotated[Union[Bursts, Ephemeral], _by_kind]  # noqa: UP007
