"""The job's secret: given by the user, else made by the launcher and handed on by it, else there is none.

torchrun's ranks make it in torchrun's own store, in the store's protocol, since importing torch would take seconds and may be what hangs.
The store has no password: anyone who reaches its port can read the secret until the last rank has it, which then deletes it.

*Source:* torch/csrc/distributed/c10d/TCPStoreBackend.hpp and TCPStore.cpp; test_secret.py compares with the installed torch.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
from collections.abc import Mapping

from numscope.doctor.budget import Deadline
from numscope.doctor.meet.sockets import resolve, take
from numscope.doctor.records import Identity, Settings
from numscope.records.errors import UsageError

TOKEN = "NUMSCOPE_DOCTOR_TOKEN"  # in the environment, where ps does not show it
RANDOM = "$(openssl rand -hex 32)"

_OPEN_MPI = "OMPI_MCA_orte_precondition_transports"  # 128 random bits, made by mpirun for each job
_STORE_S = 5.0
_SECRET_BYTES = 4096  # limit for a store's answer or a file
_VALIDATE = struct.pack("=BI", 0, 0x3C85F7CE)
_COMPARE_SET, _ADD, _DELETE = b"\x02", b"\x04", b"\x08"


class NoSecret(UsageError):
    """Ranks of several hosts have no secret; the same for all ranks of a node."""

    def __init__(self, launcher: str, why: str = "") -> None:
        do = {
            "slurm": f"Use {TOKEN}={RANDOM} srun numscope doctor.",
            "mpi": f"Use {TOKEN}={RANDOM} mpirun -x {TOKEN} numscope doctor.",
            "nnodes": "Paste the line that numscope doctor printed on the endpoint's host, or set it on all nodes.",
        }.get(launcher, "Set it to the same random words on all hosts, such as those of openssl rand -hex 32.")
        super().__init__(f"{TOKEN}: got nothing{why}, expected a secret that all ranks hold; without it they meet on one host only. {do}")


def secret_of(identity: Identity, settings: Settings, environ: Mapping[str, str]) -> str:
    """The secret that the user or the launcher has handed to this rank; "" if there is none.

    Raises: OSError if torchrun's store can't be used.
    """
    given = given_secret(settings, environ)
    if not given and identity.launcher == "mpi":
        return environ.get(_OPEN_MPI, "")
    if not given and environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and environ.get("MASTER_ADDR"):
        key = "/".join(("numscope.doctor", environ.get("TORCHELASTIC_RUN_ID", ""), environ.get("TORCHELASTIC_RESTART_COUNT", "")))
        deadline = Deadline(_STORE_S * settings.timeout_scale)
        return shared(environ["MASTER_ADDR"], int(environ.get("MASTER_PORT", "")), key, identity.world_size, deadline)
    return given


def given_secret(settings: Settings, environ: Mapping[str, str]) -> str:
    """The secret that the user set; "" if none."""
    return settings.token or environ.get(TOKEN, "").strip()


def read_secret(path: str) -> str:
    """The secret in a file that only its owner can read. Raises: OSError; ValueError with what is expected of the file."""
    with open(path, "rb") as file:
        about = os.fstat(file.fileno())
        if about.st_mode & 0o077:
            raise ValueError(f"a file that only you can read, but its mode is {about.st_mode & 0o777:o}. Use chmod 600 on it")
        data = file.read(_SECRET_BYTES + 1)
    words = data.decode("utf-8", errors="replace").strip()
    if not words.isprintable() or not 0 < len(words) <= _SECRET_BYTES:
        raise ValueError("a file with one line of printable text")
    return words


def shared(host: str, port: int, key: str, count: int, deadline: Deadline) -> str:
    """The secret that ``count`` processes have in common, made by the first of them in a ``TCPStore`` and deleted by the last.

    Raises: OSError, for example where there is no store.
    """
    error = OSError(f"{host} has no address")
    for address in resolve(host, deadline):
        try:
            with socket.create_connection((address, port), timeout=max(deadline.left, 1e-3)) as store:
                name, mine = _text(key), _text(secrets.token_hex(32))
                store.sendall(_VALIDATE + _COMPARE_SET + name + _text("") + mine)
                (size,) = struct.unpack("=Q", take(store, 8, deadline))
                if size > _SECRET_BYTES:
                    raise OSError("what listens there is not torchrun's store")
                secret = take(store, size, deadline).decode("ascii", errors="replace")
                store.sendall(_ADD + _text(key + "/count") + struct.pack("=q", 1))
                if struct.unpack("=q", take(store, 8, deadline)) == (count,):
                    store.sendall(_DELETE + name)
                    take(store, 8, deadline)
                return secret
        except OSError as failed:
            error = failed
    raise error


def _text(words: str) -> bytes:
    return struct.pack("=Q", len(words.encode())) + words.encode()
