"""NCCL's log lines as it writes them, reconstructed: no hardware that shows these faults was at hand."""

from __future__ import annotations

from collections.abc import Sequence


def rank_lines(
    rank: int,
    nranks: int,
    *,
    host: str = "node1",
    pid: int | None = None,
    dev: int = 0,
    version: str = "2.27.5",
    interface: str = "eth0",
    address: str = "10.0.0.1",
    network: str = "IB",
    ib: str = "[0]mlx5_0:1/IB",
    environment: Sequence[tuple[str, str]] = (),
    began: bool = True,
    complete: bool = True,
    comm: str = "0x8ec0ac01dfe1a0b2",
) -> list[str]:
    """What one rank says from its start to a communicator that is complete."""
    pid = 4000 + rank if pid is None else pid
    who = f"{host}:{pid}:{pid} [{dev}] NCCL INFO"
    lines = [f"{who} NCCL_{name} set by environment to {value}" for name, value in environment]
    lines += [
        f"{who} Bootstrap : Using {interface}:{address}<0>",
        f"{who} cudaDriverVersion 12080",
        f"{who} NCCL version {version}+cuda12.8",
    ]
    lines += [f"{who} NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin."]
    lines += [f"{who} NET/IB : Using {ib} [RO]; OOB {interface}:{address}<0>" if ib else f"{who} NET/IB : No device found."]
    if network == "Socket":
        lines += [f"{who} NET/Socket : Using [0]{interface}:{address}<0>"]
    lines += [f"{who} Using network {network}"]
    ids = f"comm 0x55ee0b8b00{rank:02x} rank {rank} nranks {nranks} cudaDev {dev} nvmlDev {dev} busId {1 + rank:x}000 commId {comm}"
    if began:
        lines += [f"{who} ncclCommInitRankConfig {ids} - Init START"]
    if complete:
        lines += [f"{who} Setting affinity for GPU {dev} to ff", f"{who} ncclCommInitRankConfig {ids} - Init COMPLETE"]
    return lines


def warn(said: str, *, rank: int = 0, host: str = "node1", where: str = "misc/socket.cc:483", stamped: bool = False, dev: int = 0) -> str:
    """A warning, in the older form or in the newer one with a time."""
    stamp = "[2026-06-06 09:52:01] " if stamped else ""
    return f"{stamp}{host}:{4000 + rank}:{4100 + rank} [{dev}] {where} NCCL WARN {said}"


def watchdog(rank: int, seq: int, op: str, numel: int, *, enqueued: int | None = None, completed: int | None = None) -> list[str]:
    """What ProcessGroupNCCL's watchdog says of one rank's timeout."""
    enqueued, completed = seq + 2 if enqueued is None else enqueued, seq - 1 if completed is None else completed
    head = f"[rank{rank}]:[E606 02:07:08.40827125{rank % 10} ProcessGroupNCCL.cpp"
    return [
        f"{head}:632] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, "
        f"NumelIn={numel}, NumelOut={numel},"
        f" Timeout(ms)=600000) ran for 600060 milliseconds before timing out.",
        f"{head}:2268] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: {seq} PG "
        f"status: last enqueued work: {enqueued},"
        f" last completed work: {completed}",
    ]
