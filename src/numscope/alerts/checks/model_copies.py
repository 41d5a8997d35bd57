"""Which of a model's parameters and buffers other ranks hold too, and which ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from numscope.distributed.agree import spread, stage_of
from numscope.distributed.channel import members
from numscope.distributed.groups import Copies
from numscope.distributed.place import Places, fully_sharded_groups
from numscope.probe.naming import is_sharded, named_state
from numscope.records.faults import ours
from numscope.records.weak import Weak


@dataclass(frozen=True, slots=True)
class Copy:
    """A tensor of which other ranks have a copy; of a distributed one, this rank's part."""

    layer: str
    slot: str
    tensor: Tensor
    is_buffer: bool

    @property
    def name(self) -> str:
        return f"{self.layer}.{self.slot}".lstrip(".")


@dataclass(slots=True)
class Shared:
    """Ranks, and what each of them should hold with the same bits."""

    ranks: tuple[int, ...]
    assumed: bool = False  # nothing says that these ranks train one model together: they may, with collectives of the script's own
    copies: list[Copy] = field(default_factory=list)


class CopiesOf:
    """Finds a model's copies when asked, since wrappers and shards come and go."""

    _model: Weak[nn.Module] = Weak()

    def __init__(self, model: nn.Module, wrapper: nn.Module, names: Mapping[nn.Module, str]) -> None:
        self._model = model
        self._names = names
        self._places = Places(model, wrapper, lambda group: False)
        self._meshes: list[tuple[int, ...]] = []
        self._is_stage: bool | None = None  # not yet asked

    @property
    def is_joined(self) -> bool:
        """Within and after ``ddp.join()`` a rank without inputs takes no steps."""
        return bool(getattr(getattr(self._places.ddp, "_join_config", None), "enable", False))

    @property
    def are_pieces(self) -> bool:
        """Whether FSDP1 holds pieces of flat parameters under the names of whole ones."""
        return any(cls.__name__ == "FullyShardedDataParallel" for m in self._names for cls in type(m).__mro__)

    @property
    def averages_weights(self) -> bool:
        """Whether DDP has a communication hook, which may leave gradients different on purpose, as in local SGD."""
        return bool(getattr(self._places.ddp, "_comm_hooks", None))

    @property
    def averages(self) -> bool:
        """Whether DDP averages gradients, as it is made to."""
        return self._places.ddp is not None and not self.averages_weights

    @property
    def synchronizes(self) -> bool:
        """Whether DDP averages the gradients of a call that begins now: not within its ``no_sync``. True without DDP."""
        return bool(getattr(self._places.ddp, "require_backward_grad_sync", True))

    def data_ranks(self) -> tuple[tuple[int, ...], bool]:
        """The ranks that should get different data, and whether that is only assumed. Empty: this rank alone."""
        if not spread() or self._is_past:
            return (), False
        groups = [g for g in self._places.default("data", at=(self._model, "activation")) if not isinstance(g, Copies)]
        if groups or self._places.known:
            return tuple(sorted({rank for group in groups for rank in members(group)})), False
        return self._world(), True

    @property
    def _is_past(self) -> bool:
        """Whether the process group has ended by which the ranks were known: the script has begun another one."""
        try:
            for group in (*self._places.known, *filter(None, [getattr(self._places.ddp, "process_group", None)])):
                members(group)
        except ours(KeyError, ValueError):
            return True
        return False

    def find(self) -> list[Shared]:
        """Everything that this rank has a copy of, by the ranks that have the others, in the same order on all of them."""
        if not spread() or self.are_pieces or self._is_past:
            return []
        found: dict[tuple[int, ...], Shared] = {}
        self._meshes = self._find_meshes()
        ignored = self._ignored()
        modules = {name: module for module, name in self._names.items()}
        for layer, slot, tensor in named_state(self._names):
            if id(tensor) not in ignored:
                is_buffer = slot in modules[layer]._buffers
                for ranks in self._ranks_of(modules[layer], slot, tensor, is_buffer):
                    shared = found.setdefault(ranks, Shared(ranks, not self._places.known))
                    shared.copies.append(Copy(layer, slot, tensor, is_buffer))
        return list(found.values())

    def _ranks_of(self, module: nn.Module, slot: str, tensor: Any, is_buffer: bool) -> list[tuple[int, ...]]:
        places = self._places
        if not places.known:
            return [*filter(None, [self._world()])]
        if is_buffer:
            ddp = places.ddp
            return [members(ddp.process_group)] if ddp is not None and not ddp.broadcast_buffers else []
        if getattr(tensor, "allreduce", True) is False:  # Megatron's experts
            return []
        if hasattr(tensor, "placements"):
            groups = places.of(tensor, "parameter")[1]
            own = [members(group) for group in tensor.device_mesh.get_all_groups()]
        else:
            groups = places.default("parameter", at=(module, slot))
            own = [members(group) for group in (getattr(places.ddp, "process_group", None), *fully_sharded_groups(self._model)) if group]
        found = [members(group.group) for group in groups if isinstance(group, Copies)]
        if not hasattr(tensor, "placements") and places.ddp is None and not is_sharded(self._model):  # what fully_shard was not called on
            found += own
        # A mesh that splits other parameters, beside this one's own ranks: tensor parallelism, of which a plain norm knows nothing.
        beside = [ranks for ranks in self._meshes if all(len({*ranks} & {*each}) == 1 for each in own)]
        return [*dict.fromkeys([*found, *beside])]

    def _world(self) -> tuple[int, ...]:
        """All ranks, which may train one model together; of a pipeline's stage this one alone."""
        import torch.distributed as dist  # loads more of it than torch does

        if self._is_stage is None:
            self._is_stage = stage_of(self._model) is not None
        return () if self._is_stage else tuple(range(dist.get_world_size()))

    def _find_meshes(self) -> list[tuple[int, ...]]:
        """The ranks of each axis of the parameters' meshes."""
        meshes = dict.fromkeys(p.device_mesh for p in self._model.parameters() if hasattr(p, "device_mesh"))
        found = [members(group) for mesh in meshes for group in mesh.get_all_groups()]
        return [ranks for ranks in dict.fromkeys(found) if len(ranks) > 1]

    def _ignored(self) -> set[int]:
        """The parameters that DDP is to leave alone."""
        ddp = self._places.ddp
        names = getattr(ddp, "parameters_to_ignore", None)
        if not names:
            return set()
        return {id(t) for name, t in (*ddp.module.named_parameters(), *ddp.module.named_buffers()) if name in names}
