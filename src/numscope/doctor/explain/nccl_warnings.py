"""Rules for NCCL's warnings: what each message means, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from numscope.doctor.explain.catalog import finding
from numscope.doctor.explain.nccl_log import NcclLog, Warned
from numscope.doctor.explain.reading import Line
from numscope.doctor.findings.wording import named
from numscope.doctor.records import Confidence, Finding

SHOWN = 6

Explain = Callable[[NcclLog, list[Warned], "re.Match[str]"], Finding]


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern of messages, and what makes a finding of them."""

    id: str
    pattern: re.Pattern[str]
    explain: Explain


def _plain(id: str, sentence: str, *remedy: str, confidence: Confidence = "likely") -> Explain:
    def explain(log: NcclLog, lines: list[Warned], match: re.Match[str]) -> Finding:
        ranks, hosts = log.speaking(lines)
        who = f" ({named(ranks)})" if ranks else f" ({', '.join(sorted(hosts)[:4])})" if hosts else ""
        groups = {key: value or "?" for key, value in match.groupdict().items()}
        return finding(
            id,
            f"{sentence.format(**groups)}{who}.",
            ranks=ranks,
            hosts=hosts,
            evidence=[line.evidence() for line in lines[:SHOWN]],
            confidence=confidence,
            remedy=[line.format(**groups) for line in remedy],
        )

    return explain


def _version(log: NcclLog, lines: list[Warned], match: re.Match[str]) -> Finding:
    versions: dict[str, set[int]] = {}
    for line in lines:
        for m in re.finditer(r"rank (\d{1,7}) version (\d{1,9})", line.said):
            versions.setdefault(_spelled(int(m[2])), set()).add(int(m[1]))
    fewest = min((len(ranks) for ranks in versions.values()), default=0)
    odd = set().union(*(ranks for ranks in versions.values() if len(ranks) == fewest)) if versions else set()
    return finding(
        "version-mismatch",
        "NCCL refused to start because versions differ: " + "; ".join(f"{v} on {named(r)}" for v, r in sorted(versions.items())) + ".",
        ranks=odd,
        hosts=log.speaking(lines)[1],
        evidence=[line.evidence() for line in lines[:SHOWN]],
        confidence="certain",
        remedy=VERSION_REMEDY,
    )


VERSION_REMEDY = (
    "python -c 'import torch; print(torch.__version__, torch.cuda.nccl.version())'  # must be the same on all hosts",
    "# another libnccl may take precedence there: check LD_LIBRARY_PATH and LD_PRELOAD",
)


def _spelled(number: int) -> str:
    """22705 is 2.27.5, 2708 is 2.7.8."""
    return (
        f"{number // 10000}.{number // 100 % 100}.{number % 100}"
        if number >= 10000
        else f"{number // 1000}.{number // 100 % 10}.{number % 100}"
    )


def _connect(log: NcclLog, lines: list[Warned], match: re.Match[str]) -> Finding:
    ranks, hosts = log.speaking(lines)
    links, addresses, reasons = set(), set(), set()
    for line in lines:
        if (m := CONNECT.search(line.said)) is None:
            continue
        reasons.add(m["why"].strip().lower())
        if m["to"]:
            address = m["to"].split("<")[0]
            addresses.add(address)
            if host := log.speakers[line.speaker].host:
                links.add((host, log.host_of(address)))
    refused = any("refused" in why for why in reasons)
    meaning = (
        "nothing listens there: that rank has ended, or announced the address of an interface that others can't reach"
        if refused
        else "packets are dropped or have no route: a firewall, or an interface that does not lead there"
    )
    if any(re.match(r"127\.|::1|169\.254\.|172\.17\.", address) for address in addresses):
        meaning = "that address (loopback, link-local or docker's) does not lead to another host"
    target = f" to {', '.join(sorted(addresses)[:4])}" if addresses else ""
    return finding(
        "nccl-connect-failed",
        f"NCCL could not connect{target} ({', '.join(sorted(reasons)[:3]) or 'no reason given'}): {meaning}.",
        ranks=ranks,
        hosts=hosts,
        links=links,
        evidence=[line.evidence() for line in lines[:SHOWN]],
        confidence="likely",
        remedy=(
            "export NCCL_SOCKET_IFNAME=eth0  # use the interface that all hosts share: ip -br addr",
            "# NCCL listens on ephemeral ports: open all TCP ports between the hosts of the job",
        ),
    )


CONNECT = re.compile(
    r"(?i:call to connect|connect)(?: to (?P<to>[\w.:\[\]%\-]+<\d+>))? (?:failed|returned)[ :\d(]*(?P<why>[A-Za-z][A-Za-z ]{2,60})"
)


def _closed(log: NcclLog, lines: list[Warned], match: re.Match[str]) -> Finding:
    ranks, hosts = log.speaking(lines)
    peers = {m[1] for line in lines if (m := re.search(r"(?:remote peer|recv from|send to) ([\w.:\-]+)<\d+>", line.said)) is not None}
    links = {
        (log.speakers[line.speaker].host, log.host_of(peer))
        for line in lines
        for peer in peers
        if log.speakers[line.speaker].host and peer in line.said
    }
    return finding(
        "nccl-peer-closed",
        f"The connection to {', '.join(sorted(peers)[:4]) or 'another rank'} was closed by the other side: look for the cause there "
        f"({named(ranks) if ranks else 'this rank'} only noticed).",
        ranks=ranks,
        hosts=hosts,
        links=links,
        evidence=[line.evidence() for line in lines[:SHOWN]],
        confidence="likely",
        remedy=("# check the rank that ended first: its log, its exit code, its host's kernel log (dmesg -T)",),
    )


def _interface(log: NcclLog, lines: list[Warned], match: re.Match[str]) -> Finding:
    ranks, hosts = log.speaking(lines)
    asked = {
        s.environment["NCCL_SOCKET_IFNAME"]
        for key in {line.speaker for line in lines}
        if "NCCL_SOCKET_IFNAME" in (s := log.speakers[key]).environment
    }
    others = sorted({s.bootstrap[0] for s in log.speakers.values() if s.bootstrap is not None} - {"lo"})
    where = f" on {', '.join(sorted(hosts)[:4])}" if hosts else ""
    wish = f" that matches NCCL_SOCKET_IFNAME={', '.join(sorted(asked))}" if asked else ""
    lines_of_wish: list[Line] = []
    for key in {line.speaker for line in lines}:
        wanted = log.speakers[key].environment_lines.get("NCCL_SOCKET_IFNAME")
        lines_of_wish += [wanted] if wanted is not None else []
    from_wish = [Warned(line, ("", "", ""), "", False).evidence() for line in lines_of_wish[:2]]
    return finding(
        "interface-missing",
        f"NCCL found no network interface{wish}{where}.",
        ranks=ranks,
        hosts=hosts,
        evidence=[*from_wish, *(line.evidence() for line in lines[:SHOWN])],
        confidence="certain",
        remedy=(
            "ip -br addr  # the names of the interfaces, on that host",
            f"export NCCL_SOCKET_IFNAME={others[0] if others else '^lo,docker,virbr'}" + ("  # as the other ranks do" if others else ""),
        ),
    )


def _duplicate(log: NcclLog, lines: list[Warned], match: re.Match[str]) -> Finding:
    pairs = [re.search(r"rank (\d{1,7}) and rank (\d{1,7})", line.said) for line in lines]
    ranks = {int(number) for m in pairs if m is not None for number in m.groups()}
    return finding(
        "nccl-duplicate-gpu",
        f"Several ranks use the same GPU: {named(ranks)}.",
        ranks=ranks,
        hosts=log.speaking(lines)[1],
        evidence=[line.evidence() for line in lines[:SHOWN]],
        confidence="certain",
        remedy=(
            "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))  # before init_process_group",
            "# and start no more ranks per host than GPUs",
        ),
    )


_MISMATCH_HINT = "TORCH_DISTRIBUTED_DEBUG=DETAIL  # for one run: reports which rank called what"
_SHM_HINT = (
    "df -h /dev/shm",
    "docker run --shm-size=16g …  # or --ipc=host; in Kubernetes an emptyDir with medium: Memory at /dev/shm",
    "rm -f /dev/shm/nccl-*  # removes what dead jobs left; only while no job runs",
)
_MEMLOCK_HINT = (
    "ulimit -l  # must print unlimited, inside the job too",
    "printf '* soft memlock unlimited\\n* hard memlock unlimited\\n' | sudo tee /etc/security/limits.d/memlock.conf",
    "docker run --ulimit memlock=-1 …  # SLURM: PropagateResourceLimitsExcept=MEMLOCK, LimitMEMLOCK=infinity for slurmd",
)
_IB_HINT = (
    "ibstat; ibv_devinfo  # ports must be Active; for RoCE: show_gids, then NCCL_IB_GID_INDEX=3",
    "ib_write_bw -d mlx5_0 HOST  # tests the same two hosts without NCCL",
)

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
    Rule(
        "shm-too-small",
        re.compile(
            r"failed to extend /dev/shm|posix_fallocate failed|creating shared memory segment .*(?:No space left|\(28\))"
            r"|/dev/shm.*No space left"
        ),
        _plain("shm-too-small", "/dev/shm is full: NCCL could not create its shared memory", *_SHM_HINT, confidence="certain"),
    ),
    Rule(
        "memlock-too-small",
        re.compile(r"(?:ibv_(?:reg_\w*mr\w*|create_\w+|alloc_\w+)|[Uu]nable to register memory|fi_mr_reg).*Cannot allocate memory"),
        _plain(
            "memlock-too-small",
            "Memory could not be locked for InfiniBand or RoCE: the limit on locked memory is too small",
            *_MEMLOCK_HINT,
        ),
    ),
    Rule(
        "ib-timeout",
        re.compile(r"NET/IB\w* ?: ?Got completion.*(?:(?:error|status=?) ?12\b)"),
        _plain(
            "ib-timeout",
            "A transfer over InfiniBand or RoCE was never acknowledged: the two ports do not reach each other, or lose packets",
            *_IB_HINT,
        ),
    ),
    Rule(
        "ib-gid",
        re.compile(
            r"ibv_modify_qp failed with (?:error )?(?:\d+ )?(?:Invalid argument|Network is unreachable|No data available)|[Nn]o valid GID"
        ),
        _plain(
            "ib-gid",
            "The RoCE address (GID) that NCCL chose does not lead to the other host",
            "show_gids  # find the index of a RoCE v2 line with this network's address, the same on all hosts",
            "export NCCL_IB_GID_INDEX=3",
        ),
    ),
    Rule(
        "ib-transfer-failed",
        re.compile(
            r"NET/IB\w* ?: ?Got (?:completion.*(?:error|status=?) ?(?P<status>\d+)|async event ?: ?port error)|ibv_modify_qp failed"
        ),
        _plain("ib-transfer-failed", "A transfer over InfiniBand or RoCE failed", *_IB_HINT),
    ),
    Rule(
        "collective-mismatch",
        re.compile(r"collective mismatch error|Mismatched collective detected|Message truncated ?: received \d+ bytes instead of \d+"),
        _plain(
            "collective-mismatch",
            "NCCL received a different size than expected: ranks called different collectives, or used different sizes",
            _MISMATCH_HINT,
        ),
    ),
    Rule("nccl-connect-failed", CONNECT, _connect),
    Rule(
        "gpu-fabric-manager",
        re.compile(r"Cuda failure (?:802 )?'system not yet initialized'|error 802\b.*system not yet initialized"),
        _plain(
            "gpu-fabric-manager",
            "The GPUs' NVLink switches are not set up: the fabric manager is not running, or its version differs from the driver's",
            "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A2 Fabric  # on that host",
            "sudo systemctl restart nvidia-fabricmanager",
        ),
    ),
    Rule(
        "gpu-out-of-memory",
        re.compile(r"Cuda failure.*out of memory|Failed to CUDA (?:calloc|malloc)"),
        _plain(
            "gpu-out-of-memory",
            "NCCL could not allocate GPU memory",
            "nvidia-smi  # shows what else uses this GPU",
            "NCCL_BUFFSIZE=1048576  # smaller buffers; or a smaller batch",
        ),
    ),
    Rule(
        "nccl-cuda-error",
        re.compile(r"Cuda failure (?:\d+ )?'(?P<what>[^']{1,80})'|Cuda failure"),
        _plain(
            "nccl-cuda-error",
            "CUDA failed inside NCCL: {what}",
            "nvidia-smi -q -d ECC,PAGE_RETIREMENT; dmesg -T | grep -i xid",
            confidence="certain",
        ),
    ),
    Rule(
        "nccl-peer-closed",
        re.compile(
            r"[Cc]onnection closed by (?:remote )?peer|Connection reset by peer|Broken pipe|ncclRemoteError"
            r"|remote process exited or there was a network error"
        ),
        _closed,
    ),
    Rule(
        "nccl-cuda-error",
        re.compile(r"unhandled cuda error|ncclUnhandledCudaError"),
        _plain(
            "nccl-cuda-error",
            "CUDA failed inside NCCL, and the log contains no details",
            "NCCL_DEBUG=INFO  # for one run: then the log names the failing call",
        ),
    ),
    Rule(
        "nccl-system-error",
        re.compile(r"unhandled system error|ncclSystemError"),
        _plain(
            "nccl-system-error",
            "A system call failed inside NCCL, and the log does not name it",
            "NCCL_DEBUG=INFO  # for one run: then the log names the failing call",
            confidence="possible",
        ),
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
