"""Takes the training state of a model that trains in this process."""

from __future__ import annotations

import ctypes
import hashlib
import random
import struct
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, RandomSampler, Sampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from numscope.parity.training_state import Bits, Moment
from numscope.probe.calls import is_captured
from numscope.probe.living import Living
from numscope.probe.naming import class_name, named_state
from numscope.probe.optimizers import ids_held, ids_known, ids_of, settings_of, states_of
from numscope.probe.zero import is_spread, states_here
from numscope.records.faults import suppress
from numscope.records.heap import instances_of
from numscope.summary.checksum import Checksums, merged
from numscope.summary.sketch import Piece, checksums, part_of
from numscope.summary.unseen import unseen
from numscope.summary.unwrap import Unsummarizable, plain

_MOST_ROWS = 256  # of a shard on a device that is no stretch of the whole: each costs a dozen kernels
_WORDS = slice(24, 24 + 624 * 8)  # of the bytes of torch's generator for CPUs; before them its place


def weights_of(names: Mapping[nn.Module, str]) -> dict[str, Bits]:
    """A model's parameters and what a checkpoint has of its buffers, by name. *Cost:* one pass; a sync on a device."""
    passing = {f"{name}.{slot}".lstrip(".") for module, name in names.items() for slot in module._non_persistent_buffers_set}
    found = {f"{name}.{slot}".lstrip("."): tensor for name, slot, tensor in named_state(names)}
    return bits_of({name: tensor for name, tensor in found.items() if name not in passing})


def states_and_counts(
    parameters: Mapping[str, nn.Parameter], optimizers: Iterable[Optimizer]
) -> tuple[dict[str, dict[str, Bits]], dict[str, dict[str, float]]]:
    """Optimizers' states by their own name and by parameter: tensors, and single numbers. *Cost:* one pass; two syncs on a device."""
    tensors: dict[str, dict[str, Tensor | Piece]] = {}
    numbers: dict[str, dict[str, Tensor]] = {}
    counts: dict[str, dict[str, float]] = {}
    for optimizer in optimizers:
        mine = ids_of(optimizer)
        for name, parameter in parameters.items():
            spread = is_spread(parameter)
            if not spread and mine.isdisjoint(ids_known(parameter)):
                continue
            for key, value in (states_here if spread else states_of)(optimizer, parameter).items():
                if isinstance(value, Tensor) and value.dim() == 0:
                    numbers.setdefault(str(key), {})[name] = value
                elif isinstance(value, Tensor | Piece):
                    tensors.setdefault(str(key), {})[name] = value
                elif isinstance(value, int | float):
                    counts.setdefault(str(key), {})[name] = float(value)
    with unseen():
        for key, values in numbers.items():
            read = torch.stack([plain(value).double() for value in values.values()]).tolist()  # one sync for all
            counts.setdefault(key, {}).update(zip(values, read, strict=True))
    return {key: bits_of(values) for key, values in tensors.items()}, counts


def bits_of(tensors: Mapping[str, Tensor | Piece]) -> dict[str, Bits]:
    """The bits of what can be read of some tensors here."""
    parts: dict[str, tuple[Piece, str]] = {}
    for name, tensor in tensors.items():
        with suppress(Unsummarizable), unseen():
            part = tensor if isinstance(tensor, Piece) else part_of(tensor)
            is_plain = part.tensor.layout is torch.strided and not part.tensor.is_nested
            if is_plain and (part.tensor.is_cpu or part.num_rows <= _MOST_ROWS):
                parts[name] = part, str(part.tensor.dtype).removeprefix("torch.")
    sums = checksums([part for part, _ in parts.values()])
    return {
        name: Bits(dtype, _product(part.shape), {part.place: (part.tensor.numel(), value)} if part.tensor.numel() else {})
        for (name, (part, dtype)), value in zip(parts.items(), sums, strict=True)
    }


def _product(shape: Sequence[int]) -> int:
    return torch.Size(shape).numel()


class LoopObjects:
    """The objects of a loop beside model and optimizers, as found now: schedulers, samplers, loss scalers, iterators of loaders, copies
    of the model. None of it is kept alive.

    *Cost:* one walk over all objects, 100 ms for a million.
    """

    def __init__(self, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
        kinds: tuple[type[Any], ...] = (LRScheduler, Sampler, GradScaler, DataLoader, _BaseDataLoaderIter, AveragedModel, type(model))
        own, ids = set(model.modules()), {number for optimizer in optimizers for number in ids_of(optimizer)}
        self._optimizers, self._found, self._copies = Living[Optimizer](), Living[Any](), Living[nn.Module]()
        for optimizer in optimizers:
            self._optimizers.add(optimizer)
        for one in instances_of(*kinds):
            if isinstance(one, LRScheduler) and ids.isdisjoint(ids_of(one.optimizer) if hasattr(one, "optimizer") else ()):
                continue
            if isinstance(one, AveragedModel) and not any(type(part) is type(one.module) and _is_alike(one.module, part) for part in own):
                continue
            if type(one) is not type(model):
                self._found.add(one)
            elif one not in own and _is_alike(one, model):
                self._copies.add(one)

    def moment(self, *, with_scale: bool = True) -> Moment:
        """Their state now. ``with_scale``: that of a scaler too. *Cost:* a sync for one on a device."""
        found = Moment(random_states(), settings_of(self._optimizers))
        for one in self._found:
            kind = type(one).__name__
            if isinstance(one, LRScheduler):
                found.schedulers.append((kind, int(getattr(one, "last_epoch", 0))))
            elif isinstance(one, Sampler) and isinstance(epoch := getattr(one, "epoch", None), int):
                found.epochs.append((kind, epoch))
            elif isinstance(one, GradScaler) and with_scale and one.is_enabled():
                found.scale = float(one.get_scale())
        found.schedulers.sort()
        found.epochs.sort()
        return found

    def places(self) -> list[tuple[int, int]]:
        """How many batches each iterator of a loader has given, and of how many; of a loader that shuffles also what an epoch has."""
        found = []
        for one in self._found:
            with suppress(TypeError, NotImplementedError):  # a stream has no length
                if isinstance(one, _BaseDataLoaderIter):
                    found.append((int(one._num_yielded), len(one._index_sampler)))
                elif isinstance(one, DataLoader) and isinstance(getattr(one, "sampler", None), RandomSampler):
                    found.append((len(one), len(one)))
        return found

    def averages(self) -> list[tuple[str, str]]:
        """Class and checksum of each copy of the model that no optimizer trains, and ``n_averaged`` of each AveragedModel of it or a
        part of it. *Cost:* a pass over each; a sync on a device.
        """
        trained = ids_held()
        copies = [one for one in self._copies if not any(id(p) in trained or is_spread(p) for p in one.parameters())]
        numbers = [("n_averaged", str(int(one.n_averaged))) for one in self._found if isinstance(one, AveragedModel)]
        return [*((class_name(one), one_checksum(one.parameters())) for one in copies), *numbers]


def one_checksum(tensors: Iterable[Tensor], *, ordered: bool = True) -> str:
    """One checksum of all tensors, as text; "" where one can't be read. ``ordered``: their order counts."""
    with suppress(Unsummarizable):
        return one_of(Checksums(list(tensors)).read(), ordered=ordered)
    return ""


def one_of(values: Iterable[int], *, ordered: bool = True) -> str:
    """One checksum of tensors' checksums. ``ordered``: their order counts."""
    return f"{merged([(i if ordered else 1) * value for i, value in enumerate(values, 1)]):x}"


def checksums_by_id(tensors: Iterable[Tensor]) -> dict[int, int]:
    """A checksum of each tensor, by its id; of none where one can't be read. *Cost:* a pass over each; a sync on a device."""
    found = list(tensors)
    with suppress(Unsummarizable):
        return dict(zip(map(id, found), Checksums(found).read(), strict=True))
    return {}


def _is_alike(one: nn.Module, model: nn.Module) -> bool:
    shapes = [[(name, p.shape) for name, p in each.named_parameters()] for each in (one, model)]
    return shapes[0] == shapes[1] != [] and next(one.parameters()) is not next(model.parameters())


def random_states() -> dict[str, tuple[str, int]]:
    """By generator the block of numbers that it is in, and its place there: a state that was restored and drawn from a little is in the
    same block. Nothing is drawn.
    """
    _, words, _ = random.getstate()
    found = {"python": (_digest(array("Q", words[:-1]).tobytes()), int(words[-1]))}
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None:
        kind, keys, place, *_ = numpy.get_state()
        if kind == "MT19937":
            found["numpy"] = _digest(keys.tobytes()), int(place)
    with unseen():
        state = _bytes(torch.get_rng_state())
        found["torch"] = _digest(state[_WORDS]), struct.unpack_from("<q", state, 16)[0]
        if torch.cuda.is_initialized() and not is_captured():  # type: ignore[no-untyped-call]
            seed, offset = struct.unpack_from("<Qq", _bytes(torch.cuda.get_rng_state()))
            found["cuda"] = f"{seed:x}", offset
    return found


def _bytes(state: Tensor) -> bytes:
    return ctypes.string_at(state.data_ptr(), state.numel())


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
