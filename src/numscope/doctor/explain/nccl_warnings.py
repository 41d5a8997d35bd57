"""Rules for NCCL's warnings: what each message means, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numscope.doctor.explain.nccl_log import NcclLog, Warned
from numscope.doctor.findings import finding, named, pasted
from numscope.doctor.records import Finding

SHOWN = 6

Explain = Callable[["Found", NcclLog, list[Warned], "re.Match[str]"], Finding]


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern of messages, and what makes a finding of them."""

    id: str
    pattern: re.Pattern[str]
    explain: Explain

    def finding(self, log: NcclLog, lines: list[Warned]) -> Finding:
        """What the lines that match mean."""
        match = self.pattern.search(lines[0].said)
        assert match is not None
        return self.explain(Found(self.id, log, lines), log, lines, match)


@dataclass(frozen=True, slots=True)
class Found:
    """Makes the finding about the ranks and hosts that logged these lines."""

    id: str
    log: NcclLog
    lines: list[Warned]

    def __call__(self, summary: str, *remedy: str, **more: Any) -> Finding:
        ranks, hosts = self.log.speaking(self.lines)
        about = {"ranks": ranks, "hosts": hosts, "evidence": [line.line.quoted for line in self.lines[:SHOWN]]}
        return finding(self.id, summary, *remedy, **{**about, **more})


def _plain(id: str, pattern: str, sentence: str, *remedy: str, **more: Any) -> Rule:
    """A rule with a fixed sentence and remedy, in which the pattern's groups are filled in."""

    def explain(found: Found, log: NcclLog, lines: list[Warned], match: re.Match[str]) -> Finding:
        ranks, hosts = log.speaking(lines)
        who = f" ({named(ranks)})" if ranks else f" ({', '.join(sorted(hosts)[:4])})" if hosts else ""
        groups = {key: value or "?" for key, value in match.groupdict().items()}
        summary = f"{sentence.format(**groups)}{who}."
        return found(summary, *(line.format(**groups) for line in remedy), **more)

    return Rule(id, re.compile(pattern), explain)


def _version(found: Found, log: NcclLog, lines: list[Warned], match: re.Match[str]) -> Finding:
    versions: dict[str, set[int]] = {}
    for line in lines:
        for m in re.finditer(r"rank (\d{1,7}) version (\d{1,9})", line.said):
            versions.setdefault(_spelled(int(m[2])), set()).add(int(m[1]))
    fewest = min((len(ranks) for ranks in versions.values()), default=0)
    odd = {rank for ranks in versions.values() if len(ranks) == fewest for rank in ranks}
    differ = "; ".join(f"{version} on {named(ranks)}" for version, ranks in sorted(versions.items()))
    summary = f"NCCL refused to start because versions differ: {differ}."
    return found(summary, *VERSION_REMEDY, ranks=odd, confidence="certain")


VERSION_REMEDY = (
    "python -c 'import torch; print(torch.__version__, torch.cuda.nccl.version())'  # must be the same on all hosts",
    "# another libnccl may take precedence there: check LD_LIBRARY_PATH and LD_PRELOAD",
)


def _spelled(number: int) -> str:
    """22705 is 2.27.5, 2708 is 2.7.8."""
    major, minor = (number // 10000, number // 100 % 100) if number >= 10000 else (number // 1000, number // 100 % 10)
    return f"{major}.{minor}.{number % 100}"


def _connect(found: Found, log: NcclLog, lines: list[Warned], match: re.Match[str]) -> Finding:
    links, addresses, reasons = set(), set(), set()
    host_of = log.host_of()
    for line in lines:
        if (m := CONNECT.search(line.said)) is None:
            continue
        reasons.add(m["why"].strip().lower())
        if m["to"]:
            address = m["to"].split("<")[0]
            addresses.add(address)
            if host := log.speakers[line.speaker].host:
                links.add((host, host_of(address)))
    meaning = "packets are dropped or have no route: a firewall, or an interface that does not lead there"
    if any("refused" in why for why in reasons):
        meaning = "nothing listens there: that rank has ended, or announced the address of an interface that others can't reach"
    if any(re.match(r"127\.|::1|169\.254\.|172\.17\.", address) for address in addresses):
        meaning = "that address (loopback, link-local or docker's) does not lead to another host"
    target = f" to {', '.join(sorted(addresses)[:4])}" if addresses else ""
    return found(
        f"NCCL could not connect{target} ({', '.join(sorted(reasons)[:3]) or 'no reason given'}): {meaning}.",
        "export NCCL_SOCKET_IFNAME=eth0  # use the interface that all hosts share: ip -br addr",
        "# NCCL listens on ephemeral ports: open all TCP ports between the hosts of the job",
        links=links,
    )


CONNECT = re.compile(
    r"(?i:call to connect|connect)(?: to (?P<to>[\w.:\[\]%\-]+<\d+>))? (?:failed|returned)[ :\d(]*(?P<why>[A-Za-z][A-Za-z ]{2,60})"
)


def _closed(found: Found, log: NcclLog, lines: list[Warned], match: re.Match[str]) -> Finding:
    ranks, _ = log.speaking(lines)
    named_in = ((line, re.search(r"(?:remote peer|recv from|send to) ([\w.:\-]+)<\d+>", line.said)) for line in lines)
    pairs = [(log.speakers[line.speaker].host, m[1]) for line, m in named_in if m is not None]
    peers, host_of = {peer for _, peer in pairs}, log.host_of()
    return found(
        f"The connection to {', '.join(sorted(peers)[:4]) or 'another rank'} was closed by the other side: look for the cause there "
        f"({named(ranks) if ranks else 'this rank'} only noticed).",
        "# check the rank that ended first: its log, its exit code, its host's kernel log (dmesg -T)",
        links={(host, host_of(peer)) for host, peer in pairs if host},
    )


def _interface(found: Found, log: NcclLog, lines: list[Warned], match: re.Match[str]) -> Finding:
    name = "NCCL_SOCKET_IFNAME"
    _, hosts = log.speaking(lines)
    speakers = [log.speakers[key] for key in dict.fromkeys(line.speaker for line in lines)]
    asked = sorted({speaker.environment[name] for speaker in speakers if name in speaker.environment})
    others = sorted({s.interface for s in log.speakers.values()} - {"", "lo"})
    set_by = [speaker.lines[name].quoted for speaker in speakers if name in speaker.lines]
    where = f" on {', '.join(sorted(hosts)[:4])}" if hosts else ""
    return found(
        f"NCCL found no network interface{f' that matches {name}=' + ', '.join(asked) if asked else ''}{where}.",
        "ip -br addr  # the names of the interfaces, on that host",
        f"export {name}={pasted(others[0]) if others else '^lo,docker,virbr'}" + ("  # as the other ranks do" if others else ""),
        evidence=[*set_by[:2], *(line.line.quoted for line in lines[:SHOWN])],
    )


def _duplicate(found: Found, log: NcclLog, lines: list[Warned], match: re.Match[str]) -> Finding:
    pairs = [re.search(r"rank (\d{1,7}) and rank (\d{1,7})", line.said) for line in lines]
    ranks = {int(number) for m in pairs if m is not None for number in m.groups()}
    return found(
        f"Several ranks use the same GPU: {named(ranks)}.",
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))  # before init_process_group",
        "# and start no more ranks per host than GPUs",
        ranks=ranks,
    )


_IB_HINT = (
    "ibstat; ibv_devinfo  # ports must be Active; for RoCE: show_gids, then NCCL_IB_GID_INDEX=3",
    "ib_write_bw -d mlx5_0 HOST  # tests the same two hosts without NCCL",
)
_DEBUG_HINT = "NCCL_DEBUG=INFO  # for one run: then the log names the failing call"

# The first rule whose pattern matches a message takes it.
RULES: tuple[Rule, ...] = (
    Rule("version-mismatch", re.compile(r"Mismatched NCCL version detected"), _version),
    Rule(
        "interface-missing",
        re.compile(
            r"no (?:NCCL_SOCKET_IFNAME |socket )?interface found|NET/Socket ?: no interface found|with family \d+ is neither AF_INET"
        ),
        _interface,
    ),
    Rule("nccl-duplicate-gpu", re.compile(r"Duplicate GPU detected"), _duplicate),
    _plain(
        "shm-too-small",
        r"failed to extend /dev/shm|posix_fallocate failed|creating shared memory segment .{0,400}(?:No space left|\(28\))"
        r"|/dev/shm.{0,400}No space left",
        "/dev/shm is full: NCCL could not create its shared memory",
        "df -h /dev/shm",
        "docker run --shm-size=16g …  # or --ipc=host; in Kubernetes an emptyDir with medium: Memory at /dev/shm",
        "rm -f /dev/shm/nccl-*  # removes what dead jobs left; only while no job runs",
        severity="fault",
    ),
    _plain(
        "memlock-too-small",
        r"(?:ibv_(?:reg_\w{0,20}mr|create_\w|alloc_\w)|[Uu]nable to register memory|fi_mr_reg).{0,400}Cannot allocate memory",
        "Memory could not be locked for InfiniBand or RoCE: the limit on locked memory is too small",
        "ulimit -l  # must print unlimited, inside the job too",
        "printf '* soft memlock unlimited\\n* hard memlock unlimited\\n' | sudo tee /etc/security/limits.d/memlock.conf",
        "docker run --ulimit memlock=-1 …  # SLURM: PropagateResourceLimitsExcept=MEMLOCK, LimitMEMLOCK=infinity for slurmd",
        severity="fault",
    ),
    _plain(
        "ib-timeout",
        r"NET/IB\w* ?: ?Got completion.{0,400}(?:(?:error|status=?) ?12\b)",
        "A transfer over InfiniBand or RoCE was never acknowledged: the two ports do not reach each other, or lose packets",
        *_IB_HINT,
    ),
    _plain(
        "ib-gid",
        r"ibv_modify_qp failed with (?:error )?(?:\d+ )?(?:Invalid argument|Network is unreachable|No data available)|[Nn]o valid GID",
        "The RoCE address (GID) that NCCL chose does not lead to the other host",
        "show_gids  # find the index of a RoCE v2 line with this network's address, the same on all hosts",
        "export NCCL_IB_GID_INDEX=3",
    ),
    _plain(
        "ib-transfer-failed",
        r"NET/IB\w* ?: ?Got (?:completion.{0,400}(?:error|status=?) ?(?P<status>\d+)|async event ?: ?port error)|ibv_modify_qp failed",
        "A transfer over InfiniBand or RoCE failed",
        *_IB_HINT,
    ),
    _plain(
        "collective-mismatch",
        r"collective mismatch error|Mismatched collective detected|Message truncated ?: received \d+ bytes instead of \d+",
        "NCCL received a different size than expected: ranks called different collectives, or used different sizes",
        "TORCH_DISTRIBUTED_DEBUG=DETAIL  # for one run: reports which rank called what",
    ),
    Rule("nccl-connect-failed", CONNECT, _connect),
    _plain(
        "gpu-fabric-manager",
        r"Cuda failure (?:802 )?'system not yet initialized'|error 802\b.{0,400}system not yet initialized",
        "The GPUs' NVLink switches are not set up: the fabric manager is not running, or its version differs from the driver's",
        "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A2 Fabric  # on that host",
        "sudo systemctl restart nvidia-fabricmanager",
    ),
    _plain(
        "gpu-out-of-memory",
        r"Cuda failure.{0,400}out of memory|Failed to CUDA (?:calloc|malloc)",
        "NCCL could not allocate GPU memory",
        "nvidia-smi  # shows what else uses this GPU",
        "NCCL_BUFFSIZE=1048576  # smaller buffers; or a smaller batch",
    ),
    _plain(
        "nccl-cuda-error",
        r"Cuda failure (?:\d+ )?'(?P<what>[^']{1,80})'|Cuda failure",
        "CUDA failed inside NCCL: {what}",
        "nvidia-smi -q -d ECC,PAGE_RETIREMENT; dmesg -T | grep -i xid",
        confidence="certain",
    ),
    Rule(
        "nccl-peer-closed",
        re.compile(
            r"[Cc]onnection closed by (?:remote )?peer|Connection reset by peer|Broken pipe|ncclRemoteError"
            r"|remote process exited or there was a network error"
        ),
        _closed,
    ),
    _plain(
        "nccl-cuda-error",
        r"unhandled cuda error|ncclUnhandledCudaError",
        "CUDA failed inside NCCL, and the log contains no details",
        _DEBUG_HINT,
    ),
    _plain(
        "nccl-system-error",
        r"unhandled system error|ncclSystemError",
        "A system call failed inside NCCL, and the log does not name it",
        _DEBUG_HINT,
    ),
)

# Messages that another line explains better, and warnings that occur in healthy runs.
ECHO = re.compile(
    r"Failed to execute operation|Error encountered progressing operation|Socket recv failed while polling"
    r"|Error while (?:creating|attaching)"
    r"|Rem Allocator|ncclInternalError|ncclInvalidUsage|NCCL error in|proxyConnect|Could not receive type from localRank"
    r"|Accept failed|wrong type \d+ != \d+"
    r"|Failed to open libibverbs|libnccl-net|Plugin|cuMem|NVML|nvmlDevice|gdrcopy|GDRCOPY|NCCL_ALGO|NUMA|ncclCommAbort|[Pp]roxy [Ss]ervice"
)
