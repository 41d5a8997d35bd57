"""The nodes of autograd graphs, looked at from Python within bounds.

A node that Python has once seen keeps its Python object, and torch destroys a chain of such nodes by recursion, with some 300 bytes of
stack each (bare nodes go one after the other). So a walk over all of a long graph ends the process with a segmentation fault, later, when
the graph goes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from numscope.distributed.place import gathered_parameters
from numscope.records.faults import ours

MOST_WALKED = 1 << 13  # nodes of a graph
# Nodes that only move elements, or make them another dtype's.
_SHAPES = (
    *("View", "UnsafeView", "ReshapeAlias", "Transpose", "Permute", "T", "Squeeze", "Unsqueeze", "Slice", "Select", "Index", "Alias"),
    *("Clone", "ToCopy", "Expand", "IndexSelect", "MaskedSelect", "Narrow", "BackwardHookFunction"),
)
MOST_HOOKED = 1 << 13  # modules' calls whose outputs' nodes get hooks, up to the next backward


def node_of(tensor: Tensor) -> Any:
    """The node that made a tensor; None for none, and for a view that was written in a way for which torch refuses to tell."""
    try:
        return tensor.grad_fn
    except ours(RuntimeError):
        return None


def saved(node: Any, name: str) -> Tensor | None:
    """A plain tensor that a node has saved, if it lies there: for one with a hook a checkpoint would do its forward again; numbers of one
    that is spread over ranks would take a collective."""
    raw = getattr(node, f"_raw_saved_{name}", None)
    if raw is None or getattr(raw, "unpack_hook", raw) is not None:
        return None
    try:
        found: Tensor | None = getattr(node, f"_saved_{name}")
        return found if type(found) is Tensor else None
    except ours(RuntimeError):  # it is gone
        return None


def kind_of(node: Any) -> str:
    """A node's operation: ``SoftmaxBackward0``: ``Softmax``; "" of a Function of the script's own, which may have any name."""
    name = str(node.name())
    return "" if name.endswith("Backward") else name.partition("Backward")[0]


def shape_of(node: Any, number: int = 0) -> tuple[int, ...]:
    """The shape of an output of a node's operation; empty if it is not known."""
    known = getattr(node, "_input_metadata", ())
    return tuple(known[number].shape) if number < len(known) and not known[number].is_nested_tensor else ()


def behind_shapes(node: Any) -> Any:
    """The node that has made the elements which some nodes only move, or make another dtype's."""
    while node is not None and kind_of(node) in _SHAPES and node.next_functions:
        node = node.next_functions[0][0]
    return node


def sides_of(node: Any) -> list[Any]:
    """The nodes that have made an operation's operands, behind what only moves elements; None for an operand without a gradient."""
    return [behind_shapes(side) for side, _ in node.next_functions]


def graph(roots: Iterable[Tensor], enters: Callable[[Any], bool] = lambda node: True) -> Iterator[Any]:
    """The nodes of the autograd graph of some tensors, each once, as far as ``enters`` lets them in; ``MOST_WALKED`` at most.

    *Cost:* about 1 µs a node.
    """
    return below([node for t in roots if (node := node_of(t)) is not None and enters(node)], enters)


def below(nodes: Iterable[Any], enters: Callable[[Any], bool] = lambda node: True, most: int = MOST_WALKED) -> Iterator[Any]:
    """Some nodes and those whose results they were made of, as ``graph``."""
    todo = [*nodes]
    seen = set(todo)
    while todo:
        node = todo.pop()
        yield node
        if len(seen) < most:
            new = {following for following, _ in node.next_functions if following is not None and enters(following)} - seen
            seen |= new
            todo += new


MAX_NODES = 512  # of a loss's graph; of a longer one, which contains a model or many acts of an agent, those alone that _SINGULAR names
# Operations whose backward makes an infinity or a nan of finite numbers, by the begin of their nodes' names.
_SINGULAR = (
    *("Sqrt", "Rsqrt", "Log", "Pow", "Div", "Reciprocal", "Norm", "LinalgVectorNorm", "Std", "Var", "Xlogy", "Acos", "Asin", "Acosh"),
    *("Atanh", "Atan2", "Cdist", "PairwiseDistance", "Hypot", "Prod", "Cumprod", "Digamma", "Lgamma", "Exp", "Linalg", "Svd"),
)


def suspects(nodes: Sequence[Any]) -> Sequence[Any]:
    """The nodes whose backward is to be looked at: all, or of many those that can make something bad."""
    if len(nodes) <= MAX_NODES:
        return nodes
    return [node for node in nodes if node.name().startswith(_SINGULAR) or hasattr(node, "_forward_cls")]


def trains(roots: Sequence[Tensor], model: nn.Module) -> bool:
    """Whether backward from some tensors gives a model's parameters gradients. A graph too long to be looked through is taken to.

    *Cost:* a walk over the graph.
    """
    wanted = {id(p) for p in (*model.parameters(), *gathered_parameters(model))}
    nodes = 0
    for node in graph(roots):
        if id(getattr(node, "variable", None)) in wanted:
            return True
        nodes += 1
    return nodes >= MOST_WALKED


def holds(roots: Sequence[Tensor], wanted: Collection[Any]) -> bool:
    """Whether the graph of some tensors holds one of these nodes. *Cost:* a walk up to that node."""
    return any(node in wanted for node in graph(roots))
