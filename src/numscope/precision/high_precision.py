"""The cheapest cure of an overflow: one module computes in a higher precision, the rest of the model stays as it is."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from numscope.records.errors import UsageError

COMPUTE_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_FSDP_UNITS = frozenset({"FSDPModule", "FullyShardedDataParallel"})
_LOOKUPS = (nn.Embedding, nn.EmbeddingBag)  # matrices that no matrix product sees: autocast leaves them alone


def high_precision(module: nn.Module, dtype: torch.dtype = torch.float32, *, output_dtype: torch.dtype | None = None) -> HighPrecision:
    """Make one module compute with autocast off in ``dtype`` and give its outputs back in the dtypes they had.

    Floating-point inputs (nested ones and keyword arguments too), parameters and buffers are cast for the computation; parameters stay
    stored and optimized in their own dtype, and gradients arrive there in it. What is already as wide as ``dtype`` is left alone: a module
    that computes in ``dtype`` anyway gives bitwise the same. Integer, bool and complex tensors are never touched.

    The outputs' own dtypes are learned once for each combination of input dtypes and autocast state, by running the forward's code on
    tensors without data and a likeness of the module without hooks. Where that fails (data-dependent control flow, foreign objects such as
    a cache among the arguments, ``torch.compile``) a rule stands in: a Linear or convolution under autocast gives autocast's dtype,
    anything else the widest dtype among its inputs (without autocast: and its parameters).

    **A result too large for its own dtype overflows again when it is cast back.** Then make the larger module that also brings it back
    into range compute in high precision, or let the wide values out with ``output_dtype=torch.float32`` if what follows can take them.

    Args:
        module: any module, such as ``model.encoder.block[2].layer[1]``; it may be shared and hold shared weights. Not supported: a module
            that holds FSDP units (take a unit, or a module within one), tensor-parallel weights, TorchScript, ``nn.DataParallel``, and
            a module within which activation checkpointing begins (take the checkpointed module, or one within it).
        dtype: float32, float64, bfloat16 or float16.
        output_dtype: give floating-point outputs in this dtype instead of the one they had.

    Returns:
        A handle with ``remove()``, also a context manager. After it, nothing is left on the module.

    Raises:
        UsageError: no module, no such dtype, or a module that is not supported; at the call, a weight that is a DTensor.

    *Cost:* a cast copy of inputs and weights a call, kept until backward; the computation's own price in ``dtype``.
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
                "float32 cures an overflow of float16."
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
    return HighPrecision(module, dtype, output_dtype)


class HighPrecision:
    """A module's forward in high precision, and the handle that takes it off again; made by ``high_precision``.

    It stands as the module's instance attribute ``forward`` while it is on. A deep copy of the module copies it along, working on the
    copy's own weights: ``copy.forward.remove()`` takes that one off.
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
        """Take it off; a second call does nothing. Handles on the same module may go in any order."""
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
        while isinstance(above, HighPrecision):
            if above._previous is self:
                above._previous = self._previous
                return
            above = above._previous
        # Somebody else wrapped it since and holds a reference: from now on it only passes the call on.

    def __enter__(self) -> HighPrecision:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"HighPrecision({type(self.module).__name__}, {self.dtype}{'' if self._active else ', removed'})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_learned": {}}

    @property
    def __signature__(self) -> inspect.Signature:  # a Trainer drops the data columns that it does not find here
        return inspect.signature(self._inner())

    def _inner(self, module: nn.Module | None = None) -> Callable[..., Any]:
        """The forward that this one stands before, bound to the module (or to a likeness of it)."""
        if module is not None and isinstance(self._previous, HighPrecision):
            return self._previous._inner(module)
        if self._previous is not None:
            return self._previous
        module = self.module if module is None else module
        return type(module).forward.__get__(module)  # type: ignore[no-any-return]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._active:
            return self._inner()(*args, **kwargs)
        leaves = _leaves((args, kwargs))
        device = _device_type(self.module, leaves)
        autocast = torch.get_autocast_dtype(device) if _autocast_is_on(device) else None
        learned = None if self.output_dtype is not None else self._learned_dtypes(args, kwargs, leaves, autocast)
        rule = self.output_dtype or _output_dtype_by_rule(self.module, leaves, autocast)

        wide_args, wide_kwargs = _map_leaves(lambda leaf: _cast_up(leaf, self.dtype), (args, kwargs))
        with contextlib.nullcontext() if autocast is None else torch.autocast(device, enabled=False), _cast_state(self.module, self.dtype):
            output = self._inner()(*wide_args, **wide_kwargs)

        results = _leaves(output)
        targets = learned if learned is not None and len(learned) == len(results) else (rule,) * len(results)
        # What the module itself casts elsewhere stays there: only what came out in the computation's dtype goes back.
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
        """The dtype of each leaf of the output as it would be without this; None where it cannot be learned."""
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
    """The floating tensor in ``dtype`` unless it is wider (float64); anything else as it is."""
    if not _is_floating(value) or value.dtype == dtype or torch.finfo(value.dtype).bits > torch.finfo(dtype).bits:
        return value
    return value.to(dtype)


def _map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """The same nest with each leaf replaced: tuples, lists, dicts, ModelOutputs (torch's pytree) and dataclasses open."""

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


def _device_type(module: nn.Module, leaves: list[Any]) -> str:
    for value in (*leaves, *module.parameters()):
        if isinstance(value, Tensor):
            return value.device.type
    return "cpu"


def _autocast_is_on(device: str) -> bool:
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def _output_dtype_by_rule(module: nn.Module, leaves: list[Any], autocast: torch.dtype | None) -> torch.dtype | None:
    """A guess that errs on the wide side; None when there is nothing to go by."""
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
    # Inference tensors count no versions; a graph being compiled knows none.
    return 0 if torch.compiler.is_compiling() or tensor.is_inference() else tensor._version


def _written(stored: Tensor, cast: Tensor, version: int) -> bool:
    """Whether the cast copy may hold something new; where that cannot be known, whether copying it back unchanged would be exact."""
    if torch.compiler.is_compiling():
        return torch.finfo(stored.dtype).bits < torch.finfo(cast.dtype).bits
    return _version(cast) != version


@contextlib.contextmanager
def _cast_state(module: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Parameters and floating buffers of the module and all within stand as cast copies; autograd flows through the casts."""
    swapped: list[tuple[MutableMapping[str, Any], str, Tensor, Tensor, bool]] = []
    flat: list[tuple[nn.RNNBase, list[Any]]] = []
    casts: dict[int, Tensor] = {}  # a weight shared within the module is cast once
    updating: set[int] = set()  # buffers of norms that write their running statistics, which moves no version counter
    try:
        for name, child in module.named_modules():
            for mapping, is_buffer in ((child._parameters, False), (child._buffers, True)):
                for key, tensor in list(mapping.items()):
                    if tensor is None or not tensor.is_floating_point():
                        continue
                    if hasattr(tensor, "device_mesh"):  # a DTensor, told without loading torch.distributed
                        where = f"{name}.{key}" if name else key
                        raise UsageError(
                            f"high_precision: {type(module).__name__}: its {where} is a DTensor at the call, expected plain weights. "
                            "Under FSDP apply it to the sharded unit itself or to a module within; tensor parallelism is not supported."
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
                flat.append((child, child._flat_weights))  # a second list of the same weights, which the kernels read
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


def _learn_dtypes(precision: HighPrecision, args: Any, kwargs: Any, leaves: list[Any]) -> tuple[torch.dtype | None, ...] | None:
    """Run the forward on fakes (shapes and dtypes without data) of a likeness of the module: no hook, number or random state is touched."""
    known = (Tensor, bool, int, float, complex, str, type(None), torch.dtype, torch.device)
    if not all(isinstance(leaf, known) for leaf in leaves):
        return None  # a cache, say, would be written to
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

        inner = precision._inner(_likeness(precision.module, fake, {}))
        fake_args, fake_kwargs = _map_leaves(fake, (args, kwargs))
        with _disable_current_modes(), mode, torch.no_grad():  # a replay that records operations does not see these
            output = inner(*fake_args, **fake_kwargs)
    except Exception:  # data-dependent control flow, an operator without a fake version: the rule stands in
        return None
    return tuple(leaf.dtype if _is_floating(leaf) else None for leaf in _leaves(output))


def _likeness(module: nn.Module, fake: Callable[[Any], Any], made: dict[int, nn.Module]) -> nn.Module:
    """A copy of the module tree with fake weights and without hooks; all else is shared with the original."""
    if id(module) in made:
        return made[id(module)]
    copied = made[id(module)] = object.__new__(type(module))
    own = dict(module.__dict__)
    own.pop("forward", None)
    for key, value in module.__dict__.items():
        if key.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called")) and isinstance(value, dict):
            own[key] = type(value)()
    own["_parameters"] = {key: fake(value) for key, value in module._parameters.items()}
    own["_buffers"] = {key: fake(value) for key, value in module._buffers.items()}
    own["_modules"] = {key: None if child is None else _likeness(child, fake, made) for key, child in module._modules.items()}
    copied.__dict__.update(own)
    if isinstance(copied, nn.RNNBase):
        copied.__dict__["_flat_weights"] = [copied._parameters.get(key) for key in copied._flat_weights_names]
    return copied
