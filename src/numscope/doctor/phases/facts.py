"""Phase 0: facts about this rank's host, from the standard library alone, without importing torch.

A fact that can't be obtained is absent or has an ``error``; the others are reported all the same. ``meet/messages.py`` describes them.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from numscope.doctor.budget import Deadline
from numscope.doctor.meet import sockets
from numscope.doctor.phases import Context

PREFIXES = ("NCCL_", "RCCL_", "TORCH_", "TORCHELASTIC_", "PYTORCH_", "GLOO_", "CUDA_", "HIP_", "ROCR_", "UCX_", "FI_", "OMP_", "MKL_")
NAMES = ("MASTER_ADDR", "MASTER_PORT", "LD_PRELOAD")
NAME_S = 2.0  # a name server that does not answer takes 10 s and more
GPUS_S = 7.0
_VALUE_CHARACTERS = 200
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|PRIVATE|SIGNATURE|_PW\b|_PWD\b", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=://)[^/\s@]+(?=@)")
_VERSIONS = {
    "torch": ("torch",),
    "nccl": ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11"),
    "cuda-runtime": ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu11"),
    "triton": ("triton",),
    "transformers": ("transformers",),
    "accelerate": ("accelerate",),
    "deepspeed": ("deepspeed",),
}
_QUERY = ("--query-gpu=index,name,uuid,memory.total,driver_version", "--format=csv,noheader,nounits")
_ERROR_CHARACTERS = 300


def run(context: Context) -> dict[str, Any]:
    """All facts of this rank's host. *Cost:* about 20 ms without GPUs; with them as long as nvidia-smi takes, at most 7 s."""
    context.announce("gather facts about this host")
    return gather(os.environ, context.deadline, context.settings.timeout_scale)


def gather(environ: Mapping[str, str], deadline: Deadline, scale: float = 1.0) -> dict[str, Any]:
    """All facts, within the deadline."""
    errors: dict[str, str] = {}
    data: dict[str, Any] = {"errors": errors, "environment": environment(environ)}
    facts: dict[str, Callable[[], Any]] = {
        "hostname": socket.gethostname,
        "system": platform.system,
        "kernel": platform.release,
        "machine": platform.machine,
        "interfaces": interfaces,
        "shm": _shm,
        "limits": _limits,
        "cpus": _cpus,
        "versions": versions,
        "infiniband": infiniband,
        "name": lambda: resolve(socket.gethostname(), deadline.within(NAME_S * scale)),
        "gpus": lambda: gpus(environ, deadline.within(GPUS_S * scale)),
    }
    for name, ask in facts.items():
        try:
            data[name] = ask()
        except Exception as error:  # hosts can be unusual in any way, and the other facts still matter
            errors[name] = f"{type(error).__name__}: {error}"[:_VALUE_CHARACTERS]
    return data


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that matter for collectives, without those whose names look secret."""
    values = {}
    for name in sorted(environ):
        if (name.startswith(PREFIXES) or name in NAMES) and not _SECRET.search(name):
            value = _LOGIN.sub("***", environ[name].encode("utf-8", "replace").decode())
            more = f"… ({len(value):,} characters)"
            values[name] = value if len(value) <= _VALUE_CHARACTERS else value[:_VALUE_CHARACTERS] + more
    return values


def resolve(name: str, deadline: Deadline) -> dict[str, Any]:
    """Resolves a host name.

    Returns: ``name``, ``addresses``, ``loopback`` (there are addresses, and all are loopback), ``error``, ``seconds``.
    """
    started = time.monotonic()
    addresses, error = [], ""
    try:
        addresses = sorted(sockets.resolve(name, deadline))
    except OSError as failure:
        error = str(failure)
    loopback = bool(addresses) and all(map(sockets.is_loopback, addresses))
    return {"name": name, "addresses": addresses, "loopback": loopback, "error": error, "seconds": time.monotonic() - started}


def interfaces() -> dict[str, dict[str, Any]]:
    """The network interfaces of this process's namespace; /sys may show those of another one."""
    found: dict[str, dict[str, Any]] = {name: {"addresses": []} for _, name in socket.if_nameindex()}
    if sys.platform != "linux":
        return found
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for name, facts in found.items():
            request = struct.pack("256s", name.encode()[:15])
            with contextlib.suppress(OSError):
                (facts["mtu"],) = struct.unpack_from("=i", fcntl.ioctl(asking, 0x8921, request), 16)  # SIOCGIFMTU
        for name, address in _addresses(asking):
            found.setdefault(name, {"addresses": []})["addresses"].append(address)
    return found


def _addresses(asking: socket.socket) -> list[tuple[str, str]]:
    """(interface, address) of both families; an alias (eth0:1) belongs to its interface."""
    import array
    import fcntl

    found = []
    with contextlib.suppress(OSError):
        room = array.array("B", bytes(40 * 256))
        start, length = room.buffer_info()
        answer = fcntl.ioctl(asking, 0x8912, struct.pack("iL", length, start))  # SIOCGIFCONF
        (filled,) = struct.unpack_from("i", answer)
        for offset in range(0, min(filled, length), 40):
            entry = room.tobytes()[offset : offset + 40]
            name = entry[:16].partition(b"\0")[0].decode(errors="replace").partition(":")[0]
            found.append((name, socket.inet_ntoa(entry[20:24])))
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            word, *_, name = line.split()
            found.append((name, socket.inet_ntop(socket.AF_INET6, bytes.fromhex(word))))
    return found


def versions() -> dict[str, str]:
    """Installed versions, from the packages' metadata, without importing them."""
    from numscope.version import __version__

    found = {"python": platform.python_version(), "numscope": __version__}
    for name, packages in _VERSIONS.items():
        for package in packages:
            with contextlib.suppress(metadata.PackageNotFoundError):
                found[name] = metadata.version(package)
                break
    return found


def infiniband(root: Path = Path("/sys/class/infiniband")) -> dict[str, dict[str, str]]:
    """InfiniBand and RoCE devices, one entry per port."""
    found = {}
    for port in sorted(root.glob("*/ports/*")):
        facts = {"port": port.name}
        for name in ("state", "rate", "link_layer"):
            with contextlib.suppress(OSError):
                facts[name] = (port / name).read_text().strip()
        found[f"{port.parent.parent.name}:{port.name}"] = facts
    return found


def _shm() -> dict[str, int]:
    space = os.statvfs("/dev/shm")
    return {"size_bytes": space.f_blocks * space.f_frsize, "free_bytes": space.f_bavail * space.f_frsize}


def _limits() -> dict[str, int]:
    import resource

    kinds = {"memlock_bytes": resource.RLIMIT_MEMLOCK, "nofile": resource.RLIMIT_NOFILE}
    soft = {name: resource.getrlimit(kind)[0] for name, kind in kinds.items()}
    return {name: -1 if limit == resource.RLIM_INFINITY else limit for name, limit in soft.items()}


def _cpus() -> dict[str, Any]:
    count = os.cpu_count() or 0
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else count
    found: dict[str, Any] = {"count": count, "usable": usable}
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            found["quota"] = int(quota) / int(period)
    return found


def gpus(environ: Mapping[str, str], deadline: Deadline) -> dict[str, Any]:
    """The GPUs by nvidia-smi, which ignores CUDA_VISIBLE_DEVICES, as described in ``meet/messages.py``."""
    program = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if program is None:
        return _without("none")
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:  # in its own session, so that its children are killed with it
        process = subprocess.Popen([program, *_QUERY], env=dict(environ), start_new_session=True, text=True, errors="replace", **streams)
        text, _ = process.communicate(timeout=max(deadline.left, 0.01))
    except OSError as error:
        return _without("failed", str(error))
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)  # and not waited for: a process that hangs in the driver can't be killed
        return _without("timeout", f"nvidia-smi did not end within {deadline.seconds:.1f} s")
    if process.returncode != 0:
        if "No devices were found" in text:
            return _without("none")
        return _without("failed", f"nvidia-smi ended with {process.returncode}: {' '.join(text.split())[:_ERROR_CHARACTERS]}")
    devices, driver = parse(text)
    return {"status": "ok" if devices else "none", "error": "", "driver": driver, "devices": devices}


def _without(status: str, error: str = "") -> dict[str, Any]:
    return {"status": status, "error": error, "devices": []}


def parse(text: str) -> tuple[list[dict[str, Any]], str]:
    """The devices in nvidia-smi's lines, and the driver's version; other lines (warnings) are skipped."""
    devices, driver = [], ""
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) != 5 or not words[0].isdecimal():
            continue
        memory = int(words[3]) << 20 if words[3].isdecimal() else 0
        devices.append({"index": int(words[0]), "name": words[1], "uuid": words[2], "memory_bytes": memory})
        driver = words[4]
    return devices, driver
