"""What the modules' constructors share: checks of arguments, and Transformer Engine's arguments that have no effect here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from numscope.records.errors import UsageError
from numscope.records.words import nearest

Init = Callable[[Tensor], object]

INIT_STD = 0.023  # of weights without an init_method, as in Transformer Engine

# Arguments of Transformer Engine that choose how the same numbers are computed or communicated. Without tensor parallelism they change
# nothing there either, so they are accepted and ignored.
_WITHOUT_EFFECT = frozenset(
    "micro_batch_size parallel_mode return_layernorm_output_gathered seq_length sequence_parallel set_parallel_mode "
    "ub_bulk_dgrad ub_bulk_wgrad ub_name ub_overlap_ag ub_overlap_rs ub_overlap_rs_dgrad".split()
)
# Arguments that are not supported: the only value that is accepted, and what to do instead.
_UNSUPPORTED: Mapping[str, tuple[object, str]] = {
    "delay_wgrad_compute": (False, "The weight's gradient is computed in backward."),
    "fuse_wgrad_accumulation": (False, "Gradients are accumulated in .grad."),
    "get_rng_state_tracker": (None, "Seed torch's own generator; without tensor parallelism no tracker is needed."),
    "symmetric_ar_type": (None, "Nothing is reduced without tensor parallelism."),
    "tp_group": (None, "Split the module with torch.distributed.tensor.parallel, or use the framework's own layers with convert()."),
    "tp_size": (1, "Split the module with torch.distributed.tensor.parallel, or use the framework's own layers with convert()."),
}


def check_others(cls: type[nn.Module], given: Mapping[str, object]) -> None:
    """Accept arguments of Transformer Engine that a constructor does not name and that have no effect here; raise UsageError for others."""
    where = cls.__name__
    for name, value in given.items():
        if name in _WITHOUT_EFFECT:
            continue
        if name not in _UNSUPPORTED:
            raise UsageError(f"{where}: {name} is not an argument.{nearest(name, _known(cls))}")
        without, instead = _UNSUPPORTED[name]
        if value != without and not _of_one_rank(value):
            raise UsageError(f"{where}: {name}: got {value!r}, expected {without!r}: these modules do not support it. {instead}")


def _known(cls: type[nn.Module]) -> list[str]:
    return sorted({*inspect.signature(cls).parameters, *_WITHOUT_EFFECT, *_UNSUPPORTED} - {"others"})


def device_for(device: torch.device | str | None) -> torch.device:
    """Where parameters go: the given device, else torch's default device if one is set, else CUDA if available."""
    if device is not None:
        return torch.device(device)
    default = torch.get_default_device()
    return torch.device("cuda") if default.type == "cpu" and torch.cuda.is_available() else default


def new_parameter(shape: Sequence[int], device: torch.device, dtype: torch.dtype | None) -> nn.Parameter:
    """An uninitialized parameter; dtype None: torch's default."""
    return nn.Parameter(torch.empty(tuple(shape), device=device, dtype=torch.get_default_dtype() if dtype is None else dtype))


def fill(parameter: nn.Parameter, init: Init | None) -> None:
    """Initialize a parameter; init None: normal with mean 0 and standard deviation 0.023. A parameter on ``meta`` stays as it is."""
    if parameter.device.type == "meta":
        return
    with torch.no_grad():
        if init is None:
            parameter.normal_(0.0, INIT_STD)
        else:
            init(parameter)


def as_activation(bias: Tensor | None, x: Tensor) -> Tensor | None:
    """A bias that forward returns: under torch's autocast in the activation's dtype."""
    return bias if bias is None or not torch.is_autocast_enabled(x.device.type) else bias.to(x.dtype)


def _of_one_rank(value: Any) -> bool:
    """Whether it is a process group of this process alone."""
    size = getattr(value, "size", None)
    return callable(size) and not isinstance(value, Tensor) and size() == 1
