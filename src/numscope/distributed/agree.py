"""What all ranks must know before any of them acts: whether somebody's step went bad, and whose was first.

Every question is a collective, so every rank must ask it at the same place of its step. Questions are asked where the ranks meet anyway:
at the optimizer's step and after it. Never in an evaluation, never when a watch is closed: there one rank may well be alone. With gloo
they travel through host memory; with NCCL, which no test here runs, through the accelerator at work.
"""

from __future__ import annotations

import contextlib
import gc
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

log = logging.getLogger("numscope")

PATIENCE_S = 15.0  # for other ranks to watch the same model; those that train together arrive within the same step
REPORT_S = 5.0  # for the rank at fault to print its report
_POLL_S = 0.02
_WIDTH = 3  # of every question: a goodbye must fit whatever the others ask

_watches: Counter[str] = Counter()  # how many watches of the same kind of model this process has begun


def rank() -> int:
    """This process's global rank; before a process group exists, the one that torchrun gave it."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    given = os.environ.get("RANK", "0")
    return int(given) if given.isdecimal() else 0


def spread() -> bool:
    """Whether this process trains with others."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def among(group: Any = None) -> Any:
    """The given process group, else that of all ranks; None where this process is alone in it."""
    if not spread():
        return None
    group = dist.group.WORLD if group is None else group
    return group if dist.get_world_size(group) > 1 else None


class Ranks:
    """The ranks that train one model together, and the questions they ask each other.

    Their groups are looked for at the first question, when wrappers are in place: DDP's own, and those of the meshes over which FSDP2 or
    tensor parallelism has spread the parameters. A model that is watched on some ranks only is judged by each rank alone. A watch must be
    closed on all ranks or on none, as long as training goes on.

    Args:
        model: the watched module.
        wrapper: what the user gave, perhaps a DDP around it.

    *Cost:* a question is one collective of a few elements for each group; none in a process by itself.
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
        """Whether there are others to ask. Within ``ddp.join()``, and after it, there are not: a rank without inputs answers nobody."""
        if not spread():
            return False
        if self._groups is None:
            self._groups = self._find_groups()
        return bool(self._groups) and not getattr(getattr(self._ddp, "_join_config", None), "enable", False)

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """For each flag whether it is set on some rank. All ranks must ask; afterwards nobody asks again if one is leaving."""
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
            self._groups = []  # a peer is gone: nobody is asked again
            raise
        if values[0]:
            if not self._leaving:
                log.warning("numscope failed on another rank: from now on rank %d judges its steps alone", rank())
            self._groups = []
        return tuple(value > 0 for value in values[1 : 1 + len(flags)])

    def gather(self, value: Any) -> list[Any]:
        """The JSON-ready values of all ranks, this one's among them. All ranks must ask."""
        found = [value]
        if self.together:
            for group in self._groups or ():
                found = [one for part in gather(found, group) for one in part]
        return found

    def leave(self) -> None:
        """Answer the others' next question with a goodbye: this rank's watch has failed, theirs goes on alone."""
        self._leaving = True
        if self.together:
            self.any()

    def wait_for_report(self, mine: bool) -> None:
        """Before the ranks end: whoever started them may kill the others as soon as one has ended, in the middle of the report.

        Args:
            mine: this rank has printed it.
        """
        if not self.together:
            return
        with contextlib.suppress(Exception):  # the store goes with the rank that has it
            store, key = dist.distributed_c10d._get_default_store(), f"{self._key}/reported"
            if mine:
                store.set(key, "reported")
            end = time.monotonic() + REPORT_S
            while not store.check([key]) and time.monotonic() < end:
                time.sleep(_POLL_S)

    @contextlib.contextmanager
    def owed(self) -> Iterator[None]:
        """Where the others are about to ask: if this rank fails before it has asked too, they are told so."""
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
        """Whether each rank of a group watches this model."""
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
    """What all ranks call the same watch: its purpose, the kind of model, and how many of them this process has begun."""
    names = ",".join(name for name, _ in model.named_parameters())
    kind = f"{purpose}{type(model).__name__}-{hashlib.sha1(names.encode(), usedforsecurity=False).hexdigest()[:16]}"
    _watches[kind] += 1
    return f"{kind}-{_watches[kind]}"


def find_ddp(model: nn.Module, wrapper: nn.Module) -> Any:
    """The DDP around the model, in it, or around a larger one. *Cost:* one walk over all objects where it is only around a larger one."""
    kind = nn.parallel.DistributedDataParallel
    for module in (wrapper, *model.modules()):
        if isinstance(module, kind):
            return module
    for candidate in [o for o in gc.get_objects() if issubclass(type(o), kind)]:
        if any(m is model for m in candidate.modules()):
            return candidate
    return None


def together(place: str, keys: Sequence[str]) -> bool:
    """Whether all have come, each of whom has set a key. Who comes first decides for all: nobody asks those who will not answer.

    Args:
        place: where the verdict is kept, the same for all who ask; each may be asked about once.
    """
    store = dist.distributed_c10d._get_default_store()
    end = time.monotonic() + PATIENCE_S
    pause = _POLL_S / 100  # they mostly come at the same moment
    while not (complete := store.check(list(keys))) and not store.check([f"{place}/verdict"]) and time.monotonic() < end:
        time.sleep(pause)
        pause = min(2 * pause, _POLL_S)
    if store.add(f"{place}/first", 1) == 1:
        store.set(f"{place}/verdict", "together" if complete else "alone")
    return bool(store.get(f"{place}/verdict") == b"together")


def in_all_ranks(values: Sequence[str], purpose: str) -> set[str]:
    """Those of this rank's values that every rank has, of the ranks that say something within ``PATIENCE_S``.

    *Cost:* one entry in the store; a rank without values does not wait for the others.
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
    """Where a group's collectives take tensors: in host memory if it can, else on the accelerator at work."""
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
