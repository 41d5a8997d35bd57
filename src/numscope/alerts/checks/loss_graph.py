"""What a loss is made of, as the graph of its backward shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from torch import Tensor, nn

from numscope.alerts.checks.check import FIRST, Check, Subject, current_line
from numscope.distributed.place import gathered_parameters
from numscope.probe.nodes import graph
from numscope.probe.optimizers import ids_of, living_optimizers
from numscope.records.words import count

PAIRS = "loss over all pairs"
OVER_BATCH = "softmax over the batch"
OF_ONE = "softmax of one number"
OUTSIDE = "layers outside the model"
UNOWNED = "model without optimizer"
MOST_HELD = 1000  # things in a module's list that are looked at

# What makes probabilities, and what makes numbers of any size, by the begin of a node's name.
_PROBABILITIES = {"Softmax": "a softmax", "Sigmoid": "a sigmoid"}
_RAW = {"Addmm": "a linear layer", "Mm": "a linear layer", "Convolution": "a convolution"}
# By a loss's node: its function, what its input must not be made by, and what to do about it.
_LOSSES: Mapping[str, tuple[str, Mapping[str, str], str]] = {
    "LogSoftmax": ("log_softmax (cross_entropy)", _PROBABILITIES, "Give it logits: it has a softmax of its own."),
    "BinaryCrossEntropyWithLogits": ("binary_cross_entropy_with_logits", _PROBABILITIES, "Give it logits: it has a sigmoid of its own."),
    "NllLoss": ("nll_loss", {**_PROBABILITIES, **_RAW}, "Give it log-probabilities: log_softmax of the logits, or use cross_entropy."),
    "Logsumexp": ("Categorical(logits=…), or logsumexp,", {"Softmax": "a softmax"}, "Give it logits, or Categorical(probs=…)."),
    "CtcLoss": ("ctc_loss", {**_PROBABILITIES, **_RAW}, "Give it log-probabilities: log_softmax of the logits."),
    "kl_div": ("kl_div", _PROBABILITIES, "Give it log-probabilities: log_softmax of the logits."),
}
# Nodes that only move elements, or make them another dtype's.
_SHAPES = (
    *("View", "UnsafeView", "ReshapeAlias", "Transpose", "Permute", "T", "Squeeze", "Unsqueeze", "Slice", "Select", "Index", "Alias"),
    *("Clone", "ToCopy", "Expand", "IndexSelect", "MaskedSelect", "Narrow", "BackwardHookFunction"),
)
_ELEMENTWISE = ("Sub", "Rsub", "Mul", "MseLoss", "SmoothL1Loss", "HuberLoss")


class LossGraph(Check):
    """Looks at the graph of each loss: the kinds of inputs that losses get, an error of all predictions against all targets, a softmax
    over the batch or over one number, layers that get gradients though they are no part of the model, and a model that no optimizer has.

    *Cost:* at a thorough step a walk over the loss's graph, about 2 µs a node, of 8,192 nodes at most.
    """

    name = "wrong input of a loss"
    also = (PAIRS, OVER_BATCH, OF_ONE, OUTSIDE, UNOWNED)

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._batch = 0  # the first dimension of the model's input

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        given = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and value.dim()), None)
        self._batch = 0 if given is None else len(given)

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        model, leaves, found = self.subject.model, dict[int, Tensor](), list[tuple[str, str, str]]()
        for node in graph(roots):
            kind = _kind(node)
            if kind == "torch::autograd::AccumulateGrad":
                leaves[id(node.variable)] = node.variable
            elif wrong := _wrong_input(node, kind) or _all_pairs(node, kind) or self._softmax(node, kind):
                found.append(wrong)
        inside = {id(p) for p in (*model.parameters(), *gathered_parameters(model))}
        if inside.isdisjoint(leaves):  # another model's loss
            return
        for rule, text, advice in found:
            line = current_line()
            self.say(text.format(line.at(": backward at ")), advice, rule=rule, line=line, asks=rule != self.name)
        if leaves.keys() - inside and not self.spoken.issuperset((OUTSIDE, UNOWNED)):
            owned = {number for optimizer in living_optimizers() for number in ids_of(optimizer)}
            self._outside(leaves.keys() - inside - owned)
            # An input that is optimized, as a dream is, trains nothing else.
            trained = any(isinstance(leaves[number], nn.Parameter) for number in owned & leaves.keys())
            if inside.isdisjoint(owned) and trained and self.subject.num >= FIRST - 1:
                self._left_out([leaves[number] for number in inside & leaves.keys()])

    def _softmax(self, node: Any, kind: str) -> tuple[str, str, str] | None:
        shape = _shape(node)
        if kind != "Softmax" or len(shape) < 2 or self._batch < 2 or shape[0] % self._batch:
            return None
        if node._saved_dim == 0:
            text = (
                f"A softmax runs over the first dimension of a tensor of shape {shape}, which is the batch's: what one sample gets depends "
            )
            return (
                OVER_BATCH,
                text + "on the others{}.",
                "Give softmax the dimension over which the numbers are to sum to 1, mostly dim=-1.",
            )
        if len(shape) == 2 and shape[1] == 1:
            text = f"A softmax runs over a dimension of size 1 of a tensor of shape {shape}: its result is 1 whatever it gets"
            return OF_ONE, text + "{}.", "Use a sigmoid for one number, or two outputs."
        return None

    def _left_out(self, wanted: Sequence[Tensor]) -> None:
        kind = type(self.subject.model).__name__
        text = f"Gradients arrive at {count(len(wanted), 'parameter')} of {kind}, and no optimizer has any parameter of it, while others "
        text += "in the same loss are trained."
        advice = f"Give them to the optimizer, if {kind} is to learn; else requires_grad_(False) saves the gradients."
        self.say(text, advice, rule=UNOWNED, evidence={"model": kind, "num_parameters": len(wanted)}, asks=True)

    def _outside(self, wanted: Set[int]) -> None:
        for module, name in self.subject.probe.names.items() if wanted else ():
            for attribute, held in vars(module).items():
                tensors = [] if attribute in _OWN else [t for t in _held(held) if id(t) in wanted]
                if tensors:
                    path = f"{name}.{attribute}".lstrip(".")
                    text = f"Gradients arrive at {count(len(tensors), 'tensor')} in {path}, a Python {type(held).__name__} of "
                    text += (
                        f"{type(module).__name__}'s, that are no parameters of the model and in no optimizer: they do not learn, are not "
                    )
                    text += "saved and do not follow .to()."
                    advice = "Keep layers in nn.ModuleList or nn.ModuleDict, tensors in nn.ParameterList; derive layers from nn.Module."
                    self.say(text, advice, rule=OUTSIDE, layer=name, evidence={"attribute": path, "num_tensors": len(tensors)}, asks=True)
                    return


_OWN = frozenset(vars(nn.Module()))  # where modules keep what is registered, hooks and modes


def _held(thing: Any) -> Iterator[Tensor]:
    """The tensors that a list, tuple, dictionary, or object that is no module, holds, in modules too."""
    if not isinstance(thing, list | tuple | dict | nn.Module | Tensor):
        thing = vars(thing) if type(thing).__dictoffset__ and not isinstance(thing, type) else ()  # asks no __getattr__
    if not isinstance(thing, nn.Module | Tensor):
        for each in list(thing.values() if isinstance(thing, dict) else thing)[:MOST_HELD]:
            if isinstance(each, nn.Module):
                yield from each.parameters()
            elif isinstance(each, Tensor):
                yield each


def _kind(node: Any) -> str:
    """A node's operation: ``SoftmaxBackward0``: ``Softmax``."""
    return str(node.name()).partition("Backward")[0]


def _shape(node: Any, number: int = 0) -> tuple[int, ...]:
    """The shape of an output of a node's operation; empty if it is not known."""
    known = getattr(node, "_input_metadata", ())
    return tuple(known[number].shape) if number < len(known) and not known[number].is_nested_tensor else ()


def _maker(node: Any) -> str:
    """The operation that made an input, behind what only moves elements; a product and a sum, as a linear layer may be, are one."""
    node = _behind_shapes(node)
    kind = "" if node is None else _kind(node)
    made_of = [_behind_shapes(each) for each, _ in node.next_functions] if kind == "Add" else []
    return "Addmm" if any(each is not None and _kind(each) == "Mm" for each in made_of) else kind


def _behind_shapes(node: Any) -> Any:
    while node is not None and _kind(node) in _SHAPES and node.next_functions:
        node = node.next_functions[0][0]
    return node


def _wrong_input(node: Any, kind: str) -> tuple[str, str, str] | None:
    kind = "NllLoss" if kind == "NllLoss2D" else kind
    given = node.next_functions
    if kind == "Sub" and len(given) == 2 and given[0][0] is None and given[1][0] is not None and _kind(given[1][0]) == "Mul":
        kind, given = "kl_div", [each for each in given[1][0].next_functions if each[0] is not None]  # target · log target - target · input
        if len(given) != 1:
            return None
    if kind not in _LOSSES or not given:
        return None
    function, wrong, advice = _LOSSES[kind]
    maker = wrong.get(_maker(given[0][0]))
    return maker and (LossGraph.name, f"{function} is given the output of {maker}{{}}.", advice)  # type: ignore[return-value]


def _all_pairs(node: Any, kind: str) -> tuple[str, str, str] | None:
    given = [each for each in node.next_functions if each[0] is not None]
    if kind not in _ELEMENTWISE or len(given) != 1 or len(node.next_functions) < 2:  # else both sides have gradients: meant so
        return None
    ((source, number),) = given
    made = _shape(node)
    if _kind(source) == "Expand":
        made = _shape(source)
        source, number = source.next_functions[0]
    shape = () if source is None else _shape(source, number)
    if len(made) != 2 or made[0] != made[1] or made[0] < 2 or shape not in ((made[0], 1), made[:1]):
        return None
    if _kind(source) in ("torch::autograd::AccumulateGrad", "Unsqueeze", "View", "UnsafeView", "ReshapeAlias", "Index", "Select", "Slice"):
        return None
    other = made[:1] if len(shape) == 2 else (made[0], 1)
    text = f"Predictions of shape {shape} meet targets of another shape, such as {other}, and become {made}: each against all"
    return PAIRS, text + "{}.", "Give both the same shape: predictions.squeeze(-1), or targets.unsqueeze(-1)."
