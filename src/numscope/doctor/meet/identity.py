"""Who this rank is, from its launcher's environment variables; contradicting launchers are refused with the reason."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import get_args

from numscope.doctor.records import Identity, Launcher
from numscope.records.errors import UsageError

LAUNCHER = "NUMSCOPE_DOCTOR_LAUNCHER"  # set for ranks that the doctor itself starts; their numbers need no check
_NO_STEP = {"", "batch", "extern", "interactive", "4294967290", "4294967291", "4294967292", "4294967294", "4294967293"}


def identify(environ: Mapping[str, str], hostname: str = "") -> Identity | None:
    """Who this process is among the ranks.

    Args:
        environ: of the process.
        hostname: "" asks the system.

    Returns: None if no launcher started it, or if SLURM or MPI started it alone: such a task (``srun --pty bash``) starts its own ranks.

    Raises: UsageError for numbers that are incomplete or contradict each other.
    """
    host = hostname or socket.gethostname()
    ours = environ.get(LAUNCHER, "")
    if ours:
        return _from_torchrun(environ, host, ours if ours in get_args(Launcher) else "local")  # type: ignore[arg-type]
    torchrun = _from_torchrun(environ, host, "torchrun") if "RANK" in environ or "WORLD_SIZE" in environ else None
    mpi = _from_mpi(environ, host)
    slurm = _from_slurm(environ, host)
    if torchrun is not None and mpi is not None:
        _agree(environ, torchrun, mpi, "MPI's launcher")
    if torchrun is not None and slurm is not None and mpi is None:
        _agree(environ, torchrun, slurm, "srun")
    # In a SLURM job mpirun starts one daemon per node with srun, and SLURM_* describe that daemon.
    found = torchrun or mpi or slurm
    return None if found is not None and found.launcher != "torchrun" and found.world_size == 1 else found


def in_batch_script(environ: Mapping[str, str]) -> str:
    """Why this host must not be checked alone: this is the script or shell of a SLURM job of several tasks or nodes. "" if it is not."""
    for name, what in (("SLURM_NTASKS", "tasks"), ("SLURM_JOB_NUM_NODES", "nodes"), ("SLURM_NNODES", "nodes")):
        number = environ.get(name, "1")
        if "SLURM_JOB_ID" in environ and _step(environ) in _NO_STEP and number.isdigit() and int(number) > 1:
            return (
                f"{name}: got {number}, but srun did not start this process, so it would check this host alone, not all {what}. "
                "Use srun numscope doctor, or numscope doctor --nproc N for this host alone."
            )
    return ""


def expand_nodes(nodes: str) -> list[str]:
    """The host names in SLURM's compact form: ``a[01-03,7],b`` is a01 a02 a03 a7 b.

    Raises: UsageError for unclosed brackets or invalid ranges.
    """
    words: list[str] = []
    depth, word = 0, ""
    for sign in nodes + ",":
        depth += (sign == "[") - (sign == "]")
        if sign == "," and depth == 0:
            words += [word] if word else []
            word = ""
        else:
            word += sign
    if depth:
        raise UsageError(f"SLURM_JOB_NODELIST: got {nodes!r}, expected names and ranges such as node[01-03,7]: a bracket does not close.")
    return [host for word in words for host in _expand_one(word)]


def _expand_one(word: str) -> list[str]:
    before, bracket, rest = word.partition("[")
    if not bracket:
        return [word]
    inside, _, after = rest.partition("]")
    hosts = []
    for part in inside.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise UsageError(f"SLURM_JOB_NODELIST: got {word!r}, expected numbers and ranges in brackets, such as node[01-03,7].")
        for number in range(int(first), int(last or first) + 1):
            hosts += [f"{before}{number:0{len(first)}d}{tail}" for tail in _expand_one(after)]
    return hosts


def _from_torchrun(environ: Mapping[str, str], host: str, launcher: Launcher) -> Identity:
    for name, other in (("RANK", "WORLD_SIZE"), ("WORLD_SIZE", "RANK")):
        if name not in environ:
            raise UsageError(f"{name}: got nothing, but {other}={environ[other]}, expected both or neither. Set {name} or unset {other}.")
    rank, world = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
    _check_rank("RANK", rank, "WORLD_SIZE", world)
    size = max(1, _number(environ, "LOCAL_WORLD_SIZE", 1))
    nodes = _number(environ, "GROUP_WORLD_SIZE", -(-world // size))
    return Identity(
        rank=rank,
        world_size=world,
        local_rank=_number(environ, "LOCAL_RANK", rank % size),
        local_world_size=size,
        node=_number(environ, "GROUP_RANK", rank // size),
        num_nodes=nodes,
        hostname=host,
        launcher=launcher,
    )


def _from_slurm(environ: Mapping[str, str], host: str) -> Identity | None:
    if "SLURM_PROCID" not in environ or _step(environ) in _NO_STEP:
        return None
    size_name = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environ else "SLURM_NTASKS"
    rank, world = _number(environ, "SLURM_PROCID"), _number(environ, size_name)
    _check_rank("SLURM_PROCID", rank, size_name, world)
    hosts = expand_nodes(nodelist(environ))
    node = _number(environ, "SLURM_NODEID", 0)
    tasks = _tasks_per_node(environ.get("SLURM_STEP_TASKS_PER_NODE", environ.get("SLURM_TASKS_PER_NODE", "")))
    return Identity(
        rank=rank,
        world_size=world,
        local_rank=_number(environ, "SLURM_LOCALID", 0),
        local_world_size=tasks[node] if node < len(tasks) else max(1, world // max(1, len(hosts))),
        node=node,
        num_nodes=max(1, len(hosts)),
        hostname=host,
        launcher="slurm",
    )


def _from_mpi(environ: Mapping[str, str], host: str) -> Identity | None:
    for rank_name, size_name, local_name, local_size_name in (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ):
        if rank_name not in environ:
            continue
        if rank_name == "PMI_RANK" and "SLURM_PROCID" in environ:
            return None  # srun's own PMI plugin: the same numbers, and SLURM provides more
        rank, world = _number(environ, rank_name), _number(environ, size_name)
        _check_rank(rank_name, rank, size_name, world)
        size = max(1, _number(environ, local_size_name, 1))
        return Identity(
            rank=rank,
            world_size=world,
            local_rank=_number(environ, local_name, rank % size),
            local_world_size=size,
            node=rank // size,  # a guess until the hub knows the host names: MPI gives no number
            num_nodes=-(-world // size),
            hostname=host,
            launcher="mpi",
        )
    return None


def nodelist(environ: Mapping[str, str]) -> str:
    """The step's hosts in SLURM's compact form, else the job's."""
    return environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST", "")


def _agree(environ: Mapping[str, str], torchrun: Identity, outer: Identity, who: str) -> None:
    """Refuses two launchers that contradict each other."""
    if (torchrun.rank, torchrun.world_size) == (outer.rank, outer.world_size) or outer.world_size == 1:
        return
    if "TORCHELASTIC_RUN_ID" not in environ:
        raise UsageError(
            f"RANK: got rank {torchrun.rank} of {torchrun.world_size}, but {who} sets rank {outer.rank} of {outer.world_size}, expected "
            "the same. Unset RANK and WORLD_SIZE, or set them to the launcher's numbers."
        )
    if torchrun.num_nodes != outer.world_size:
        once = f"srun --ntasks={outer.num_nodes} --ntasks-per-node=1" if outer.launcher == "slurm" else "mpirun --npernode 1"
        raise UsageError(
            f"torchrun: got {torchrun.num_nodes} node(s) of {torchrun.local_world_size} rank(s), but {who} started torchrun "
            f"{outer.world_size} times on {outer.num_nodes} node(s), expected once per node of one job. "
            f"Use {once} torchrun --nnodes {outer.num_nodes} …"
        )


def _check_rank(rank_name: str, rank: int, size_name: str, world: int) -> None:
    if not 0 <= rank < world:
        raise UsageError(f"{rank_name}: got {rank}, expected 0 to {world - 1}, since {size_name}={world}.")


def _number(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    word = environ.get(name, "")
    if not word and default is not None:
        return default
    if not word.isdigit():
        raise UsageError(f"{name}: got {word!r}, expected a whole number. The launcher sets it.")
    return int(word)


def _step(environ: Mapping[str, str]) -> str:
    return environ.get("SLURM_STEP_ID", environ.get("SLURM_STEPID", ""))


def _tasks_per_node(short: str) -> list[int]:
    """``2(x3),1`` is 2 2 2 1; empty for anything else."""
    tasks: list[int] = []
    for word in filter(None, short.split(",")):
        count, _, times = word.partition("(x")
        if not count.isdigit() or not (times.removesuffix(")") or "1").isdigit():
            return []
        tasks += [int(count)] * int(times.removesuffix(")") or "1")
    return tasks
