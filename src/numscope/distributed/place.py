"""The ranks over which a tensor's numbers merge: process groups of the model's wrappers, of a tensor's placements, or set by the user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from numscope.distributed.agree import find_ddp, spread
from numscope.distributed.channel import members
from numscope.distributed.groups import Copies, Groups
from numscope.distributed.megatron import ParallelLayout, layout_of
from numscope.records.weak import Weak

Kind = Literal["data", "parameter", "gradient"]
Members = tuple[int, ...]  # global ranks, ascending
At = tuple[nn.Module, str]  # a module, and the name of its parameter or of its data: "activation", "output", …


class Refused(Exception):
    """A tensor's numbers can't be determined; the message gives the reason."""


class Places:
    """How one model's tensors are distributed over ranks.

    Data (activations, outputs and their gradients) merges over the data-parallel groups: DDP's group, the mesh axes of FSDP2. A distributed
    tensor's placements take precedence: it merges over the axes on which it is sharded, and counts once over those on which it is
    replicated. A plain parameter is the same on all ranks of a DDP. Other plain tensors are treated as different on each rank.

    The groups are looked up at the first use, when wrappers are in place.

    Args:
        model: the watched module.
        wrapper: the module that the user passed, perhaps a DDP around the model.
        meet: whether all ranks of a group have reached the same point, so that a collective is safe.
    """

    _model: Weak[nn.Module] = Weak()
    _wrapper: Weak[nn.Module] = Weak()

    def __init__(self, model: nn.Module, wrapper: nn.Module, meet: Callable[[Any], bool]) -> None:
        self._model = model
        self._wrapper = wrapper
        self._meet = meet
        self._given: dict[str | None, Any] = {}  # by layer; None: all layers
        self._known: list[Any] | None = None
        self._by_members: dict[Members, Any] = {}  # only the first of several groups with the same members is used
        self._data: Groups = ()
        self._ddp: Any = None
        self._ddp_groups: Groups = ()
        self._layout: ParallelLayout | None = None  # for Megatron's modules, whose tensors carry no placements
        self._cache: dict[Any, Groups] = {}

    @property
    def ddp(self) -> Any:
        """The DDP around the model, or None."""
        self._look()
        return self._ddp

    @property
    def known(self) -> list[Any]:
        """All groups of more than one rank, in the same order on all ranks.

        The user's groups come first, sorted by their members, then the data-parallel groups, then the axes of the parameters' meshes from
        outermost to innermost. Groups known only from a tensor's own mesh come last; all ranks of that mesh know them.
        """
        return self._look()

    def set_group(self, group: Any, layer: str | None = None) -> None:
        """Merge over this process group instead of the data-parallel groups, including plain parameters. All its ranks must call this.

        Args:
            group: a process group; None: the groups that are found.
            layer: only for this layer; None: for all layers without a separate group.
        """
        if group is None:
            self._given.pop(layer, None)
        else:
            self._given[layer] = group
        self._known = None
        self._by_members.clear()
        self._cache.clear()

    @property
    def has_given(self) -> bool:
        return bool(self._given)

    def is_given(self, group: Any) -> bool:
        """Whether the user set this group."""
        return any(group is given for given in self._given.values())

    def default(self, kind: Kind, layer: str | None = None, at: At | None = None) -> Groups:
        """The groups of a plain tensor, by its module for frameworks whose modules determine how plain tensors are distributed."""
        if not self._look():
            return ()
        key = layer if layer in self._given else None
        if key in self._given:
            group = self._canonical(self._given[key])
            return () if group is None else (group,)
        if self._layout is not None and at is not None:
            module, tensor = at
            return self._layout.of_data(module, tensor) if kind == "data" else self._layout.of_parameter(module._parameters.get(tensor))
        return self._data if kind == "data" else self._ddp_groups

    def of(self, tensor: Any, kind: Kind, layer: str | None = None) -> tuple[Tensor, Groups]:
        """The part of a tensor on this rank, and the groups over which the parts merge.

        Args:
            tensor: any tensor; of a distributed tensor the local part is returned, which may be empty.
            layer: the layer's name, for groups that were set for one layer.

        Raises: Refused if the part is a summand (``Partial``) that can't be summed.

        *Cost:* none, except for ``Partial``: one collective of the tensor's size, and a synchronization of its ranks at the store.
        """
        if not hasattr(tensor, "placements"):  # not a DTensor; importing its module for the check would load a lot
            return tensor, self.default(kind, layer)
        self._look()
        if any(p.is_partial() for p in tensor.placements):
            tensor = self._summed(tensor)
        key = (tensor.device_mesh, tensor.placements, kind, layer if layer in self._given else None)
        groups = self._cache.get(key)
        if groups is None:
            groups = self._cache[key] = self._of_placements(tensor.device_mesh, tensor.placements, kind, layer)
        local: Tensor = tensor._local_tensor
        return local, groups

    # ---- of a distributed tensor

    def _of_placements(self, mesh: Any, placements: Any, kind: Kind, layer: str | None) -> Groups:
        if mesh.get_coordinate() is None:
            return ()
        groups_of_axes = zip(self._axes(mesh), placements, strict=True)
        axes = [(group, placement) for group, placement in groups_of_axes if group is not None]
        spans = [set(members(group)) for group, _ in axes]
        outer = self.default(kind, layer) if kind == "data" else self._ddp_groups
        groups: list[Any] = []
        for group in outer:  # an axis of the tensor's own mesh is more precise than the data-parallel group
            mine = set(members(group.group if isinstance(group, Copies) else group))
            if not any(mine <= span for span in spans):
                groups.append(group)
        wide = [set(members(g)) for g in groups if not isinstance(g, Copies)]
        for (group, placement), span in zip(axes, spans, strict=True):
            within = any(span < other for other in wide)
            if placement.is_replicate():
                first = dist.get_rank() == min(span)
                groups.append(Copies(group, first, silent=within and not first))
            elif not within:  # Shard, _StridedShard, and other placements with different elements on each rank
                groups.append(group)
        return tuple(groups)

    def _summed(self, tensor: Any) -> Any:
        """The same tensor with its summands summed by one collective of its size: extrema of a sum can't be derived from the summands."""
        from torch.distributed.tensor import Replicate

        strange = next((p for p in tensor.placements if p.is_partial() and type(p).__name__ != "Partial"), None)
        if strange is not None:  # a masked one would lose the mask that its reduction needs
            raise Refused(f"its elements are {type(strange).__name__} over ranks, which only the operation that made them can reduce")
        groups = self._axes(tensor.device_mesh)
        for group, placement in zip(groups, tensor.placements, strict=True):
            if placement.is_partial() and group is not None and not self._meet(group):
                raise Refused(f"its elements are {placement} over ranks {list(members(group))}, not all of which observe it")
        whole = [Replicate() if p.is_partial() else p for p in tensor.placements]
        with torch.no_grad():
            return tensor.detach().redistribute(tensor.device_mesh, whole)

    # ---- the model's groups

    def _look(self) -> list[Any]:
        if self._known is not None:
            return self._known
        if not spread():
            return []
        found: list[Any] = sorted((g for g in map(self._canonical, self._given.values()) if g is not None), key=members)
        model: nn.Module | None = self._model
        if model is None:  # it is gone, and nothing comes of it any more
            self._known = found
            return found
        if self._ddp is None:
            self._ddp = find_ddp(model, self._wrapper)
        ddp = self._canonical(getattr(self._ddp, "process_group", None))
        self._ddp_groups = () if ddp is None else (Copies(ddp, dist.get_rank() == members(ddp)[0]),)
        self._layout = layout_of(model, self._canonical)
        data = [ddp] if ddp is not None else [g for g in map(self._canonical, fully_sharded_groups(model)) if g is not None]
        self._data = tuple(data)
        found += data
        if self._layout is not None:
            found += self._layout.groups
        meshes = [p.device_mesh for p in model.parameters() if hasattr(p, "device_mesh")]
        for mesh in meshes:
            if mesh.get_coordinate() is not None:
                found += [g for g in self._axes(mesh) if g is not None]
        self._known = list(dict.fromkeys(found))
        return self._known

    def _axes(self, mesh: Any) -> list[Any]:
        """A group for each axis of a mesh; None for an axis of one rank."""
        return [self._canonical(group) for group in mesh.get_all_groups()]

    def _canonical(self, group: Any) -> Any:
        """The first known group with the same members; None for a group of one rank."""
        if group is None or group is dist.GroupMember.NON_GROUP_MEMBER or dist.get_world_size(group) == 1:
            return None
        return self._by_members.setdefault(members(group), group)

    def adopt(self, groups: Iterable[Any]) -> None:
        """Append these groups to the known ones."""
        known = self._look()
        known += [g for g in groups if g not in known]


def _fully_sharded(model: nn.Module) -> Iterator[tuple[nn.Module, list[Any]]]:
    """FSDP2's modules of a model, each with its private records of the parameters that it gathers; none if they are not found."""
    for module in model.modules():
        # Compared by name: importing the class would load all of FSDP.
        if any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__):
            state = module._get_fsdp_state()  # type: ignore[operator]
            owned = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
            yield module, [group for group in owned if group is not None]  # none if inner modules have all parameters


def gathered_parameters(model: nn.Module) -> list[Any]:
    """The parameters that FSDP2 puts into the graph in place of a model's own."""
    sharded = [p for _, owned in _fully_sharded(model) for group in owned for p in getattr(group, "fsdp_params", ())]
    return [parameter for p in sharded if (parameter := getattr(p, "_unsharded_param", None)) is not None]


def fully_sharded_groups(model: nn.Module) -> list[Any]:
    """The groups over which FSDP2's outermost module has different data: the axis that replicates, and the axis that shards.

    FSDP2 has no public attribute for its part of a mesh. If its private record is not found, the parameters' first axis is used, since data
    parallelism is outermost.
    """
    sharded = list(_fully_sharded(model))
    for _, owned in sharded:
        infos = [group.mesh_info for group in owned]
        groups = [getattr(info, name, None) for info in infos[:1] for name in ("replicate_process_group", "shard_process_group")]
        if any(group is not None for group in groups):
            return [group for group in groups if group is not None]
    meshes = (p.device_mesh for module, _ in sharded for p in module.parameters() if hasattr(p, "device_mesh"))
    return [group for mesh in meshes for group in mesh.get_all_groups()][:1]
