"""Captures the state in which a call began, so that it can be replayed.

During training only references and small states are kept: the outermost call's arguments, random states, autocast state, small or
changing buffers, and the gradients that the call's outputs received. They are dropped when the step is over.
"""

from __future__ import annotations

import _random
import contextlib
import ctypes
import random
import sys
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, UntypedStorage, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_map_only

from numscope.probe import walk
from numscope.probe.calls import say_unread
from numscope.records.faults import ours, suppress
from numscope.replay import stack as stacks
from numscope.replay.stack import Stack
from numscope.replay.tape import Rewritten
from numscope.summary.unwrap import is_wrapped

_MT19937 = 4 * 624 + 4  # bytes of the generator's state: its words and its place in them
NUM_LOOKS, LOOKED_AT_BYTES = 2, 1 << 25  # the first calls, at which larger buffers in host memory are copied and compared too
SMALL_BUFFER_BYTES = 1 << 16  # copied when a call begins; larger ones are copied once they have been seen to change
MAX_FOREIGN_BYTES = 256 << 20  # of a call, of arguments that are copied


class BufferCopies:
    """Copies of the buffers that forward calls change, as they were when a call began."""

    def __init__(self, names: Mapping[nn.Module, str]) -> None:
        self.names = names
        self._num_modules = 0  # already inspected
        self._places: list[tuple[weakref.ref[nn.Module], str]] = []  # a watched model is not kept
        self._stamps: dict[int, tuple[int, int]] = {}  # by place: which tensor, its version
        self._volatile: set[int] = set()
        self.changing: set[tuple[weakref.ref[nn.Module], str]] = set()  # the same by module and name
        self._num_looks = 0
        self._last: dict[int, Tensor] = {}  # larger ones at the last look; what is written by ``.data`` changes no version

    def capture(self) -> dict[int, Tensor]:
        """Copies by place. *Cost:* a copy of each small or changing buffer; at the first two calls of larger ones too, within 32 MiB."""
        if self._num_modules != len(self.names):  # new modules come last
            self._places += [(weakref.ref(m), slot) for m in list(self.names)[self._num_modules :] for slot, _ in m._buffers.items()]
            self._num_modules = len(self.names)
        copies: dict[int, Tensor] = {}
        room = LOOKED_AT_BYTES if self._num_looks < NUM_LOOKS else 0
        for place, (known, slot) in enumerate(self._places):
            buffer = _buffer_of(known(), slot)
            if buffer is None or is_lazy(buffer) or buffer.device.type == "meta":
                continue
            stamp = _stamp(buffer)
            before = self._last.pop(place, None)
            if self._stamps.setdefault(place, stamp) != stamp or (before is not None and not torch.equal(before, buffer.detach())):
                self._volatile.add(place)
                self.changing.add((known, slot))
                self._stamps[place] = stamp
            size = buffer.numel() * buffer.element_size()
            if place in self._volatile or size <= SMALL_BUFFER_BYTES:
                copies |= _copied(place, buffer)
            elif size <= room and buffer.device.type == "cpu" and buffer.layout is torch.strided and not buffer.is_quantized:
                room -= size
                copies |= _copied(place, buffer)
                if place in copies:
                    self._last[place] = copies[place]
        self._num_looks += 1
        return copies

    def copy_of(self, copies: Mapping[int, Tensor], module: nn.Module, slot: str) -> Tensor | None:
        """Among what ``capture`` returned, the copy of one buffer."""
        place = next((place for place, known in enumerate(self._places) if known == (weakref.ref(module), slot)), -1)
        return copies.get(place)

    def put_back(self, copies: Mapping[int, Tensor]) -> None:
        """Write the captured values into the buffers that have others now."""
        with torch.no_grad():
            for place, copy in copies.items():
                known, slot = self._places[place]
                buffer = _buffer_of(known(), slot)
                if buffer is not None and not torch.equal(buffer, copy):
                    buffer.copy_(copy)

    @contextlib.contextmanager
    def restored(self, copies: Mapping[int, Tensor]) -> Iterator[None]:
        """Replace the buffers by stand-ins with the captured values; the buffers themselves are not written."""
        originals = [(m, dict(m._buffers.items())) for m in self.names]
        stand_ins: dict[int, Tensor] = {}  # by the buffer's id, because a shared buffer needs only one
        try:
            for place, (known, slot) in enumerate(self._places):
                module = known()
                buffer = _buffer_of(module, slot)
                if module is None or buffer is None or is_lazy(buffer) or buffer.device.type == "meta":
                    continue
                if id(buffer) not in stand_ins:
                    stand_ins |= _copied(id(buffer), copies.get(place, buffer))
                module._buffers[slot] = stand_ins.get(id(buffer), buffer)
            yield
        finally:
            for module, buffers in originals:
                put_back(module._buffers, buffers)


def _buffer_of(module: nn.Module | None, slot: str) -> Tensor | None:
    return module._buffers[slot] if module is not None and slot in module._buffers else None


def _copies_of_foreign(tensors: Iterable[Tensor]) -> dict[int, Tensor]:
    """Copies, by id, of tensors in memory that is not torch's: NumPy's, or a mapped file's, which a script may close at any time.

    *Cost:* 1 µs a tensor, and the copies, which are small beside the model's own reading of them.
    """
    foreign, room = {}, MAX_FOREIGN_BYTES
    for t in tensors:
        if type(t) is Tensor and t.device.type == "cpu" and t.layout is torch.strided and not is_wrapped(t) and not t.is_quantized:
            if is_foreign(t.untyped_storage()):
                room -= t.numel() * t.element_size()
                if room >= 0:
                    foreign[id(t)] = t.detach().clone().requires_grad_(t.requires_grad)
    return foreign


def is_foreign(memory: UntypedStorage) -> bool:
    """Whether it is not torch's own, nor shared by torch between processes."""
    return memory.device.type == "cpu" and not memory.resizable() and not memory.is_shared()


def _stamp(buffer: Tensor) -> tuple[int, int]:
    """Which tensor it is, and its version."""
    return id(buffer), -1 if buffer.is_inference() else buffer._version


def _copied(key: int, buffer: Tensor) -> dict[int, Tensor]:
    """A copy under a key; empty if torch can't copy the buffer, such as one of int4."""
    try:
        return {key: buffer.detach().clone()}
    except ours(RuntimeError):
        return {}


def attributes_now(modules: Iterable[nn.Module]) -> Callable[[], None]:
    """A call that restores the modules' own attributes (counters, caches, the last auxiliary loss) as they are now.

    Lists, dicts, sets, deques and generators of random numbers among them get their content back, everything else is put back by reference.
    """
    before = [(m.__dict__, dict(m.__dict__)) for m in modules]
    undo = [put for _, values in before for value in values.values() if (put := _content(value)) is not None]

    def restore() -> None:
        for attributes, values in before:
            put_back(attributes, values)
        for put in undo:
            put()

    return restore


@contextlib.contextmanager
def attributes_restored(modules: Iterable[nn.Module]) -> Iterator[None]:
    """``attributes_now``, restored afterwards."""
    restore = attributes_now(modules)
    try:
        yield
    finally:
        restore()


def _content(value: Any) -> Callable[[], object] | None:
    """A call that puts back the items of a container, or the state of a generator."""
    if isinstance(value, list):
        return partial(value.__setitem__, slice(None), value.copy())
    if type(value) in (dict, OrderedDict, defaultdict, Counter):
        return partial(put_back, value, dict(value))
    if isinstance(value, set | deque):
        items = value.copy()
        return lambda: (value.clear(), (value.update if isinstance(value, set) else value.extend)(items))
    if isinstance(value, torch.Generator):
        return partial(value.set_state, value.get_state())
    if isinstance(value, random.Random):
        return partial(value.setstate, value.getstate())
    if not any(kind.__module__.startswith("numpy.random") for kind in type(value).__mro__):  # others may answer to any name
        return None
    generator = getattr(value, "bit_generator", getattr(value, "_bit_generator", None))
    return None if generator is None else partial(setattr, generator, "state", generator.state)


def put_back(now: Any, before: Mapping[str, Any]) -> None:
    """Restore a dict, or a scripted module's imitation of one, which has ``items`` but no iterator."""
    for key in [key for key, _ in now.items() if key not in before]:
        del now[key]
    for key, value in before.items():
        if key not in now or now[key] is not value:
            now[key] = value


# Both generators are looked at in their memory, since asking each at each call takes 15 µs more of Python's, and 60 of NumPy's.
_numpy_before: tuple[bytes, Any] = (b"", None)  # the memory of NumPy's generator when it was last asked, and what it said


def _numpy_generator() -> Any:
    """NumPy's global one; None before ``numpy.random`` is imported, which is for the script to do.

    Not by ``numpy.random``, which NumPy imports when it is asked for: by two threads at once that ends in a RecursionError.
    """
    return getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)


def _numpy_state(exact: bool) -> Any:
    """The state of NumPy's global generator, None without one. *Cost:* 20 µs if ``exact`` or where it has moved, else 1.

    ``randn`` keeps one number for its next call outside of that memory. Without ``exact``, it goes unseen if only that number was taken.
    """
    global _numpy_before
    generator = _numpy_generator()
    if generator is None:
        return None
    memory, bits = b"", generator._bit_generator
    if type(bits).__name__ == "MT19937":  # the usual one; it may have been replaced
        memory = ctypes.string_at(bits.ctypes.state_address, _MT19937)
    before, state = _numpy_before
    if exact or not memory or memory != before:
        state = generator.get_state(legacy=False)
        _numpy_before = memory, state
    return state


_python_before: tuple[bytes, Any] = (b"", None)  # the same of Python's
# Where an object's own memory begins behind what the interpreter keeps of it, and how much a generator has there.
_HEAD, _OWN = object.__basicsize__, _random.Random.__basicsize__ - object.__basicsize__


def _python_state(exact: bool) -> Any:
    """The state of Python's global generator. *Cost:* 10 µs if ``exact`` or where it has moved, else 1."""
    global _python_before
    generator: Any = random._inst
    if exact or sys.implementation.name != "cpython" or type(generator) is not random.Random:
        return random.getstate()
    memory, (before, state) = ctypes.string_at(id(generator) + _HEAD, _OWN), _python_before
    if memory != before or state[2] != vars(generator)["gauss_next"]:
        state = random.getstate()
        _python_before = memory, state
    return state


@dataclass(slots=True)
class RandomState:
    """Every generator that a forward may draw from."""

    torch_cpu: Tensor
    python: Any
    numpy: Any
    devices: dict[int, Tensor]

    @classmethod
    def capture(cls, exact: bool = True) -> RandomState:
        """The state now; without ``exact`` one that a replay may begin from, at less cost."""
        devices: dict[int, Tensor] = {}
        if torch.cuda._initialized and torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
            devices[torch.cuda.current_device()] = torch.cuda.get_rng_state()
        return cls(torch.default_generator.get_state(), _python_state(exact), _numpy_state(exact), devices)

    def restore(self) -> None:
        torch.set_rng_state(self.torch_cpu)
        random.setstate(self.python)
        if self.numpy is not None:
            _numpy_generator().set_state(self.numpy)
        for device, state in self.devices.items():
            torch.cuda.set_rng_state(state, device)


@cache
def _kinds_of_devices() -> tuple[str, ...]:
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return ("cpu",) if accelerator is None else ("cpu", accelerator.type)


@dataclass(slots=True)
class AutocastState:
    """The state of autocast on the CPU and the accelerator."""

    types: list[tuple[str, bool, torch.dtype]]
    cache: bool

    @classmethod
    def capture(cls) -> AutocastState:
        states = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _kinds_of_devices()]
        return cls(states, torch.is_autocast_cache_enabled())

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for kind, enabled, dtype in self.types:
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=self.cache))
            yield


FORWARD = -1
Place = tuple[int, str]  # what made an output, the forward or one of the call's backwards by number, and its slot there


@dataclass(eq=False)  # no slots, because it is referenced weakly
class Call:
    """One outermost forward call, with everything needed to replay it.

    Args:
        module: kept alive until ``let_go``.
        name: the module's qualified name in the watched model; "" is the model itself.
    """

    module: nn.Module
    name: str
    index: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    given: list[tuple[str, Tensor]]  # the tensors among its arguments and ``weights``, by slot
    copies: dict[int, Tensor]  # by id, of those of ``given`` that stand in ``args`` and ``kwargs`` as copies
    versions: list[tuple[Tensor, int]]
    random: RandomState
    autocast: AutocastState
    buffers: dict[int, Tensor]
    training: list[bool]
    grad_enabled: bool
    inference: bool
    caller: Stack  # of the script's frames
    weights: dict[nn.Module, dict[str, Any]]  # that torch.func.functional_call has put in the place of modules' own
    forwards: dict[nn.Module, Any]  # set on modules themselves: Lightning sends a wrapped model's training_step through its forward
    outputs: list[tuple[str, Any]] = field(default_factory=list)  # slot, weak reference
    graph: list[Any] = field(default_factory=list)  # weak references to what lives as long as the outputs' graphs do
    gradients: list[dict[Place, Tensor]] = field(default_factory=list)  # that its outputs received, one dict for each backward
    gradients_dropped: bool = False
    had_backward: bool = False
    awaits_backward: bool = False  # its outputs can have a backward, and no gradient has arrived yet
    raised: bool = False
    attributes: Callable[[], None] | None = None  # restores the modules' own, where the step is to be compared with what is done again
    rewritten: Rewritten | None = None  # weights that were written since it ran
    replayed: Any = None  # what a replay has shown before weights could be written
    thread: int = field(default_factory=get_ident)

    @classmethod
    def capture(
        cls, module: nn.Module, name: str, index: int, args: tuple[Any, ...], kwargs: Mapping[str, Any], buffers: BufferCopies
    ) -> Call:
        modules = [*buffers.names]
        replaced = {m: None for m in modules for p in m._parameters.values() if type(p) is Tensor}
        weights = {m: dict(m._parameters) for m in replaced}
        given = [*walk.tensors(args, "input"), *(walk.tensors(dict(kwargs), "input") if kwargs else ())]
        given += [
            (f"{buffers.names[m]}.{name}".lstrip("."), t)
            for m, own in weights.items()
            for name, t in own.items()
            if t is not None and type(t) is not nn.Parameter
        ]
        copies = _copies_of_foreign([t for _, t in given])
        own = tree_map_only(Tensor, lambda t: copies.get(id(t), t), (args, dict(kwargs))) if copies else (args, dict(kwargs))
        return cls(
            module=module,
            name=name,
            index=index,
            args=own[0],
            kwargs=own[1],
            given=given,
            copies=copies,
            versions=[(t, t._version) for _, t in given if not t.is_inference()],
            random=RandomState.capture(exact=False),
            autocast=AutocastState.capture(),
            buffers=buffers.capture(),
            training=[m.training for m in modules],
            grad_enabled=torch.is_grad_enabled(),
            inference=torch.is_inference_mode_enabled(),
            caller=stacks.capture(sys._getframe(1)),
            weights=weights,
            forwards={m: m.__dict__["forward"] for m in modules if "forward" in m.__dict__},
        )

    def __getattr__(self, name: str) -> Any:
        if name != "module" or "_module" not in self.__dict__:
            raise AttributeError(name)
        return self.__dict__["_module"]()

    @property
    def is_kept(self) -> bool:
        """Whether the module is there, for the call to be done again."""
        return "module" in self.__dict__ or self.__dict__["_module"]() is not None

    def has_graph(self) -> bool:
        """Whether a graph of its outputs lives. With no generator, whose end would drop a timeout that the script's timer raises in it."""
        return bool([ref for ref in self.graph if ref()])

    def let_go(self) -> None:
        """Keep the module no longer: it can be done again as long as somebody else keeps it."""
        if "module" in self.__dict__:
            self.__dict__["_module"] = weakref.ref(self.__dict__.pop("module"))

    @property
    def known(self) -> list[tuple[str, Tensor]]:
        """``given`` as a replay gets it."""
        return [(slot, self.copies.get(id(t), t)) for slot, t in self.given]

    def keep(self, place: Place, gradient: Tensor, limit: int) -> None:
        """Keep a gradient that an output received, unless the total would exceed ``limit`` bytes."""
        if is_wrapped(gradient):
            say_unread("gradients inside torch.func's transforms (grad, vmap), or of autograd.grad with is_grads_batched=True")
        elif self.nbytes + gradient.numel() * gradient.element_size() > limit:
            self.gradients_dropped = True
        else:
            if not self.gradients or place in self.gradients[-1]:
                self.begin_backward()
            self.gradients[-1][place] = gradient.detach().requires_grad_(gradient.requires_grad)

    def begin_backward(self) -> None:
        """Begin a further backward: it keeps gradients of that one from now on."""
        if not self.gradients or self.gradients[-1]:
            self.gradients.append({})

    @property
    def around(self) -> list[nn.Module]:
        """Modules that such a ``forward`` holds: the wrapper that it serves."""
        found = []
        for forward in self.forwards.values():
            for cell in getattr(forward, "__closure__", None) or ():
                with suppress(ValueError):  # an empty one
                    found.append(cell.cell_contents)
        return [value for value in found if isinstance(value, nn.Module)]

    @property
    def nbytes(self) -> int:
        """Bytes of tensors kept alive for a replay."""
        kept = [t for t, _ in self.versions] + [g for received in self.gradients for g in received.values()]
        return sum(t.numel() * t.element_size() for t in kept)
