"""The module probe: hooks make a model's tensors visible, to a listener that is told of all of them and to a reader that wants some.

Tensor hooks rather than full-backward module hooks: the latter wrap inputs and outputs in an extra autograd node, which breaks in-place
operations and changes the graph. A tensor hook that returns None changes nothing.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import get_ident
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from numscope.probe import dynamo, optimizer, walk
from numscope.probe.calls import Calls, ModuleListener, TensorReader, guard, in_backward, is_captured, is_faked, is_traced, say_unread
from numscope.probe.compiled import GRADIENTS, Graphs
from numscope.probe.dgrad import InputEdge, input_edge, watch_dgrad
from numscope.probe.entry import Entry, LayerSites, Leaves, Wanted
from numscope.probe.hook import GONE, Hook, can_be_hooked, hook_calls, hook_gradient, new_id, unhook_calls
from numscope.probe.keras import own_weights
from numscope.probe.living import Parts
from numscope.probe.naming import class_name, qualified_names
from numscope.probe.nodes import MOST_HOOKED
from numscope.probe.own_gradients import OwnGradients
from numscope.probe.regions import Regions
from numscope.probe.witness import LEAVES, NO_ROWS, SITES, Ears, ReaderRows, Witness
from numscope.records.faults import had_no_room, is_ours
from numscope.records.site import Phase
from numscope.records.weak import Weak
from numscope.summary.ledger import version_of

Args: TypeAlias = tuple[Any, ...]  # of a module's call
Kwargs: TypeAlias = Mapping[str, Any]

_task = torch._C._current_graph_task_id
_grad_enabled = torch.is_grad_enabled


def _note_trace(key: str) -> int:
    probe = _probes[key]
    probe.in_function = probe.in_function or not probe.active
    return 0


_probes: weakref.WeakValueDictionary[str, ModuleProbe] = weakref.WeakValueDictionary()
_note_trace._dynamo_marked_constant = True  # type: ignore[attr-defined]  # runs while dynamo traces, see probe/compiled.py


class ModuleProbe:
    """Hooks on the modules of a model, on each as far as something is wanted of it: a model of which nothing is wanted runs bare.

    A listener is told of calls from ``attach`` to ``detach``; a reader is shown tensors from ``arm`` to ``disarm``.

    Args:
        root: the watched model. It is not kept: its modules' hooks lead here, and the collector alone could free it.
        errors: exceptions that go through to the training script.

    *Cost:* 2 hook calls a module call, about 5 µs together; one tensor hook an output.
    """

    root: Weak[nn.Module] = Weak()

    def __init__(self, root: nn.Module, errors: tuple[type[Exception], ...] = ()) -> None:
        self.root = root
        self.errors = errors
        self.in_function = False  # the root's calls are part of some compiled function's graph, and nothing tells of them
        self.deep = False  # the listener is told of each module's calls, else of outermost ones
        self.names = Parts(root, qualified_names(root))
        self.entries = Parts(root, {m: Entry(name, class_name(m), m is root, own_weights(m)) for m, name in self.names.items()})
        self._by_name = {entry.name: entry for entry in self.entries.values()}
        self._listener: ModuleListener | None = None
        self._calls: Calls | None = None
        self.again: Callable[[Entry, Leaves], None] | None = None  # gets calls within backward: recomputations
        self._gradients, self._is_heard, self._num_calls = False, False, 0  # calls since the last backward
        self.is_crowded = self.was_crowded = False  # these are too many for hooks on all their outputs: see probe/nodes.py
        self._reader: TensorReader | None = None
        self._ears = Ears(Witness(partial(self._caught, self._fail), partial(self._caught, self._fail_reader)))
        self._sites: Mapping[nn.Module, LayerSites] = {}
        self._in_graphs: Mapping[nn.Module, LayerSites] = {}
        self._key = new_id()
        self._hooked: Parts[nn.Module, Wanted] = Parts(root, {})
        self._on_leaves: list[Callable[[], None]] = []  # what removes the hooks on them
        self._edges: dict[tuple[nn.Module, int], list[InputEdge | None]] = {}  # of the calls at work, by thread: where their inputs stood
        self._inputs: dict[tuple[nn.Module, int], list[int]] = {}  # likewise: their versions
        self._own_gradients = OwnGradients(self.show)
        self._graphs = Graphs(self)
        _probes[self._graphs.key] = self
        self._regions = Regions(self.entries, self._compiled_another)

    # ---- what is wanted

    def attach(self, listener: ModuleListener, *, deep: bool, gradients: bool) -> None:
        """Tell a listener of outermost calls; with ``deep`` of each module's, with ``gradients`` of the gradients of their outputs."""
        self._regions.find()
        self._listener, self._calls, self._gradients = listener, Calls(listener), gradients
        self._wrap_compiled()
        self.deepen(deep)

    def deepen(self, deep: bool) -> None:
        """Tell the listener of each module's calls from now on, or no longer."""
        self.deep, listener = deep, self._listener
        if deep and listener is not None and not self._is_heard:
            self._is_heard = True
            self._ears.listen(listener.tap, listener.gradient if self._gradients else None)
        self._hook_as_wanted()

    def detach(self) -> None:
        """Tell the listener nothing more."""
        self._ears.listen(None, None)
        self._listener, self._calls, self._is_heard = None, None, False
        self.deepen(False)
        if not self._in_graphs:
            self._regions.forget()
        self._regions.unwrap()

    @contextmanager
    def retelling(self, listener: ModuleListener) -> Iterator[None]:
        """Meanwhile tell a listener, and nobody else, of the calls of a replay in this thread."""
        was, self._listener, self._reader = (self._listener, self._reader, self._num_calls, self.is_crowded), listener, None
        try:
            with self._ears.lent(listener.tap, listener.gradient if self._gradients else None):
                yield
        finally:
            self._listener, self._reader, self._num_calls, self.is_crowded = was

    def backward_begins(self) -> None:
        """The graphs so far are about to go: outputs get hooks again."""
        self._num_calls, self.is_crowded = 0, False

    @property
    def attached(self) -> bool:
        return self._listener is not None

    def arm(
        self,
        layers: Mapping[nn.Module, LayerSites],
        reader: TensorReader | None,
        in_graphs: Mapping[nn.Module, LayerSites] | None = None,
        rows: ReaderRows | None = None,
    ) -> None:
        """Show a reader these modules' tensors and no others.

        Args:
            reader: None: nothing is shown for now.
            in_graphs: what later calls of ``arm`` may ask for. The hooks on compiled modules are those for all of it, so that another
                choice compiles nothing again; ``layers`` alone decides what the reader is shown.
            rows: where the reader keeps rows, so that most tensors need not be shown to it.
        """
        self._regions.find()
        self._reader, was = reader, (self._sites, self._in_graphs)
        self._ears.read(NO_ROWS if reader is None or rows is None else rows)
        self._sites = {module: sites for module, sites in layers.items() if sites.any}
        self._in_graphs = self._sites if in_graphs is None else in_graphs
        if was != (self._sites, self._in_graphs):
            for module in (*self._sites, *self._in_graphs):
                if module not in self.entries:  # put into the model since the last ``refresh``, which will name it
                    self.entries[module] = Entry("", class_name(module), weights=own_weights(module))
            self._own_gradients.forget()
            self._hook_as_wanted()
        self.begin_step()  # also of a module that another one computes for, which never calls it

    def begin_step(self) -> None:
        """Hook the parameters of the step to come."""
        for module, sites in self._sites.items():
            self._own_gradients.hook(module, sites)

    def disarm(self) -> None:
        """Show the reader nothing more."""
        self._reader, self._sites, self._in_graphs = None, {}, {}
        self._ears.read(NO_ROWS)
        self.forget_step()
        self._hook_as_wanted()
        if not self.attached:
            self._regions.forget()

    def forget_step(self) -> None:
        """Drop what would outlive the step: hooks on leaves (a parameter returned as it is), inputs of calls that were interrupted."""
        while self._on_leaves:
            self._on_leaves.pop()()
        self._own_gradients.forget()
        self._edges.clear()
        self._inputs.clear()

    def _hook_as_wanted(self) -> None:
        """Put on each module the hooks that are wanted of it; those that are there already stay, since compiled code is guarded by them."""
        calls, traced = self.attached, self.traced
        for module, entry in (*self.entries.items(), *self._regions.shells.items()):
            # A compiled shell's leaves are those of the module inside it, which has its own hooks.
            leaves = self.deep and not (GRADIENTS and type(module).__name__ == dynamo.SHELL)
            sites = self._in_graphs if module in traced else self._sites
            heard = calls and (self.deep or entry.is_root) and module not in self._regions.wrapped
            wanted = Wanted.of(heard, leaves, sites.get(module))
            if wanted == self._hooked.get(module, Wanted()) or not can_be_hooked(module):
                continue
            if wanted == Wanted():
                self._hooked.pop(module, None)
                unhook_calls(module, self._key)
                continue
            self._hooked[module] = wanted
            # For the reader before all other hooks: tensor parallelism's own turn a distributed output into its local part. But the
            # outputs of the outermost call are told as the script gets them.
            first = wanted.sites is not None and not (wanted.calls and entry.is_root)
            before, after = Hook(self._before, entry, wanted), Hook(self._after, entry, wanted)
            hook_calls(module, self._key, before, after, always=wanted.calls, first=first)

    # ---- the model

    @property
    def active(self) -> bool:
        """Whether an outermost call is running."""
        return self._calls is not None and self._calls.module is not None

    @property
    def traced(self) -> set[nn.Module]:
        """The modules that are compiled, and all inside them."""
        return self._regions.traced

    @property
    def in_graphs(self) -> bool:
        """Whether some of the modules' calls were traced into compiled graphs."""
        return bool(self._graphs.places)

    def refresh(self) -> list[nn.Module]:
        """Take up the modules that were put into the model since, as adapters are. *Cost:* a look at each child, 0.1 µs.

        Returns: the new ones; ``names`` holds them at its end.
        """
        known, root = self.names.parts, self.root
        if not [c for m in (root, *known) for c in m._modules.values() if c not in known and c is not None and c is not root]:
            return []
        names = qualified_names(root)
        new = [module for module in names if module not in self.names]
        self.names.update(names)
        for module, name in names.items():
            entry = self.entries.setdefault(module, Entry(name, class_name(module), weights=own_weights(module)))
            entry.name = name
        self._by_name = {entry.name: entry for entry in self.entries.values()}
        self._regions.find_methods()
        self._compiled_another()
        return new

    def entry_of(self, module_name: str) -> Entry:
        return self._by_name[module_name]

    def _compiled_another(self) -> None:
        self._wrap_compiled()
        self._hook_as_wanted()

    def _wrap_compiled(self) -> None:
        if self._calls is not None:
            self._regions.wrap(self._enter, self._leave)

    def _enter(self, entry: Entry, module: nn.Module, args: Args, kwargs: Kwargs) -> None:
        if self._calls is not None and not optimizer.is_paused() and not torch.compiler.is_compiling():
            self._guard(self._fail, self._calls.before, entry, module, args, kwargs)

    def _leave(self, entry: Entry, module: nn.Module, output: Any, failed: bool) -> None:
        if self._calls is not None and not optimizer.is_paused() and not torch.compiler.is_compiling():
            self._guard(self._fail, self._calls.after, entry, module, output, failed)

    def adopt(self, args: Args, kwargs: Kwargs) -> None:
        """Begin the outermost call of the root that is already on its way (the probe was attached inside it)."""
        if self._calls is not None:
            self._guard(self._fail, self._calls.begin, self.entries[self.root], self.root, args, kwargs)

    # ---- hooks

    @dynamo.run_plainly
    def _before(self, entry: Entry, wanted: Wanted, module: nn.Module, args: Args, kwargs: dict[str, Any] | None = None) -> Any:
        sites = wanted.sites
        if torch.compiler.is_compiling():
            if wanted.calls and entry.is_root:
                _note_trace(self._graphs.key)
            taken = None if sites is None or dynamo.is_exporting() else self._graphs.take_input(entry, wanted, module, args)
            return None if taken is None else (taken, kwargs)
        calls = self._calls if wanted.calls else None
        is_outer = calls is not None and (calls.module is None or calls.module is module)
        if kwargs is None or (not is_outer and (sites is None or not sites.at_begin)):  # most calls
            return None
        if optimizer.is_unheard() or is_traced():
            if wanted.calls and entry.is_root and (is_faked() or is_captured()):
                say_unread("calls under FakeTensorMode" if is_faked() else "what a CUDA graph runs that the script captures")
            return None
        if sites is not None and self._reader is not None:
            self._guard(self._fail_reader, self._note_input, sites, module, args, kwargs)
        if is_outer:
            self._enter(entry, module, args, kwargs)
        return None

    @dynamo.run_plainly
    def _after(self, entry: Entry, wanted: Wanted, module: nn.Module, args: Args, kwargs: dict[str, Any], output: Any = GONE) -> None:
        if torch.compiler.is_compiling():
            if not dynamo.is_exporting():  # what is exported is to run where there is no numscope
                self._graphs.take_output(entry, wanted, self._gradients, module, args, kwargs, output)
            return
        if output is GONE:
            return
        told, leaves, sites, shown, _ = wanted
        if sites is not None and sites.activation is not None and self._is_written(module, args, kwargs):
            say_unread("statistics of inputs that a module writes in place")
            sites, shown = replace(sites, activation=None), None if shown is None else (None, *shown[1:])
        self._num_calls += 1
        if self._num_calls == MOST_HOOKED:
            self.is_crowded = self.was_crowded = True
        heard, shown = entry if leaves else None, None if self.is_crowded else shown
        if (heard is not None or shown is not None) and not is_captured():
            left = self._ears.witness.saw(heard, shown, not self.is_crowded, args, kwargs, output)
            leaves, sites = bool(left & LEAVES), sites if shown is None or left & SITES else None
        calls = self._calls
        if not leaves and sites is None and (calls is None or calls.module is not module):
            return
        if optimizer.is_unheard() or is_traced():
            return
        failed = output is None and sys.exc_info()[0] is not None
        if not failed and (leaves or sites is not None):
            self._guard(self._fail, self._see, entry, leaves, sites, module, args, kwargs, output)
        if told and self._calls is not None and self._calls.module is module:
            self._leave(entry, module, output, failed)

    def _see(
        self, entry: Entry, leaves: bool, sites: LayerSites | None, module: nn.Module, args: Args, kwargs: Kwargs, output: Any
    ) -> None:
        plain, given = isinstance(output, Tensor), None if sites is None else walk.first_inexact(output)
        if sites is not None:
            self._guard(self._fail_reader, self._show_call, sites, module, args, kwargs, output, given)
        listener = self._listener if leaves else None
        tap = None if listener is None else listener.tap if _task() == -1 else self.again  # in_backward()
        if tap is not None:
            if plain and not kwargs and len(args) == 1 and isinstance(args[0], Tensor):  # most modules; saves 3 µs
                found: Leaves = [("input[0]", args[0]), ("output", output)]
            else:
                found = walk.leaves(args, kwargs, output)
            self._guard(self._fail, tap, entry, found)
        hears = listener is not None and self._gradients and not self.is_crowded
        if not (hears or given is not None) or not _grad_enabled():
            return
        for slot, leaf in (("output", output),) if plain else walk.tensors(output, "output"):
            site = None
            if leaf is given and sites is not None:
                site, given = None if self.is_crowded else sites.gradient, None
            if leaf.requires_grad and (site is not None or (hears and not leaf.is_leaf)):
                # A module that works in place on a view makes autograd forget the hooks on it.
                base = walk.own_base(output, args, kwargs)
                hook = Hook(self._gradient, entry if hears else None, entry.gradient_slot(slot), site, None if base is None else leaf.shape)
                remove = hook_gradient(leaf if base is None else base, hook)
                if leaf.is_leaf:  # it would outlive the step
                    self._on_leaves.append(remove)

    def _note_input(self, sites: LayerSites, module: nn.Module, args: Args, kwargs: Kwargs) -> None:
        """Note the input's version, and where it stands in the graph if the call's own part of its gradient is wanted. Hook parameters."""
        taken, here = walk.first_input(args, kwargs), (module, get_ident())
        if sites.activation is not None:
            self._inputs.setdefault(here, []).append(-1 if taken is None else version_of(taken))
        if sites.dgrad is not None:
            self._edges.setdefault(here, []).append(None if taken is None else input_edge(taken))
        if sites.parameters and _grad_enabled():
            self._own_gradients.hook(module, sites)

    def _is_written(self, module: nn.Module, args: Args, kwargs: Kwargs) -> bool:
        """Whether a call that returns has written its input, which is no longer what it took."""
        noted = self._inputs.get((module, get_ident()))
        was, taken = noted.pop() if noted else -1, walk.first_input(args, kwargs)
        return was >= 0 and taken is not None and version_of(taken) != was

    def _show_call(self, sites: LayerSites, module: nn.Module, args: Args, kwargs: Kwargs, output: Any, given: Tensor | None) -> None:
        """Show the reader its tensors of a call, but for the output's gradient."""
        edges = None if sites.dgrad is None else self._edges.get((module, get_ident()))
        edge = edges.pop() if edges else None
        if not in_backward() and (_grad_enabled() or module.training or sites.evaluation):  # in backward: recomputed for checkpointing
            taken = None if sites.activation is None else walk.first_input(args, kwargs)
            if sites.activation is not None and taken is not None:
                self.show(sites.activation, taken)
            if sites.output is not None and given is not None:
                self.show(sites.output, given)
            if sites.attention is not None and (attention := walk.attention_in(module, output)) is not None:
                self.show(sites.attention, attention)
        if edge is not None and sites.dgrad is not None and given is not None and given.requires_grad and _grad_enabled():
            watch_dgrad(edge, output, partial(self.show, sites.dgrad))

    @dynamo.run_plainly
    def _gradient(self, entry: Entry | None, slot: str, site: int | None, shape: torch.Size | None, gradient: Tensor | None) -> None:
        if gradient is None:  # the node has several outputs, and this one gets no gradient
            return
        if torch.compiler.is_compiling():  # by compiled autograd
            told = self.entries[self.root] if entry is None else entry
            own = gradient if shape is None else gradient.reshape(shape)
            return self._graphs.take(told, Phase.BACKWARD, entry is not None, slot, "" if site is None else str(site), own)
        if entry is not None:
            self.tell_gradient(entry, slot, gradient, shape)
        if site is not None:
            self.show(site, gradient, shape)

    # ---- what hooks and compiled graphs show

    @property
    def is_read(self) -> bool:
        return self._reader is not None

    @property
    def is_listening(self) -> bool:
        """Whether what is running is no replay, and in no CUDA graph."""
        return not optimizer.is_unheard() and not is_captured()

    def tell(self, entry: Entry, leaves: Leaves) -> None:
        """A module's call, from within a graph."""
        if self._listener is not None and self.is_listening:
            self._guard(self._fail, self._listener.tap, entry, leaves)

    def tell_gradient(self, entry: Entry, slot: str, gradient: Tensor, shape: torch.Size | None = None) -> None:
        """The gradient of a module's output."""
        if self._listener is not None and self.is_listening:
            self._guard(self._fail, self._listener.gradient, entry, slot, gradient, shape)

    def show(self, site: int, tensor: Tensor, shape: torch.Size | None = None) -> None:
        if self._reader is not None and self.is_listening:
            self._guard(self._fail_reader, self._reader.observe, site, tensor, shape)

    # ---- errors of the tool: never the run's end

    def _guard(self, fail: Callable[[Exception], None], call: Callable[..., None], *args: Any) -> None:
        guard(fail, self.errors, call, *args)

    def _caught(self, fail: Callable[[Exception], None], error: Exception) -> None:
        if isinstance(error, self.errors) or not is_ours(error):
            raise error
        fail(error)

    def _fail(self, error: Exception) -> None:
        if had_no_room(error):
            return
        if (listener := self._listener) is None:
            return self._fail_reader(error)
        self.detach()
        listener.failed(error)

    def _fail_reader(self, error: Exception) -> None:
        if (reader := None if had_no_room(error) else self._reader) is not None:
            self.disarm()
            reader.failed(error)
