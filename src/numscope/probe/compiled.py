"""Modules inside compiled graphs: hooks that dynamo traces put an operator into the graph, which hands tensors to their probe at run time.

``numscope::tap`` is declared to have an effect, so that no pass drops, reorders or recomputes it; it reads its tensors and changes nothing.
It finds the probe by a number that is written into the graph: a graph keeps no probe alive, and one whose probe is gone shows nothing.
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from numscope.probe import walk
from numscope.probe.calls import say_unread
from numscope.probe.entry import Entry, Leaves, Wanted
from numscope.records.site import Phase

log = logging.getLogger("numscope")

_has_cuda = torch.cuda.is_available
_task = torch._C._current_graph_task_id

# Hooks on tensors inside a graph: torch 2.10 breaks the graph there.
GRADIENTS = importlib.util.find_spec("torch._higher_order_ops.register_hook") is not None

# A layer's own part of a gradient is read where the layer takes its input, and that must be one place.
_USES_INPUT_ONCE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.LayerNorm)


class Place(NamedTuple):
    """Where in a graph tensors are shown.

    Args:
        told: to the listener, as a call of the module or as a gradient of its output.
        slots: for each leaf its name; what it is if it is no tensor, else ""; the number of the site that statistics want it at, or "".
    """

    entry: Entry
    phase: Phase
    told: bool
    slots: tuple[tuple[str, str, str], ...]


class Receiver(Protocol):
    """Takes tensors from inside compiled graphs and reads them at once: the graph may write over their memory afterwards."""

    @property
    def is_read(self) -> bool:
        """Whether ``show`` does anything."""

    def tell(self, entry: Entry, leaves: Leaves) -> None:
        """A module was called."""

    def tell_gradient(self, entry: Entry, slot: str, gradient: Tensor) -> None:
        """The gradient of a module's output came."""

    def show(self, site: int, tensor: Tensor) -> None:
        """A tensor that statistics want."""


class Graphs:
    """The places of one probe in compiled graphs.

    Args:
        receiver: gets what they show.

    *Cost:* 1 ms, the first time. At run time 10 µs a module call. A graph must write a tensor out for it, also where it had fused it away.
    """

    def __init__(self, receiver: Receiver) -> None:
        _register()
        self.places: list[Place] = []
        self._number = next(_numbers)
        self.key = str(self._number)
        self._receiver = receiver
        _graphs[self._number] = self

    def place(self, entry: Entry, phase: Phase, told: bool, slots: tuple[tuple[str, str, str], ...]) -> int:
        """The number of a place. Runs while dynamo traces, never in the graph."""
        place = Place(entry, phase, told, slots)
        for number, known in enumerate(self.places):
            if known == place:
                return number
        self.places.append(place)
        return len(self.places) - 1

    def arrive(self, place: int, tensors: Sequence[Tensor]) -> None:
        """A graph has come to a place."""
        entry, phase, told, slots = self.places[place]
        if not (told or self._receiver.is_read):
            return
        coming = iter(tensors)
        leaves: Leaves = []
        for slot, what, site in slots:
            # A tensor object of its own: compiled code writes into one object's memory again, untold by its version, and a ledger would
            # take it for one that it has read.
            leaf: Any = next(coming).detach() if not what else None if what == walk.NONE else what
            leaves.append((slot, leaf))
            if site and self._receiver.is_read:
                self._receiver.show(int(site), leaf)
        if told and phase is Phase.FORWARD:
            self._receiver.tell(entry, leaves)
        elif told:
            self._receiver.tell_gradient(entry, *leaves[0])

    # ---- in hooks, while dynamo traces them

    def take_input(self, entry: Entry, wanted: Wanted, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Tap a module's own part in its input's gradient; to be called in a forward pre-hook.

        Only for modules that use their input once, as a Linear or a convolution does. Others would have their parts added up before they
        join the other consumers' parts, and a sum in another order rounds otherwise.

        Returns: what the module must get in place of its arguments; None: nothing else.
        """
        x, dgrad = args[0] if args else None, wanted.marks[3]
        if not dgrad or not isinstance(x, Tensor) or not _uses_input_once(type(module)) or not _has_gradient(x) or _is_hidden():
            return None
        own = x.view_as(x)
        self._tap_gradient(_place(self.key, entry.key, Phase.BACKWARD, False, (("", "", dgrad),)), own)
        return own, *args[1:]

    def take_output(
        self,
        entry: Entry,
        wanted: Wanted,
        gradients: bool,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        output: Any,
    ) -> None:
        """Tap a module call's leaves, and the gradients of its outputs in each backward; ``gradients``: where leaves are wanted, too."""
        told, sites = wanted.leaves, wanted.sites
        if (not told and sites is None) or _is_hidden():
            return
        marks, attention = {"input": "", "output": ""}, None  # of the first floating-point tensor among them
        if sites is not None and (torch.is_grad_enabled() or module.training or sites.evaluation):
            marks = {"input": wanted.marks[0], "output": wanted.marks[1]}
            attention = walk.attention_in(module, output) if wanted.marks[4] else None
        slots: list[tuple[str, str, str]] = []
        tensors: list[Tensor] = []
        for slot, leaf in walk.leaves(args, kwargs, output):
            mark = ""
            if isinstance(leaf, Tensor):
                if walk.is_inexact(leaf):
                    mark = marks.pop(slot.partition("[")[0], "")
                if told or mark:
                    slots.append((slot, "", mark))
                    # Under inference mode torch can't trace it.
                    tensors.append(leaf.detach() if torch.is_grad_enabled() and leaf.requires_grad else leaf)
            elif told:
                slots.append((slot, walk.NONE if leaf is None else walk.NOT_A_TENSOR, ""))
        if tensors:
            torch.ops.numscope.tap(tensors, self._number, _place(self.key, entry.key, Phase.FORWARD, told, tuple(slots)), False)
        if attention is not None:
            self.take(entry, Phase.FORWARD, False, "", wanted.marks[4], attention)
        told, mark = told and gradients, wanted.marks[2]
        for slot, leaf in walk.tensors(output, "output") if told or mark else ():
            own = ""
            if walk.is_inexact(leaf):
                own, mark = mark, ""
            if (told or own) and _has_gradient(leaf):
                self._tap_gradient(_place(self.key, entry.key, Phase.BACKWARD, told, ((f"grad {slot}", "", own),)), leaf)

    def take(self, entry: Entry, phase: Phase, told: bool, slot: str, mark: str, tensor: Tensor) -> None:
        if _is_hidden():
            return
        place = _place(self.key, entry.key, phase, told, ((slot, "", mark),))
        torch.ops.numscope.tap([tensor.detach()], self._number, place, phase is Phase.BACKWARD)

    def _tap_gradient(self, place: int, tensor: Tensor) -> None:
        number = self._number

        def seen(gradient: Tensor | None) -> Tensor | None:
            if gradient is not None:  # run in plain Python, where the hook is traced as a graph of its own: the outermost module's
                torch.ops.numscope.tap([gradient], number, place, True)
            return gradient  # compiled autograd takes None for the gradient

        tensor.register_hook(seen)  # type: ignore[no-untyped-call]


def _uses_input_once(kind: type[nn.Module]) -> bool:
    """Those, what ``numscope.precision`` makes of them, and its own GEMM layers."""
    return getattr(kind, "_numscope_origin", kind) in _USES_INPUT_ONCE or hasattr(kind, "_numscope_gemm")


def _has_gradient(tensor: Tensor) -> bool:
    """Whether a hook can be put on a tensor. Not on a parameter: it would stay there."""
    return GRADIENTS and tensor.requires_grad and torch.is_grad_enabled() and not isinstance(tensor, nn.Parameter)


# The keys stand for objects: torch 2.10 hands only constants to a function that is marked as constant.
def _place(graphs: str, entry: str, phase: Phase, told: bool, slots: tuple[tuple[str, str, str], ...]) -> int:
    return _graphs[int(graphs)].place(Entry.by_key[entry], phase, told, slots)


# What torch.compiler.assume_constant_result does, which would load dynamo: 2 s that an uncompiled run need not spend.
_place._dynamo_marked_constant = True  # type: ignore[attr-defined]

# Operators whose branches are graphs of their own that take no hooks and no effects.
_BRANCHING = {"cond", "while_loop", "while_loop_stack_output", "map", "map_impl", "scan", "associative_scan"}


def _is_hidden() -> bool:
    """Whether dynamo traces what shows nothing: one of these operators will run it, or a CUDA graph, which replays no Python."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    output = InstructionTranslator.current_tx().output
    if _has_cuda() and _makes_cuda_graphs(output.compiler_fn):
        say_unread("modules within compiled code that runs as CUDA graphs (modes reduce-overhead and max-autotune)")
        return True
    tracer: Any = output.current_tracer
    while tracer is not None:
        target = tracer.source_target
        name = getattr(target, "__name__", target)
        if name in _BRANCHING:
            say_unread(f"what torch's {name} runs in a compiled graph")
            return True
        tracer = tracer.parent
    return False


_is_hidden._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _makes_cuda_graphs(backend: Any) -> bool:
    """Whether a backend of torch.compile captures what it compiles. Its operator's tag, ``cudagraph_unsafe``, is lost behind the effect."""
    while backend is not None:
        config = getattr(backend, "config", None)
        if isinstance(config, dict):
            return bool(config.get("triton.cudagraphs", _inductor_captures()))
        if getattr(backend, "compiler_name", "") == "cudagraphs":
            return True
        backend = getattr(backend, "__wrapped__", None) or getattr(backend, "_torchdynamo_orig_callable", None)
    return False


def _inductor_captures() -> bool:
    config = sys.modules.get("torch._inductor.config")
    return config is not None and bool(config.triton.cudagraphs)


# ---- the operator

_lock = threading.RLock()
_library: Any = None
_graphs: weakref.WeakValueDictionary[int, Graphs] = weakref.WeakValueDictionary()
_numbers = itertools.count()  # not given twice


def _register() -> None:
    """Make ``torch.ops.numscope.tap(Tensor[] xs, int probe, int place, bool is_gradient) -> ()`` callable; calling twice does no harm."""
    with _lock:
        if _library is None:
            _define()


def _define() -> None:
    global _library
    from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

    untyped: Any = torch.library
    library = untyped.Library("numscope", "FRAGMENT")
    tags = [torch.Tag.pt2_compliant_tag]
    if hasattr(torch.Tag, "cudagraph_unsafe"):  # a replayed CUDA graph would run no Python
        tags.append(torch.Tag.cudagraph_unsafe)
    library.define("tap(Tensor[] xs, int probe, int place, bool is_gradient) -> ()", tags=tuple(tags))
    library.impl("tap", _tap, "CompositeExplicitAutograd")
    library.impl("tap", torch.library.fallthrough_kernel, "Autograd")
    torch.library.register_fake("numscope::tap", lambda xs, probe, place, is_gradient: None, lib=library)
    _register_effectful_op(torch.ops.numscope.tap.default, _EffectType.ORDERED)
    _library = library  # the registration lives as long as this object


def _tap(xs: Sequence[Tensor], probe: int, place: int, is_gradient: bool) -> None:
    graphs = _graphs.get(probe)
    if graphs is not None and (is_gradient or _task() == -1):  # else a forward that is recomputed for a backward
        graphs.arrive(place, xs)
