"""How Megatron-LM distributes a model's tensors: the process groups of its ``parallel_state``, and the tensors between its modules.

Megatron is not imported: a process that runs one of its models has already loaded it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch.distributed as dist
from torch import nn

from numscope.distributed.groups import Copies, Groups
from numscope.records.heap import instances_of
from numscope.summary.sketch import Piece

_STATE = "megatron.core.parallel_state"
_PARALLEL = "megatron.core.distributed.distributed_data_parallel"
# Modules between a column-parallel and a row-parallel layer, whose tensors are split over tensor-parallel ranks: heads, inner features.
_BETWEEN = ("core_attention", "q_layernorm", "k_layernorm", "activation_func")


def layout_of(model: nn.Module, several: Callable[[Any], Any] | None = None) -> ParallelLayout | None:
    """The layout of a model that consists of Megatron's modules; None for other models, and before the groups exist.

    Args:
        several: returns a group, or the one that represents it, if it has several ranks; else None.
    """
    state = sys.modules.get(_STATE)
    if state is None or not state.is_initialized() or not any(is_megatrons(module) for module in model.modules()):
        return None
    return ParallelLayout(model, state, several or _several)


def gradient_shards(model: nn.Module) -> Iterator[tuple[nn.Parameter, Piece]]:
    """The stretch of each parameter's gradient that the distributed optimizer gets on this rank, perhaps without elements.

    Megatron reduces each bucket of its gradient buffer to one equal part a rank; the rest of ``main_grad`` is this rank's own alone.
    *Cost:* where Megatron is loaded, one walk over all objects.
    """
    parallel = sys.modules.get(_PARALLEL)
    for wrapper in () if parallel is None else instances_of(parallel.DistributedDataParallel):
        is_its = any(module is model for module in wrapper.modules())
        for group in (*wrapper.bucket_groups, *wrapper.expert_parallel_bucket_groups) if is_its else ():
            num_parts = getattr(group, "intra_distributed_optimizer_instance_size", 1)  # absent without such an optimizer
            for bucket in group.buckets if num_parts > 1 else ():
                data = bucket.grad_data
                num = data.numel() // num_parts
                low = num * group.intra_distributed_optimizer_instance_rank
                for parameter in bucket.params_list:
                    begin = parameter.main_grad.storage_offset() - data.storage_offset()
                    first, end = max(low, begin), min(low + num, begin + parameter.numel())
                    yield parameter, Piece.stretch(data[first : max(first, end)], max(0, first - begin), parameter.shape)


class ParallelLayout:
    """The tensor- and data-parallel groups of one model, and over which of them each tensor is split or copied.

    Data parallelism includes context parallelism: in both, each rank has different data.

    Args:
        model: contains Megatron's modules.
        state: ``megatron.core.parallel_state``, initialized.
        several: as of ``layout_of``.

    Attributes:
        groups: those with several ranks, the data-parallel group first; in the same order on all ranks.
    """

    def __init__(self, model: nn.Module, state: Any, several: Callable[[Any], Any]) -> None:
        self._data = several(state.get_data_parallel_group(with_context_parallel=True))
        self._tensor = several(state.get_tensor_model_parallel_group())
        self.groups: list[Any] = [group for group in (self._data, self._tensor) if group is not None]
        self._sequence = any(getattr(getattr(m, "config", None), "sequence_parallel", False) for m in model.modules())
        self._between = set(_below(model, _BETWEEN))
        self._root = model

    def of_parameter(self, parameter: Any) -> Groups:
        """A parameter, or the gradient that the optimizer gets: equal on data-parallel ranks. Megatron marks parameters that it splits."""
        is_split = bool(getattr(parameter, "tensor_model_parallel", False))
        return (*self._copies(self._data), *self._over_tensor(is_split))

    def of_data(self, module: nn.Module, tensor: str) -> Groups:
        """A module's inputs and outputs: ``activation`` and ``dgrad`` belong to the input, ``output`` and ``gradient`` to the output;
        ``local_wgrad`` is split as the weight is.
        """
        data = () if self._data is None else (self._data,)
        if tensor == "local_wgrad":
            return (*data, *self._over_tensor(bool(getattr(module._parameters.get("weight"), "tensor_model_parallel", False))))
        return (*data, *self._over_tensor(self._is_spread(module, at_input=tensor in ("activation", "dgrad"))))

    def _over_tensor(self, is_spread: bool) -> Groups:
        if self._tensor is None:
            return ()
        return (self._tensor,) if is_spread else self._copies(self._tensor)

    @staticmethod
    def _copies(group: Any) -> Groups:
        return () if group is None else (Copies(group, dist.get_rank() == min(dist.get_process_group_ranks(group))),)

    def _is_spread(self, module: nn.Module, *, at_input: bool) -> bool:
        """Whether each tensor-parallel rank has different elements there."""
        kinds = {cls.__name__ for cls in type(module).__mro__}
        mode = getattr(module, "parallel_mode", None)  # in Transformer Engine's layers
        if "ColumnParallelLinear" in kinds or mode == "column":
            return self._sequence_of(module) if at_input else not getattr(module, "gather_output", False)
        if "RowParallelLinear" in kinds or mode == "row":
            return getattr(module, "input_is_parallel", True) if at_input else self._sequence_of(module)
        if "VocabParallelEmbedding" in kinds:
            return bool(getattr(module, "reduce_scatter_embeddings", False))
        if module in self._between:
            return True
        if module is self._root or isinstance(module, nn.Embedding):  # the loss; position embeddings, all of which each rank looks up
            return False
        return self._sequence

    def _sequence_of(self, module: nn.Module) -> bool:
        return bool(getattr(module, "sequence_parallel", self._sequence))


def is_megatrons(module: nn.Module) -> bool:
    return any(cls.__module__.startswith("megatron.core.") for cls in type(module).__mro__)


def _several(group: Any) -> Any:
    """The group if it has other ranks than this one."""
    return group if group is not None and dist.get_world_size(group) > 1 else None


def _below(module: nn.Module, names: Sequence[str]) -> Iterator[nn.Module]:
    """The modules under one of these attributes, and all modules in them."""
    for parent in module.modules():
        for name, child in parent.named_children():
            if name in names:
                yield from child.modules()
