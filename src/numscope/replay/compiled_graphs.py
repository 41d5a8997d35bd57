"""Runs a compiled call again and looks at each result in its graphs: for a fault that eager code does not show."""

from __future__ import annotations

import contextlib
import copy
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from numscope.probe.dynamo import SHELL
from numscope.records.finding import Culprit, Reason
from numscope.records.site import Phase
from numscope.replay import stack as stacks

Backend = Callable[..., Callable[..., Any]]

HINT = '; or compiled code differs from eager: backend="aot_eager", then "eager", shows which part of the compiler makes the difference'
_CHILD = re.compile(r"_modules\['([^']+)'\]|\.(\w+)|\[(\d+)\]")
_ADVICE = (
    'Compile with backend="aot_eager", then "eager", to see which part of the compiler makes the difference, report the operation to its '
    "authors, and meanwhile keep the module at fault out of the graph with torch.compiler.disable."
)


def backend_of(module: nn.Module) -> Backend | None:
    """The compiler of a module, or of the first compiled one inside it; None: there is none, as far as can be seen."""
    if "torch._dynamo" not in sys.modules:
        return None
    for part in module.modules():
        callback = None
        if type(part).__name__ == SHELL:
            callback = getattr(part.dynamo_ctx, "callback", None)
        elif part._compiled_call_impl is not None:
            callback = _callback(part._compiled_call_impl)
        if callback is not None:
            while hasattr(callback, "_torchdynamo_orig_backend"):
                callback = callback._torchdynamo_orig_backend
            return callback  # type: ignore[no-any-return]
    return None


def _callback(function: Any, depth: int = 3) -> Any:
    """Torch keeps it in a cell of the function that it returns; ours may be around that one."""
    code = getattr(function, "__code__", None)
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=False)) if code is not None else {}
    if "callback" in cells:
        return cells["callback"].cell_contents
    inner = (_callback(cells[name].cell_contents, depth - 1) for name in ("impl", "made") if name in cells and depth)
    return next((found for found in inner if found is not None), None)


def differing(run: Callable[[], object], backend: Backend, names: Mapping[nn.Module, str]) -> Culprit | None:
    """The first operation whose result is finite where eager runs its graph, and not where the compiled graph runs.

    Args:
        run: does the call again.
        backend: what compiles it.
        names: the model's modules and their names.

    *Cost:* compiles each graph of the call again, with a look at each of its results.
    """
    checked = _Checked(backend, names)
    with torch.compiler.set_stance("default", force_backend=checked), contextlib.suppress(_Other):
        run()
    return None if checked.found is None else _culprit(*checked.found)


class _Other(Exception):
    """The operation is known; the rest of the call matters no more."""


class _Checked:
    """A backend: another one's, for graphs that also tell of each result whether it was finite."""

    def __init__(self, backend: Backend, names: Mapping[nn.Module, str]) -> None:
        self._backend, self._names = backend, names
        self.found: tuple[Any, int, str] | None = None  # the node, how many elements were bad, the module whose graph it is

    def __call__(self, graph: Any, inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
        looked_at = [node.name for node in _look_at_each(graph)]
        reference = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))  # a backend may change what it is given
        named = {node.name: node for node in reference.graph.nodes}
        nodes = [named[name] for name in looked_at]
        compiled = self._backend(graph, inputs, **options)

        def run(*args: Any) -> Any:
            with _random_kept():
                expected = reference(*(a.clone() if isinstance(a, Tensor) else a for a in args))
            given = compiled(*args)
            if nodes:
                for node, bad, bad_in_eager in zip(nodes, given[-1].tolist(), expected[-1].tolist(), strict=True):
                    if bad and not bad_in_eager:
                        self.found = node, bad, running(self._names)
                        raise _Other
            return given[: len(given) - bool(nodes)]

        return run


def _look_at_each(graph: Any) -> list[Any]:
    """Have a graph return, after its outputs, how many elements of each operation's result are not finite. Returns: the operations."""
    output = next(node for node in graph.graph.nodes if node.op == "output")
    nodes, counts = [], []
    for node in list(graph.graph.nodes):
        made = node.meta.get("example_value")
        is_result = node.op.startswith("call_") and isinstance(made, Tensor) and (made.is_floating_point() or made.is_complex())
        if is_result and made.layout is torch.strided and node is not output:
            with graph.graph.inserting_after(node):
                finite = graph.graph.call_function(torch.isfinite, (node,))
            with graph.graph.inserting_after(finite):
                flipped = graph.graph.call_function(torch.logical_not, (finite,))
            with graph.graph.inserting_after(flipped):
                counts.append(graph.graph.call_function(torch.sum, (flipped,)))
            nodes.append(node)
    if nodes:
        with graph.graph.inserting_before(output):
            told = graph.graph.call_function(torch.stack, (counts,))
        output.args = ((*output.args[0], told),)
        graph.recompile()
    return nodes


def running(names: Mapping[nn.Module, str]) -> str:
    """The name of the innermost module that Python is in: the graph is of its code."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module = frame.f_locals.get("self")
        if isinstance(module, nn.Module) and module in names:
            return names[module]
        frame = frame.f_back
    return ""


@contextlib.contextmanager
def _random_kept() -> Iterator[None]:
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def _culprit(node: Any, bad: int, module: str) -> Culprit:
    stack = stacks.of_text(node.stack_trace or "")
    file, line, _, code = stack[-1] if stack else ("", 0, "", "")
    path = next(reversed((node.meta.get("nn_module_stack") or {"": ("", None)}).values()))[0]
    inside = [next(filter(None, found)) for found in _CHILD.findall(path.partition("]")[2])]
    numel = node.meta["example_value"].numel()
    return Culprit(
        op=node._pretty_print_target(node.target),
        phase=Phase.FORWARD,
        module=".".join(filter(None, (module, *inside))),
        file=file,
        line=line,
        code=code,
        reason=Reason.COMPILED,
        detail=f"{bad} of {numel} elements are not finite in the compiled graph, whose operations give finite ones when eager runs them.",
        advice=_ADVICE,
        stack=stack,
    )
