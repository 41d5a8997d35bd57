"""Phase 4: starts torch's process group in this rank's child: always gloo, and NCCL if there are GPUs.

Before torch starts, each child registers in the store, so that a missing rank can be named (torch's own error does not name it). The
agent opened the store's socket before the rendezvous, so that its port is in the roster and no other process can take it. NCCL requires one
process per GPU: each uses the GPU of its local rank. This part follows torch's documentation; this project's tests have not run it on GPUs.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed import ProcessGroup

from numscope.doctor.budget import Overdue
from numscope.doctor.child.session import ChildSession, Failed, StoreLost, Wire, sentence, text_of
from numscope.doctor.phases.children import LISTEN_FD
from numscope.records.words import named, spans

_STORE_SHARE = 0.45  # share of the phase, to reach a store whose host may still be importing torch
_ROLL_SHARE = 0.5  # until all have registered
_START_SHARE = 0.9  # until torch's own timeout for starting a group


def run(session: ChildSession, arguments: Mapping[str, Any]) -> None:
    """Waits for the other ranks and starts the process groups that ``backend`` asks for, with a GPU by ``local_rank``."""
    torch.set_num_threads(1)
    report, where, members = session.report, arguments["store"], arguments["members"]
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    lacks = "nccl" if not dist.is_nccl_available() else "gpu" if arguments["local_rank"] >= num_gpus else ""
    report.set(torch=str(torch.__version__), import_s=session.import_s, num_gpus=num_gpus, lacks=lacks, device="cpu")
    store = _open_stores(session, where)
    with report.step("wait for the other ranks at the store"):
        try:
            store.set(f"lacks/{session.rank}", lacks)
            seconds = max(session.left - (1 - _ROLL_SHARE) * session.limit_s, 0.3 * session.left)
            present = session.gather("arrived", members, seconds, 0.1 * session.limit_s)
        except StoreLost as error:
            raise Failed(f"rank {session.rank} waited for the other ranks at the store: {error}") from error
    report.set(members=spans(present.here), missing=spans(present.missing))
    if present.missing:
        raise Failed(f"{named(present.missing)} did not join torch's store at rank {where['rank']}")
    session.members = present.here
    groups: dict[str, dict[str, Any]] = {}
    _start_group(session, "gloo", groups, lambda: _first_group(session, store), torch.device("cpu"))
    asked = arguments["backend"]
    if "nccl" in asked or not asked:
        if lacking := [rank for rank in members if store.get(f"lacks/{rank}")]:
            why = f"{named(lacking)} can't use NCCL"
            groups["nccl"] = {"seconds": 0.0, "error": "", "skipped": why, "not_ready": []}
            report.set(groups=groups)
            if "nccl" in asked:
                raise Failed(f"nccl was requested, but {why}")
        else:
            device = torch.device("cuda", arguments["local_rank"])
            _start_group(session, "nccl", groups, lambda: _nccl_group(session, device), device)
            report.set(device=str(device))


def _open_stores(session: ChildSession, where: Mapping[str, Any]) -> TCPStore:
    """A connection for torch, and one for the roll call."""
    hosts = where["rank"] == session.rank
    address = "127.0.0.1" if hosts else where["address"]
    name = f"{address}:{where['port']}"
    began = time.perf_counter()
    seconds = min(_STORE_SHARE * session.limit_s, 0.5 * session.left)

    def connect(is_host: bool) -> TCPStore:
        fd = int(os.environ[LISTEN_FD]) if is_host else None
        timeout = timedelta(seconds=seconds * 0.4)  # torch tries twice, with a pause: up to 2.3 times as long
        return TCPStore(address, where["port"], is_master=is_host, timeout=timeout, wait_for_workers=False, master_listen_fd=fd)

    error = short = ""
    if not where["port"] or (hosts and LISTEN_FD not in os.environ):
        error = short = f"rank {where['rank']} could not open a port for torch's store"
    else:
        with session.report.step(f"{'host' if hosts else 'connect to'} torch's store at {name}"):
            try:
                if not hosts:
                    # The store has listened since before the rendezvous: a refusal is final, but torch would keep trying.
                    socket.create_connection((address, where["port"]), seconds / 2).close()
                store = session.report.limited(seconds, lambda: connect(hosts))
                session.store, session.store_host = session.report.limited(seconds, lambda: connect(False)), where["rank"]
            except (Overdue, RuntimeError, OSError) as failure:
                error, short = text_of(failure), sentence(failure)
    session.report.set(store={**where, "address": address, "connect_s": time.perf_counter() - began, "error": error})
    if error:
        raise Failed(f"rank {session.rank} could not reach torch's store at {name}, hosted by rank {where['rank']}: {short}")
    return store


def _start_group(
    session: ChildSession, backend: str, groups: dict[str, dict[str, Any]], make: Callable[[], ProcessGroup], device: torch.device
) -> None:
    began = time.perf_counter()
    short = ""
    entry = groups[backend] = {"seconds": 0.0, "error": "", "skipped": "", "not_ready": []}
    with session.report.step(f"start {backend} between {len(session.members)} ranks"):
        try:
            group = session.report.limited(session.left - (1 - _START_SHARE) * session.limit_s, make)
            session.wires.append(Wire(backend, group, device))
        except (Overdue, RuntimeError, ValueError, OSError) as error:
            entry["error"], short = text_of(error), sentence(error)
    entry["seconds"] = time.perf_counter() - began
    session.report.set(groups=groups)
    if entry["error"]:
        with session.report.step(f"check which other ranks have no {backend}"):
            entry["not_ready"] = [rank for rank in session.absent(f"ready/{backend}", session.members, 0.0) if rank != session.rank]
        session.report.set(groups=groups)
        raise Failed(f"{backend} did not start on rank {session.rank}: {short}")
    session.show(f"ready/{backend}")


def _first_group(session: ChildSession, store: TCPStore) -> ProcessGroup:
    # torch should give up first, so that its own error is evidence
    timeout = timedelta(seconds=max(1.0, (session.left - (1 - _START_SHARE) * session.limit_s) * 0.9))
    index, size = session.members.index(session.rank), len(session.members)
    dist.init_process_group("gloo", store=PrefixStore("doctor", store), rank=index, world_size=size, timeout=timeout)
    group = dist.group.WORLD
    assert group is not None
    return group


def _nccl_group(session: ChildSession, device: torch.device) -> ProcessGroup:
    torch.cuda.set_device(device)
    group: ProcessGroup = dist.new_group(backend="nccl", timeout=timedelta(seconds=max(1.0, session.left * 0.9)))
    one = torch.ones(1, device=device)
    dist.all_reduce(one, group=group)  # NCCL connects only now
    if one.item() != len(session.members):
        raise RuntimeError(f"the sum of {len(session.members)} ones is {one.item()}")
    return group
