"""The place of the hub and the job's secret, as every rank learns them from its launcher."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace

from numscope.doctor.meet.identity import first_node, nodelist
from numscope.doctor.meet.secret import NoSecret, given_secret, secret_of
from numscope.doctor.meet.sockets import is_loopback, is_own
from numscope.doctor.records import Identity, Settings
from numscope.records.errors import UsageError

ENDPOINT = "NUMSCOPE_DOCTOR_ENDPOINT"
_NUM_PORTS = 3  # tried in turn where the doctor chooses the port, since another process may hold one


@dataclass(frozen=True, slots=True)
class MeetingPoint:
    """The place where ranks meet."""

    host: str  # the hub's, as written by the user or launcher
    ports: tuple[int, ...]  # tried in this order
    # a connection must prove to hold it: the job's secret. Where there is none, ranks meet on loopback only, and a token that is derived
    # from the place keeps other jobs out
    token: str
    hosted: bool  # this process hosts the hub
    origin: str  # the variable or option that the endpoint comes from, for messages
    local: bool = False  # ranks of other hosts can't come, so nothing but loopback is bound

    @property
    def name(self) -> str:
        """Host and first port, as a user would write them."""
        return f"[{self.host}]:{self.ports[0]}" if ":" in self.host else f"{self.host}:{self.ports[0]}"

    @property
    def own_address(self) -> str:
        """The address at which the hub's own host reaches it."""
        return self.host if is_loopback(self.host) else "127.0.0.1"

    def at_home(self, *ports: int) -> MeetingPoint:
        """The same, as the hub's own host reaches it."""
        return replace(self, host=self.own_address, ports=ports)


def meet(identity: Identity, settings: Settings, environ: Mapping[str, str]) -> MeetingPoint:
    """Finds the place where this rank meets the others.

    Raises: UsageError if neither the launcher nor the user names a place, or if ranks of several hosts have no secret.
    """
    place = _place(identity, settings, environ)
    if not environ.get(ENDPOINT):
        place = replace(place, local=is_loopback_name(place.host))
    why = ""
    try:
        token = secret_of(identity, settings, environ)
    except OSError as error:
        token, why = "", f", and torchrun's store at MASTER_ADDR={environ['MASTER_ADDR']} can't be used: {error.strerror or error}"
    if token:
        return replace(place, token=token)
    if place.local or identity.num_nodes == 1:
        return _without_secret(place)
    if why and not place.hosted:  # then the way to the hub shows what is wrong
        return replace(place, token=secrets.token_hex(32))
    raise NoSecret(identity.launcher, why)


def meet_at_endpoint(settings: Settings, environ: Mapping[str, str]) -> MeetingPoint:
    """Finds the place where the nodes of ``--nnodes`` meet; the process on the endpoint's host hosts the hub.

    Raises: UsageError if there is no endpoint, or no secret and another host hosts the hub.
    """
    if not settings.endpoint:
        raise UsageError("--endpoint: got nothing, expected HOST:PORT of one of the nodes, the same on all, together with --nnodes.")
    host, port = split_endpoint(settings.endpoint)
    hosted = settings.node_rank == 0 if settings.node_rank >= 0 else is_here(host)
    place = MeetingPoint(host, (port,), given_secret(settings, environ), hosted, "--endpoint", is_loopback_name(host))
    if not place.token and place.local:
        return _without_secret(place)
    if not place.token and not hosted:
        raise NoSecret("nnodes")
    return replace(place, token=place.token or secrets.token_hex(32))


def _place(identity: Identity, settings: Settings, environ: Mapping[str, str]) -> MeetingPoint:
    first = identity.rank == 0
    if environ.get(ENDPOINT):  # the doctor's own launcher hosts the hub itself, and reaches it on loopback
        host, port = split_endpoint(environ[ENDPOINT], ENDPOINT)
        named = split_endpoint(settings.endpoint)[0] if settings.endpoint else host
        return MeetingPoint(host, (port,), "", False, ENDPOINT, local=is_loopback_name(named))
    if settings.endpoint:
        host, port = split_endpoint(settings.endpoint)
        return MeetingPoint(host, (port,), "", first, "--endpoint")
    if identity.launcher == "slurm" and "MASTER_ADDR" not in environ:
        first_host = first_node(nodelist(environ))
        if not first_host:
            raise UsageError("SLURM_JOB_NODELIST: got nothing, expected the job's hosts. Add --endpoint HOST:PORT with rank 0's host.")
        # With --distribution=arbitrary rank 0 may be on another node, but node 0 always has a first task.
        there = identity.node == 0 and identity.local_rank == 0
        ports = _ports_of(environ.get("SLURM_JOB_ID", ""), environ.get("SLURM_STEP_ID", ""), str(os.getuid()))
        return MeetingPoint(first_host, ports, "", there, "SLURM_JOB_NODELIST")
    if environ.get("MASTER_ADDR"):
        address, word = environ["MASTER_ADDR"], environ.get("MASTER_PORT", "29500")
        if not word.isdecimal() or not 0 < int(word) < 65536:
            raise UsageError(f"MASTER_PORT: got {word!r}, expected a port, 1 to 65535.")
        ports = tuple(1024 + (int(word) - 1024 + step) % (65536 - 1024) for step in range(1, _NUM_PORTS + 1))
        return MeetingPoint(address, ports, "", first, f"MASTER_ADDR={address}, next to MASTER_PORT={word}")
    if identity.launcher == "mpi" and identity.local_world_size == identity.world_size:
        run = (*(environ.get(name, "") for name in ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID")), str(os.getuid()))
        return MeetingPoint("127.0.0.1", _ports_of(*run), "", first, "one node")
    missing = "MPI's launcher does" if identity.launcher == "mpi" else "RANK and WORLD_SIZE do"
    raise UsageError(
        f"MASTER_ADDR: got nothing, expected the host of rank 0, which {missing} not provide. "
        "Add --endpoint HOST:PORT, or set MASTER_ADDR and MASTER_PORT for all ranks."
    )


def _without_secret(place: MeetingPoint) -> MeetingPoint:
    """The same place on loopback, with a token that is not secret."""
    words = ("numscope doctor", str(os.getuid()), *map(str, place.ports))
    token = hashlib.sha256("\n".join(words).encode()).hexdigest()
    return replace(place, host=place.host if is_loopback_name(place.host) else "127.0.0.1", token=token, local=True)


def split_endpoint(endpoint: str, where: str = "--endpoint") -> tuple[str, int]:
    """Host and port of ``HOST:PORT`` or ``[IPV6]:PORT``. Raises: UsageError."""
    host, colon, port = endpoint.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"{where}: got {endpoint!r}, expected HOST:PORT, such as node1:29400 or [fd00::1]:29400.")
    return host, int(port)


def is_here(host: str) -> bool:
    """Whether a name denotes this host. A loopback address is not enough: many an /etc/hosts has ``127.0.1.1 node1``."""
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return False
    own = socket.gethostname()
    named = is_loopback_name(host) or host in (own, own.partition(".")[0]) or host.partition(".")[0] == own
    return any(named if is_loopback(address) else is_own(address) for address in addresses)


def is_loopback_name(host: str) -> bool:
    """Whether a host's name or address always means the host itself."""
    return is_loopback(host) or host == "localhost" or host.endswith(".localhost") or host.startswith(("localhost.", "ip6-localhost"))


def _ports_of(*job: str) -> tuple[int, ...]:
    """Ports below the ephemeral range, derived from the job's id so that two jobs on a host seldom collide."""
    start = 20000 + int(hashlib.sha256("/".join(job).encode()).hexdigest(), 16) % 10000
    return tuple(range(start, start + _NUM_PORTS))
