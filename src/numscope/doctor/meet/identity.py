"""This rank's identity, from its launcher's environment variables; contradicting launchers are refused with the reason."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

from numscope.doctor.records import Identity, Launcher
from numscope.records.errors import UsageError

LAUNCHER = "NUMSCOPE_DOCTOR_LAUNCHER"  # set for ranks that the doctor itself starts; their numbers need no check
# The variables with rank, world size, local rank, local world size, node and number of nodes; MPI has none with the last two.
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
_OPEN_MPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "", "")
_PMI = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "", "")
_NO_STEP = {"", "batch", "extern", "interactive", "4294967290", "4294967291", "4294967292", "4294967294", "4294967293"}


def identify(environ: Mapping[str, str], hostname: str = "") -> Identity | None:
    """Reads this process's identity among the ranks from its environment.

    Returns: None if no launcher started it, or if SLURM or MPI started it alone: such a task (``srun --pty bash``) starts its own ranks.

    Raises: UsageError for numbers that are incomplete or contradict each other.
    """
    host = hostname or socket.gethostname()
    ours = environ.get(LAUNCHER, "")
    if ours:
        return _numbered(environ, TORCHRUN, host, ours if ours in get_args(Launcher) else "local")  # type: ignore[arg-type]
    torchrun = _from_torchrun(environ, host)
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
    """The reason not to check this host alone: this is the script or shell of a SLURM job of several tasks or nodes. "" if it is not."""
    for name, what in (("SLURM_NTASKS", "tasks"), ("SLURM_JOB_NUM_NODES", "nodes"), ("SLURM_NNODES", "nodes")):
        number = environ.get(name, "1")
        if "SLURM_JOB_ID" in environ and _step(environ) in _NO_STEP and number.isdecimal() and int(number) > 1:
            return (
                f"{name}: got {number}, but srun did not start this process, so it would check this host alone, not all {what}. "
                "Use srun numscope doctor, or numscope doctor --nproc N for this host alone."
            )
    return ""


def first_node(nodes: str) -> str:
    """The first host name in SLURM's compact form: that of ``a[01-03,7]b[1-2],c`` is a01b1."""
    return re.sub(r"\[(\d+)[^\]]*\]", r"\1", nodes).partition(",")[0]


def _from_torchrun(environ: Mapping[str, str], host: str) -> Identity | None:
    given = [name for name in ("RANK", "WORLD_SIZE") if name in environ]
    if len(given) == 1:
        (other,), name = given, "WORLD_SIZE" if given == ["RANK"] else "RANK"
        raise UsageError(f"{name}: got nothing, but {other}={environ[other]}, expected both or neither. Set {name} or unset {other}.")
    return _numbered(environ, TORCHRUN, host, "torchrun") if given else None


def _from_mpi(environ: Mapping[str, str], host: str) -> Identity | None:
    if _OPEN_MPI[0] in environ:
        return _numbered(environ, _OPEN_MPI, host, "mpi")
    if _PMI[0] in environ and "SLURM_PROCID" not in environ:  # srun's own PMI plugin has the same numbers, and SLURM provides more
        return _numbered(environ, _PMI, host, "mpi")
    return None


def _numbered(environ: Mapping[str, str], names: Sequence[str], host: str, launcher: Launcher) -> Identity:
    """An identity from variables with these names. A node's number is a guess where there is no variable with it."""
    rank, world = _number(environ, names[0]), _number(environ, names[1])
    if not 0 <= rank < world:
        raise UsageError(f"{names[0]}: got {rank}, expected 0 to {world - 1}, since {names[1]}={world}.")
    size = max(1, _number(environ, names[3], 1))
    return Identity(
        rank=rank,
        world_size=world,
        local_rank=_number(environ, names[2], rank % size),
        local_world_size=size,
        node=_number(environ, names[4], rank // size),
        num_nodes=_number(environ, names[5], -(-world // size)),
        hostname=host,
        launcher=launcher,
    )


def _from_slurm(environ: Mapping[str, str], host: str) -> Identity | None:
    if "SLURM_PROCID" not in environ or _step(environ) in _NO_STEP:
        return None
    size_name = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environ else "SLURM_NTASKS"
    found = _numbered(environ, ("SLURM_PROCID", size_name, "SLURM_LOCALID", "", "", ""), host, "slurm")
    node = _number(environ, "SLURM_NODEID", 0)
    short = environ.get("SLURM_STEP_TASKS_PER_NODE", environ.get("SLURM_TASKS_PER_NODE", ""))  # 2(x3),1 is 2 2 2 1
    tasks = [int(count) for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", short) for _ in range(int(times or 1))]
    return replace(found, local_world_size=tasks[node] if node < len(tasks) else 1, node=node, num_nodes=max(1, len(tasks)))


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


def _number(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    word = environ.get(name, "")
    if not word and default is not None:
        return default
    if not word.isdecimal():
        raise UsageError(f"{name}: got {word!r}, expected a whole number. The launcher sets it.")
    return int(word)


def _step(environ: Mapping[str, str]) -> str:
    return environ.get("SLURM_STEP_ID", environ.get("SLURM_STEPID", ""))
