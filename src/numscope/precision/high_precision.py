"""The cheapest cure for an overflow: one module computes in higher precision, and the rest of the model stays as it is."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from numscope.records.errors import UsageError
from numscope.records.faults import ours

COMPUTE_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_FSDP_UNITS = frozenset({"FSDPModule", "FullyShardedDataParallel"})
_LOOKUPS = (nn.Embedding, nn.EmbeddingBag)  # their matrices are not multiplied, so autocast does not cast them


def high_precision(
    module: nn.Module, dtype: torch.dtype = torch.float32, *, output_dtype: torch.dtype | None = None
) -> HighPrecisionForward:
    """Make one module compute in ``dtype`` with autocast off, and return its outputs in their original dtypes.

    Floating-point inputs (also nested ones and keyword arguments), parameters and buffers are cast for the computation. Parameters are
    still stored and optimized in their own dtype, and their gradients arrive in it. What is as wide as ``dtype`` is not cast, so a module
    that computes in ``dtype`` anyway gives bitwise the same results. Integer, bool and complex tensors are never changed.

    The original dtypes of the outputs are found once for each combination of input dtypes and autocast state, by running the forward on
    tensors without data and a copy of the module without hooks. Where that fails (data-dependent control flow, other objects among the
    arguments such as a cache, ``torch.compile``), a rule is used: a Linear or convolution under autocast returns autocast's dtype, any
    other module the widest dtype among its inputs (and, without autocast, its parameters).

    **A result that is too large for its original dtype overflows again when it is cast back.** Then apply this to the larger module that
    brings it back into range, or keep the wide values with ``output_dtype=torch.float32`` if the following modules accept them.

    Args:
        module: any module, such as ``model.encoder.block[2].layer[1]``. It may be shared and hold shared weights. Not supported are
            modules that hold FSDP units (use a unit, or a module within one), tensor-parallel weights, TorchScript, ``nn.DataParallel``,
            and modules within which activation checkpointing begins (use the checkpointed module, or one within it).
        dtype: float32, float64, bfloat16 or float16.
        output_dtype: return floating-point outputs in this dtype instead of their original ones.

    Returns: A handle with ``remove()``, which is also a context manager. When it is removed, nothing is left on the module.

    Raises: UsageError: an argument is wrong or the module is not supported; at the call, a weight is a DTensor.

    *Cost:* a cast copy of inputs and weights per call, kept until backward, and the cost of computing in ``dtype``.
    """
    if not isinstance(module, nn.Module):
        raise UsageError(
            f"high_precision: module: got {type(module).__name__}, expected a torch.nn.Module. "
            "Pass the module itself, such as model.encoder.block[2].layer[1].DenseReluDense."
        )
    for name, wanted in (("dtype", dtype), ("output_dtype", output_dtype)):
        if wanted not in COMPUTE_DTYPES and not (name == "output_dtype" and wanted is None):
            raise UsageError(
                f"high_precision: {name}: got {wanted!r}, expected one of {', '.join(map(str, COMPUTE_DTYPES))}. "
                "Use float32 to cure an overflow of float16."
            )
    if isinstance(module, torch.jit.ScriptModule):
        raise UsageError("high_precision: module: got a TorchScript module, expected a Python one. Apply it before torch.jit.script.")
    for name, child in module.named_modules():
        unit = next((c.__name__ for c in type(child).__mro__ if c.__name__ in _FSDP_UNITS), None)
        if unit is not None and (child is not module or unit == "FullyShardedDataParallel"):
            raise UsageError(
                f"high_precision: module: its submodule {name or '(itself)'!r} is an FSDP unit ({unit}), whose weights are gathered only "
                "after they would be cast; expected a module without FSDP units inside. Apply it to that unit's own submodules."
            )
    return HighPrecisionForward(module, dtype, output_dtype)


class HighPrecisionForward:
    """A module's forward in high precision, and the handle that removes it; made by ``high_precision``.

    While it is on, it is the module's instance attribute ``forward``. A deep copy of the module has a copy of it, which works on the
    copy's weights: ``copy.forward.remove()`` removes that one.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype, output_dtype: torch.dtype | None) -> None:
        self.module = module
        self.dtype = dtype
        self.output_dtype = output_dtype
        self._previous: Callable[..., Any] | None = module.__dict__.get("forward")  # None: the class's own
        self._learned: dict[Any, tuple[torch.dtype | None, ...] | None] = {}
        self._active = True
        module.forward = self

    def remove(self) -> None:
        """Remove it. A second call does nothing. Handles on the same module may be removed in any order."""
        if not self._active:
            return
        self._active = False
        own = self.module.__dict__
        if own.get("forward") is self:
            if self._previous is None:
                del own["forward"]
            else:
                own["forward"] = self._previous
            return
        above = own.get("forward")
        while isinstance(above, HighPrecisionForward):
            if above._previous is self:
                above._previous = self._previous
                return
            above = above._previous
        # Something else has wrapped it since and holds a reference: from now on it only passes the call on.

    def __enter__(self) -> HighPrecisionForward:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"HighPrecisionForward({type(self.module).__name__}, {self.dtype}{'' if self._active else ', removed'})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_learned": {}}

    @property
    def __signature__(self) -> inspect.Signature:  # a Trainer drops data columns that are not in it
        return inspect.signature(self._inner())

    def _inner(self, module: nn.Module | None = None) -> Callable[..., Any]:
        """The forward below this one, bound to the module (or to a copy of it)."""
        if module is not None and isinstance(self._previous, HighPrecisionForward):
            return self._previous._inner(module)
        if self._previous is not None:
            return self._previous
        module = self.module if module is None else module
        return type(module).forward.__get__(module)  # type: ignore[no-any-return]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._active:
            return self._inner()(*args, **kwargs)
        leaves = _leaves((args, kwargs))
        device = next((value.device.type for value in (*leaves, *self.module.parameters()) if isinstance(value, Tensor)), "cpu")
        is_on = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        autocast = torch.get_autocast_dtype(device) if is_on else None
        learned = None if self.output_dtype is not None else self._learned_dtypes(args, kwargs, leaves, autocast)
        rule = self.output_dtype or _output_dtype_by_rule(self.module, leaves, autocast)

        wide_args, wide_kwargs = _map_leaves(lambda leaf: _cast_up(leaf, self.dtype), (args, kwargs))
        with contextlib.nullcontext() if autocast is None else torch.autocast(device, enabled=False), _cast_state(self.module, self.dtype):
            output = self._inner()(*wide_args, **wide_kwargs)

        results = _leaves(output)
        targets = learned if learned is not None and len(learned) == len(results) else (rule,) * len(results)
        # Only results in the computation's dtype are cast back: the module itself has cast the others.
        back = [
            result.to(target) if target is not None and _is_floating(result) and result.dtype in (self.dtype, target) else result
            for result, target in zip(results, targets, strict=True)
        ]
        if all(new is old for new, old in zip(back, results, strict=True)):
            return output
        remaining = iter(back)
        return _map_leaves(lambda _: next(remaining), output)

    def _learned_dtypes(
        self, args: Any, kwargs: Any, leaves: list[Any], autocast: torch.dtype | None
    ) -> tuple[torch.dtype | None, ...] | None:
        """The original dtype of each leaf of the output; None if it can't be found."""
        if torch.compiler.is_compiling():
            return None
        kinds = tuple((leaf.dtype, leaf.ndim) if isinstance(leaf, Tensor) else type(leaf) for leaf in leaves)
        weights = frozenset(p.dtype for p in self.module.parameters())
        key = (kinds, tuple(kwargs), weights, autocast, self.module.training)
        if key not in self._learned:
            self._learned[key] = _learn_dtypes(self, args, kwargs, leaves)
        return self._learned[key]


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _cast_up(value: Any, dtype: torch.dtype) -> Any:
    """A floating-point tensor in ``dtype``, unless its own is wider; anything else unchanged."""
    if not _is_floating(value) or value.dtype == dtype or torch.finfo(value.dtype).bits > torch.finfo(dtype).bits:
        return value
    return value.to(dtype)


def _map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """The same structure with each leaf replaced, within tuples, lists, dicts, ModelOutputs (torch's pytree) and dataclasses."""

    def replace(leaf: Any) -> Any:
        if not dataclasses.is_dataclass(leaf) or isinstance(leaf, type):
            return function(leaf)
        clone = copy.copy(leaf)
        for field in dataclasses.fields(leaf):
            object.__setattr__(clone, field.name, _map_leaves(function, getattr(leaf, field.name)))  # frozen ones too
        return clone

    return pytree.tree_map(replace, value)


def _leaves(value: Any) -> list[Any]:
    found: list[Any] = []

    def note(leaf: Any) -> Any:
        found.append(leaf)
        return leaf

    _map_leaves(note, value)
    return found


def _output_dtype_by_rule(module: nn.Module, leaves: list[Any], autocast: torch.dtype | None) -> torch.dtype | None:
    """A guess at the output's dtype, which errs on the wide side; None if there are no floating-point tensors."""
    inputs = [leaf.dtype for leaf in leaves if _is_floating(leaf)]
    own = [p for p in module._parameters.values() if _is_floating(p)]
    if autocast is not None and torch.float64 not in inputs:
        if any(p.ndim > 1 for p in own if p is not None) and not isinstance(module, _LOOKUPS):
            return autocast  # a Linear, a convolution
        dtypes = inputs or [p.dtype for p in module.parameters() if _is_floating(p)]
    else:
        dtypes = inputs + [p.dtype for p in module.parameters() if _is_floating(p)]
    widest = None
    for dtype in dtypes:
        widest = dtype if widest is None else torch.promote_types(widest, dtype)
    return widest


def _version(tensor: Tensor) -> int:
    # Inference tensors have no version, nor have tensors in a graph that is being compiled.
    return 0 if torch.compiler.is_compiling() or tensor.is_inference() else tensor._version


def _written(stored: Tensor, cast: Tensor, version: int) -> bool:
    """Whether the cast copy may have been written to; where that is unknown, whether copying it back unchanged would be exact."""
    if torch.compiler.is_compiling():
        return torch.finfo(stored.dtype).bits < torch.finfo(cast.dtype).bits
    return _version(cast) != version


@contextlib.contextmanager
def _cast_state(module: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Replace the floating-point parameters and buffers of the module and its children by cast copies; autograd sees the casts."""
    swapped: list[tuple[MutableMapping[str, Any], str, Tensor, Tensor, bool]] = []
    flat: list[tuple[nn.RNNBase, list[Any]]] = []
    casts: dict[int, Tensor] = {}  # a weight shared within the module is cast once
    updating: set[int] = set()  # buffers of norms that write their running statistics, which changes no version
    try:
        for name, child in module.named_modules():
            for mapping, is_buffer in ((child._parameters, False), (child._buffers, True)):
                for key, tensor in list(mapping.items()):
                    if tensor is None or not tensor.is_floating_point():
                        continue
                    if hasattr(tensor, "device_mesh"):  # a DTensor, recognized without loading torch.distributed
                        where = f"{name}.{key}" if name else key
                        raise UsageError(
                            f"high_precision: {type(module).__name__}: its {where} is a DTensor at the call, expected plain weights. "
                            "Under FSDP apply it to the sharded unit or to a module within it; tensor parallelism is not supported."
                        )
                    if tensor.dtype == dtype:
                        continue
                    cast = casts.get(id(tensor))
                    if cast is None:
                        cast = casts[id(tensor)] = _cast_up(tensor, dtype)
                    if cast is tensor:
                        continue
                    swapped.append((mapping, key, tensor, cast, is_buffer))
                    mapping[key] = cast
            if isinstance(child, nn.modules.batchnorm._NormBase) and child.training:
                updating.add(id(child._buffers))
            if isinstance(child, nn.RNNBase) and casts:
                flat.append((child, child._flat_weights))  # a second list of the weights, which the kernels read
                child._flat_weights = [child._parameters.get(key) for key in child._flat_weights_names]
        versions = [_version(cast) if is_buffer else 0 for *_, cast, is_buffer in swapped]
        yield
        for (mapping, key, tensor, cast, is_buffer), version in zip(swapped, versions, strict=True):
            now = mapping.get(key)
            if is_buffer and isinstance(now, Tensor) and (now is not cast or id(mapping) in updating or _written(tensor, cast, version)):
                with torch.no_grad():  # in place, or by a new tensor
                    tensor.copy_(now)
    finally:
        for mapping, key, tensor, *_ in swapped:
            mapping[key] = tensor
        for rnn, weights in flat:
            rnn._flat_weights = weights


def _learn_dtypes(precision: HighPrecisionForward, args: Any, kwargs: Any, leaves: list[Any]) -> tuple[torch.dtype | None, ...] | None:
    """Run the forward on a copy of the module with fake tensors (no data): this changes no hook, number or random state."""
    known = (Tensor, bool, int, float, complex, str, type(None), torch.dtype, torch.device)
    if not all(isinstance(leaf, known) for leaf in leaves):
        return None  # the forward could write to such an object, for example a cache
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        mode = FakeTensorMode()
        fakes: dict[int, Any] = {}

        def fake(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            if id(value) not in fakes:
                fakes[id(value)] = mode.from_tensor(value.detach())
            return fakes[id(value)]

        inner = precision._inner(_fake_copy(precision.module, fake, {}))
        fake_args, fake_kwargs = _map_leaves(fake, (args, kwargs))
        with _disable_current_modes(), mode, torch.no_grad():  # hidden from a replay that records operations
            output = inner(*fake_args, **fake_kwargs)
    except ours():  # data-dependent control flow, an operator without a fake version
        return None
    return tuple(leaf.dtype if _is_floating(leaf) else None for leaf in _leaves(output))


def _fake_copy(module: nn.Module, fake: Callable[[Any], Any], made: dict[int, nn.Module]) -> nn.Module:
    """A copy of the module tree with fake weights and without hooks. Everything else is shared with the original."""
    if id(module) in made:
        return made[id(module)]
    copied = made[id(module)] = object.__new__(type(module))
    own = dict(module.__dict__)
    own.pop("forward", None)
    for key, value in module.__dict__.items():
        if key.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called")) and isinstance(value, dict):
            own[key] = OrderedDict()
    own["_parameters"] = {key: fake(value) for key, value in module._parameters.items()}
    own["_buffers"] = {key: fake(value) for key, value in module._buffers.items()}
    own["_modules"] = {key: None if child is None else _fake_copy(child, fake, made) for key, child in module._modules.items()}
    copied.__dict__.update(own)
    if isinstance(copied, nn.RNNBase):
        copied.__dict__["_flat_weights"] = [copied._parameters.get(key) for key in copied._flat_weights_names]
    return copied
