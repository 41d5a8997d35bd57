"""What all ranks must agree on before any of them acts: whether some rank's step is bad, and which rank's was first.

Every question is a collective, so every rank must ask it at the same point of its step. Questions are asked where the ranks synchronize
anyway: at the optimizer's step and after it. They are never asked in an evaluation or when a watch is closed, since a rank may be alone
there. With gloo they use host memory; with NCCL, which no test here runs, they use the current accelerator.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from numscope.distributed.megatron import layout_of
from numscope.records.heap import instances_of

log = logging.getLogger("numscope")

PATIENCE_S = 15.0  # to wait for other ranks to watch the same model; ranks that train together arrive within the same step
REPORT_S = 5.0  # to wait for the failing rank to print its report
_POLL_S = 0.02
_WIDTH = 3  # numbers in every question: a goodbye must fit, whatever the other ranks ask

_watches: Counter[str] = Counter()  # number of watches of the same kind of model that this process has started


def rank() -> int:
    """This process's global rank; before a process group exists, the rank that torchrun assigned."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    given = os.environ.get("RANK", "0")
    return int(given) if given.isdecimal() else 0


def spread() -> bool:
    """Whether this process trains together with other ranks."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def among(group: Any = None) -> Any:
    """The given process group, else the group of all ranks; None if this process is its only member."""
    if not spread():
        return None
    group = dist.group.WORLD if group is None else group
    return group if dist.get_world_size(group) > 1 else None


class Ranks:
    """The ranks that train one model together, and the questions they ask each other.

    Their groups are looked up at the first question, when wrappers are in place: DDP's group, and those of the meshes over which FSDP2 or
    tensor parallelism distributes the parameters. If only some ranks watch a model, each rank judges it alone. During training, a watch
    must be closed on all ranks or on none.

    Args:
        model: the watched module.
        wrapper: the module that the user passed, perhaps a DDP around the model.

    *Cost:* a question is one collective of a few elements per group; none in a single process.
    """

    def __init__(self, model: nn.Module, wrapper: nn.Module) -> None:
        self._model = model
        self._wrapper = wrapper
        self._ddp: Any = None
        self._groups: list[Any] | None = None
        self._leaving = False
        self._asked = False
        self._key = f"numscope/{watch_name(model)}"
        self._arrived = False
        if spread():
            self._arrive()

    @property
    def together(self) -> bool:
        """Whether there are other ranks to ask. There are none within and after ``ddp.join()``: a rank without inputs does not answer."""
        if not spread():
            return False
        if self._groups is None:
            self._groups = self._find_groups()
        return bool(self._groups) and not getattr(getattr(self._ddp, "_join_config", None), "enable", False)

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """For each flag, whether it is set on any rank. All ranks must ask. If a rank is leaving, no further question is asked."""
        self._asked = True
        if not self.together:
            return flags
        assert self._groups is not None
        values = [float(self._leaving), *map(float, flags)]
        values += [0.0] * (_WIDTH - len(values))
        try:
            for group in self._groups:
                told = torch.tensor(values, device=device_of(group))
                dist.all_reduce(told, op=dist.ReduceOp.MAX, group=group)
                values = told.tolist()
        except Exception:
            self._groups = []  # a peer is gone, so no further question is asked
            raise
        if values[0]:
            if not self._leaving:
                log.warning("numscope failed on another rank: from now on rank %d judges its steps alone", rank())
            self._groups = []
        return tuple(value > 0 for value in values[1 : 1 + len(flags)])

    def gather(self, value: Any) -> list[Any]:
        """The JSON-ready values of all ranks, including this one. All ranks must ask."""
        found = [value]
        if self.together:
            for group in self._groups or ():
                found = [one for part in gather(found, group) for one in part]
        return found

    def leave(self) -> None:
        """Answer the other ranks' next question with a goodbye: this rank's watch has failed, and theirs continue alone."""
        self._leaving = True
        if self.together:
            self.any()

    def wait_for_report(self, mine: bool) -> None:
        """Wait for the report before this rank ends: a launcher may kill all ranks as soon as one has ended, in the middle of the report.

        Args:
            mine: this rank has printed it.
        """
        if not self.together:
            return
        with contextlib.suppress(Exception):  # the store disappears with the rank that hosts it
            store, key = dist.distributed_c10d._get_default_store(), f"{self._key}/reported"
            if mine:
                store.set(key, "reported")
            end = time.monotonic() + REPORT_S
            while not store.check([key]) and time.monotonic() < end:
                time.sleep(_POLL_S)

    @contextlib.contextmanager
    def owed(self) -> Iterator[None]:
        """For code before a question: if this rank fails in the block before it has asked, the other ranks are notified."""
        self._asked = False
        try:
            yield
        except Exception:
            if not self._asked:
                with contextlib.suppress(Exception):
                    self.leave()
            raise

    def _find_groups(self) -> list[Any]:
        groups: list[Any] = []
        for parameter in self._model.parameters():
            mesh = getattr(parameter, "device_mesh", None)
            if mesh is not None:
                groups += [g for g in mesh.get_all_groups() if g not in groups]
        self._ddp = find_ddp(self._model, self._wrapper)
        group = getattr(self._ddp, "process_group", None)
        if group is not None and group not in groups:
            groups.append(group)
        layout = layout_of(self._model)
        groups += [] if layout is None else [g for g in layout.groups if g not in groups]
        if not self._arrived:
            self._arrive()
        return [g for g in groups if dist.get_world_size(g) > 1 and self._all_watch(g)]

    def _arrive(self) -> None:
        self._arrived = True
        dist.distributed_c10d._get_default_store().set(f"{self._key}/{dist.get_rank()}", "watched")

    def _all_watch(self, group: Any) -> bool:
        """Whether every rank of a group watches this model."""
        members = dist.get_process_group_ranks(group)
        if together(f"{self._key}/{','.join(map(str, members))}", [f"{self._key}/{r}" for r in members]):
            return True
        log.warning(
            "numscope: %s is watched on rank %d, not on all of ranks %s: each watch judges alone. Watch it on every rank.",
            type(self._model).__name__,
            rank(),
            members,
        )
        return False


def watch_name(model: nn.Module, purpose: str = "") -> str:
    """A name that is the same on all ranks for the same watch: its purpose, the kind of model, and the number of such watches so far."""
    names = ",".join(name for name, _ in model.named_parameters())
    kind = f"{purpose}{type(model).__name__}-{hashlib.sha1(names.encode(), usedforsecurity=False).hexdigest()[:16]}"
    _watches[kind] += 1
    return f"{kind}-{_watches[kind]}"


def find_ddp(model: nn.Module, wrapper: nn.Module) -> Any:
    """The DDP around the model, inside it, or around a larger model. *Cost:* in the last case, one walk over all objects."""
    kind = nn.parallel.DistributedDataParallel
    for module in (wrapper, *model.modules()):
        if isinstance(module, kind):
            return module
    for candidate in instances_of(kind):
        if any(m is model for m in candidate.modules()):
            return candidate
    return None


def together(place: str, keys: Sequence[str]) -> bool:
    """Whether all ranks have arrived, each of which sets a key. The first rank decides for all, so that no rank waits for an absent one.

    Args:
        place: the store's key for the verdict, the same on all ranks; each can be used once.
    """
    store = dist.distributed_c10d._get_default_store()
    end = time.monotonic() + PATIENCE_S
    pause = _POLL_S / 100  # ranks mostly arrive at the same moment
    while not (complete := store.check(list(keys))) and not store.check([f"{place}/verdict"]) and time.monotonic() < end:
        time.sleep(pause)
        pause = min(2 * pause, _POLL_S)
    if store.add(f"{place}/first", 1) == 1:
        store.set(f"{place}/verdict", "together" if complete else "alone")
    return bool(store.get(f"{place}/verdict") == b"together")


def in_all_ranks(values: Sequence[str], purpose: str) -> set[str]:
    """Those of this rank's values that every rank has that publishes its values within ``PATIENCE_S``.

    *Cost:* one entry in the store; a rank without values does not wait for other ranks.
    """
    store = dist.distributed_c10d._get_default_store()
    _watches[purpose] += 1
    place = f"numscope/{purpose}-{_watches[purpose]}"
    store.set(f"{place}/{dist.get_rank()}", json.dumps(list(values)))
    if not values:
        return set()
    keys = [f"{place}/{r}" for r in range(dist.get_world_size())]
    end = time.monotonic() + PATIENCE_S
    while not store.check(keys) and time.monotonic() < end:
        time.sleep(_POLL_S)
    told = [set(json.loads(store.get(key))) for key in keys if store.check([key])]
    return set(values).intersection(*told)


def device_of(group: Any) -> torch.device:
    """The device of a group's collectives: the CPU if the group supports it, else the current accelerator."""
    kinds = [device.type for device in group._device_types]
    return torch.device("cpu") if "cpu" in kinds else torch.device(kinds[0], torch.accelerator.current_device_index())


def gather(value: Any, group: Any) -> list[Any]:
    """Each rank's value, in the group's order. JSON rather than pickle: nothing received is ever executed."""
    data = bytearray(json.dumps(value).encode())
    device = device_of(group)
    size = torch.tensor([len(data)], device=device)
    sizes: list[Tensor] = [torch.zeros_like(size) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, size, group=group)
    padded = torch.zeros(max(int(s.item()) for s in sizes), dtype=torch.uint8, device=device)
    padded[: len(data)] = torch.frombuffer(data, dtype=torch.uint8).to(device)
    parts = [torch.zeros_like(padded) for _ in sizes]
    dist.all_gather(parts, padded, group=group)
    return [json.loads(bytes(p[: int(s.item())].tolist())) for p, s in zip(parts, sizes, strict=True)]
