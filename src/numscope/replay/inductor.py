"""Compiles a call's graphs again so that they also give each operation's result, and finds the first that Inductor gets wrong."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node

from numscope.replay.op import op_of
from numscope.replay.shadows import in_float64, widened
from numscope.replay.stack import of_text

_WORSE = 8.0  # times eager's distance from float64


def is_worse(compiled: Tensor, eager: Tensor, exact: Tensor, smallest: float = 0.0) -> bool:
    """Whether a compiled result is farther from float64 than rounding, as eager's is, explains.

    Args:
        smallest: the norm of an exact result that matters; a distance is of no less.
    """
    size = max(float(exact.norm()), smallest)
    apart, own = (float((widened(t) - exact).norm()) for t in (compiled, eager))
    return not apart <= _WORSE * own + math.sqrt(torch.finfo(eager.dtype).eps / 2) * size


class Looked:
    """A backend: Inductor, with a look at the graphs' results.

    Args:
        each: at each operation's, which the graphs then give too, so that they are compiled otherwise; else at those that they give.

    Attributes:
        found: the first operation whose result is wrong while eager gives a right one from the same arguments of its graph, and whether
            that is a backward's.

    *Cost:* compiles each graph, and runs it three times.
    """

    def __init__(self, each: bool) -> None:
        self._each = each
        self.found: tuple[Node, bool] | None = None

    def __call__(self, graph: GraphModule, inputs: Sequence[Any], **_: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx

        # With a cache it compiles nothing; and its workers are another process's.
        with torch._functorch.config.patch(enable_autograd_cache=False), torch._inductor.config.patch(compile_threads=1):
            return compile_fx(graph, inputs, inner_compile=self._inner)

    def _inner(self, graph: GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx_inner

        twin = copy.deepcopy(graph)  # which compiling changes
        output = next(iter(graph.graph.find_nodes(op="output")))
        given = output.args[0]
        if self._each:
            further = [n for n in graph.graph.nodes if _gives_real(n) and n not in given and isinstance(n.target, torch._ops.OpOverload)]
            output.args = ((*given, *(n for n in further if not op_of(n.target).written)),)
            graph.recompile()
        order = {node.name: number for number, node in enumerate(graph.graph.nodes)}
        looked_at = sorted(((n.name, at) for at, n in enumerate(output.args[0]) if _gives_real(n)), key=lambda one: order[one[0]])
        num = len(given)
        compiled = compile_fx_inner(graph, inputs, **options)
        tracing = torch._guards.TracingContext.try_get()
        if tracing is not None and tracing.output_strides is not None:
            del tracing.output_strides[num:]  # AOTAutograd counts from their end
        is_backward = bool(options.get("is_backward"))

        def run(args: list[Any]) -> Any:
            kept = [a.clone() if isinstance(a, Tensor) else a for a in args]
            results = compiled(args)
            if self.found is None:
                eager = _Eager(twin)
                eager.run(*kept)
                exact = _Exact(twin, eager.results)
                exact.run(*(widened(a) if _is_real(a) else a for a in kept))
                for name, at in looked_at:
                    result, own, right = results[at], eager.results[name], exact.results[name]
                    if isinstance(result, Tensor) and result.shape == right.shape and is_worse(result, own, right):
                        node = eager.nodes[name]
                        self.found = (node if isinstance(node.target, torch._ops.OpOverload) else node.args[0]), is_backward
                        break
            return results[:num]

        run._boxed_call = True  # type: ignore[attr-defined]  # AOTAutograd gives the arguments as a list then
        return run


def place_of(node: Node) -> tuple[str, int, str]:
    """File, line and code of what the script wrote; of a backward's operation, what its forward was."""
    stack = of_text(node.stack_trace or "")
    file, line, _, code = stack[-1] if stack else ("", 0, "", "")
    return file, line, code


def _gives_real(node: object) -> bool:
    made: Any = node.meta.get("val") if isinstance(node, Node) and node.op == "call_function" else None
    return _is_real(made) and made.shape != (0,)  # an effect's token


def _is_real(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.layout is torch.strided


class _Eager(Interpreter):
    """Runs a graph as it is, and keeps the results."""

    def __init__(self, graph: GraphModule) -> None:
        super().__init__(graph)
        self.results: dict[str, Any] = {}
        self.nodes = {node.name: node for node in graph.graph.nodes}

    def run_node(self, n: Node) -> Any:
        result = self.results[n.name] = super().run_node(n)
        return result


class _Exact(_Eager):
    """Runs it in float64; where an operator does not, goes on with what eager had."""

    def __init__(self, graph: GraphModule, eager: dict[str, Any]) -> None:
        super().__init__(graph)
        self._own = eager

    def run_node(self, n: Node) -> Any:
        result = None
        if isinstance(n.target, torch._ops.OpOverload):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            result = in_float64(op_of(n.target), n.target, args, kwargs, lambda t: t)
            if result is None:
                result = torch.utils._pytree.tree_map(lambda v: widened(v) if _is_real(v) else v, self._own[n.name])
            self.results[n.name] = result
            return result
        return super().run_node(n)
