"""Reads from the graph of a loss's backward how the loss is made."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from torch import Tensor, nn

from numscope.alerts.checks.check import FIRST, Check, ScriptLine, Subject, current_line
from numscope.distributed.place import gathered_parameters
from numscope.probe.nodes import behind_shapes, graph, kind_of, node_of, shape_of, sides_of
from numscope.probe.optimizer import accumulates
from numscope.probe.optimizers import ids_held
from numscope.records.words import count

PAIRS = "loss over all pairs"
OVER_BATCH = "softmax over the batch"
OF_ONE = "normalized over one number"
OUTSIDE = "layers outside the model"
UNOWNED = "model without optimizer"
TWICE = "loss twice"
MOST_HELD = 1000  # things in a module's list that are looked at

# What makes probabilities, and what makes numbers of any size, by the begin of a node's name.
_PROBABILITIES = {"Softmax": "a softmax", "Sigmoid": "a sigmoid"}
_RAW = {"Addmm": "a linear layer", "Mm": "a linear layer", "Convolution": "a convolution"}
_CUT = "a relu"  # it makes logits too, but none below 0: asked about
_LOGITS = {**_PROBABILITIES, "Relu": _CUT}
# By a loss's node: its function, what its input must not be made by, and what to do about it.
_LOSSES: Mapping[str, tuple[str, Mapping[str, str], str]] = {
    "LogSoftmax": ("log_softmax (cross_entropy)", _LOGITS, "Give it logits: it has a softmax of its own."),
    "BinaryCrossEntropyWithLogits": ("binary_cross_entropy_with_logits", _LOGITS, "Give it logits: it has a sigmoid of its own."),
    "NllLoss": ("nll_loss", {**_PROBABILITIES, **_RAW}, "Give it log-probabilities: log_softmax of the logits, or use cross_entropy."),
    "Logsumexp": ("Categorical(logits=…), or logsumexp,", {"Softmax": "a softmax"}, "Give it logits, or Categorical(probs=…)."),
    "CtcLoss": ("ctc_loss", {**_PROBABILITIES, **_RAW}, "Give it log-probabilities: log_softmax of the logits."),
    "kl_div": ("kl_div", _PROBABILITIES, "Give it log-probabilities: log_softmax of the logits."),
}
# Nodes that leave probabilities what they are if the rest is constant, and whether a script surely doesn't mean them to be logits then.
_CONSTANT = {"Add": True, "Clamp": True, "ClampMin": True, "ClampMax": True, "Mul": False, "Div": False, "Mean": False, "Stack": False}
_ELEMENTWISE = ("Sub", "Rsub", "Mul", "MseLoss", "SmoothL1Loss", "HuberLoss")
_BY_HAND = ("torch::autograd::AccumulateGrad", "Unsqueeze", "View", "UnsafeView", "ReshapeAlias", "Index", "Select", "Slice")


class _Found(NamedTuple):
    rule: str
    text: str  # with a place for the line
    advice: str
    asks: bool = True


_models: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # those that are watched


class LossGraph(Check):
    """Looks at the graph of each loss: the kinds of inputs that losses get, an error of all predictions against all targets, a softmax
    over the batch, a softmax or a norm over one number, layers and parameters that get gradients though they are no part of the model, and
    a model that no optimizer has.

    *Cost:* at a thorough step a walk over the loss's graph, about 2 µs a node, of 8,192 nodes at most.
    """

    name = "wrong input of a loss"
    also = (PAIRS, OVER_BATCH, OF_ONE, OUTSIDE, UNOWNED, TWICE)

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        _models.add(subject.model)
        self._batch = 0  # the first dimension of the model's input
        self._roots: dict[tuple[int, str], ScriptLine] = {}  # nodes that backward has begun from in this step, not kept alive

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        given = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and value.dim()), None)
        self._batch = 0 if given is None else len(given)
        if (entry := self.subject.probe.entries.get(module)) is not None and given is not None and given.requires_grad:
            entry.is_fed = entry.is_fed or not given.is_leaf  # the engine looks for odd batches in data alone

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        model, leaves, found, before = self.subject.model, dict[int, Tensor](), list[_Found](), None
        for node in graph(roots):
            kind, before = kind_of(node), before or (self._roots.get(_number(node)) if self._roots else None)
            if kind == "torch::autograd::AccumulateGrad":
                leaves[id(node.variable)] = node.variable
            elif wrong := _wrong_input(node, kind) or _all_pairs(node, kind) or self._softmax(node, kind) or _of_one(node, kind):
                found.append(wrong)
        inside = {id(p) for p in (*model.parameters(), *gathered_parameters(model))}
        if inside.isdisjoint(leaves):  # another model's loss
            return
        if accumulates():
            if before is not None and any(leaf.grad is not None for leaf in leaves.values()):
                text = (
                    f"What backward is called on contains what it was called on before in this step{before.at()}, which counts twice{{}}."
                )
                found.append(_Found(TWICE, text, "Call backward once, on the sum, or on what was not in the sum before."))
            self._roots.update((_number(node), current_line()) for root in roots if (node := node_of(root)) is not None)
        for rule, text, advice, asks in found:
            line = current_line()
            self.say(text.format(line.at(": backward at ")), advice, rule=rule, line=line, asks=asks)
        if leaves.keys() - inside and not self.spoken.issuperset((OUTSIDE, UNOWNED)):
            owned = ids_held()
            wanted = leaves.keys() - inside - owned
            self._outside(wanted)
            # An input that is optimized, as a dream is, trains nothing else.
            trained = any(isinstance(leaves[number], nn.Parameter) for number in owned & leaves.keys())
            others = {id(p) for each in _models for p in each.parameters()}
            free = [leaves[number] for number in wanted - others if isinstance(leaves[number], nn.Parameter)]
            if free and trained and self.subject.num >= FIRST - 2:
                text = f"Gradients arrive at {count(len(free), 'parameter')}, one of shape {tuple(free[0].shape)}, that neither a watched"
                advice = "Make layers and parameters once, in __init__; give what is in no module to the optimizer by itself."
                self.say(f"{text} model nor an optimizer has.", advice, rule=OUTSIDE, line=current_line(), asks=True)
            if inside.isdisjoint(owned) and trained and self.subject.num >= FIRST - 1:
                self._left_out([leaves[number] for number in inside & leaves.keys()])

    def end(self, closing: bool) -> None:
        self._roots.clear()

    def close(self) -> None:
        self._roots.clear()

    def _softmax(self, node: Any, kind: str) -> _Found | None:
        shape = shape_of(node)
        if kind not in ("Softmax", "LogSoftmax") or len(shape) < 2 or self._batch < 2 or shape[0] % self._batch:
            return None
        if kind == "LogSoftmax" and (len(shape) > 2 or shape[0] == shape[1]):  # a contrast of all pairs is normalized both ways
            return None
        if node._saved_dim == 0:
            text = f"A softmax runs over the first dimension of a tensor of shape {shape}, which is the batch's: what one sample gets "
            advice = "Give softmax the dimension over which the numbers are to sum to 1, mostly dim=-1."
            return _Found(OVER_BATCH, text + "depends on the others{}.", advice)
        if len(shape) == 2 and shape[1] == 1:
            text = f"A softmax runs over a dimension of size 1 of a tensor of shape {shape}: its result is 1 whatever it gets"
            return _Found(OF_ONE, text + "{}.", "Use a sigmoid for one number, or two outputs.")
        return None

    def _left_out(self, wanted: Sequence[Tensor]) -> None:
        kind = type(self.subject.model).__name__
        text = f"Gradients arrive at {count(len(wanted), 'parameter')} of {kind}, and no optimizer has any parameter of it, while others "
        text += "in the same loss are trained."
        advice = f"Give them to the optimizer, if {kind} is to learn; else requires_grad_(False) saves the gradients."
        self.say(text, advice, rule=UNOWNED, evidence={"model": kind, "num_parameters": len(wanted)}, asks=True)

    def _outside(self, wanted: Set[int]) -> None:
        """Say where gradients arrive that no parameter of the model's and no optimizer has."""
        for module, name in self.subject.probe.names.items() if wanted else ():
            for attribute, held in vars(module).items():
                if type(held) is Tensor and held.grad_fn is not None and _leaf_behind(held.grad_fn) in wanted:
                    path = f"{name}.{attribute}".lstrip(".")
                    text = f"Gradients arrive at a parameter that {path} was made from, and {path} is no parameter of the model: "
                    text += "it is in no optimizer, and is not saved."
                    advice = "Make the tensor first and the parameter last: nn.Parameter(tensor.to(...)), not nn.Parameter(tensor).to(...)."
                    self.say(text, advice, rule=OUTSIDE, layer=name, evidence={"attribute": path}, asks=True)
                    return
                tensors = [] if attribute in _OWN else [t for t in _held(held) if id(t) in wanted]
                if tensors:
                    path = f"{name}.{attribute}".lstrip(".")
                    text = f"Gradients arrive at {count(len(tensors), 'tensor')} in {path}, a Python {type(held).__name__} of "
                    text += f"{type(module).__name__}'s, that are no parameters of the model and in no optimizer: they do not learn, "
                    text += "are not saved and do not follow .to()."
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


def _number(node: Any) -> tuple[int, str]:
    """A key that identifies a node."""
    return node._sequence_nr(), node.name()


def _maker(node: Any) -> tuple[str, bool]:
    """The operation that made an input, behind what only moves elements, and whether it is surely that: constants were at most added, and
    it was clamped; not scaled or averaged. A product and a sum, as a linear layer may be, are one."""
    is_sure, is_direct = True, True
    while (node := behind_shapes(node)) is not None:
        kind, given = kind_of(node), [each for each, _ in node.next_functions if each is not None]
        if kind not in _CONSTANT or not given or (len(given) > 1 and (kind != "Stack" or len({_maker(each) for each in given}) > 1)):
            break
        node, is_sure, is_direct = given[0], is_sure and _CONSTANT[kind], False
    kind = "" if node is None else kind_of(node)
    made_of = sides_of(node) if kind == "Add" else []
    kind = "Addmm" if any(each is not None and kind_of(each) == "Mm" for each in made_of) else kind
    return (kind if is_direct or kind in _PROBABILITIES else ""), is_sure


def _leaf_behind(node: Any) -> int | None:
    """The leaf that a tensor was made from by what only moves elements or makes them another dtype's."""
    node = behind_shapes(node)
    return id(node.variable) if node is not None and kind_of(node) == "torch::autograd::AccumulateGrad" else None


def _wrong_input(node: Any, kind: str) -> _Found | None:
    kind = "NllLoss" if kind == "NllLoss2D" else kind
    given = node.next_functions
    if kind == "Sub" and len(given) == 2 and given[0][0] is None and given[1][0] is not None and kind_of(given[1][0]) == "Mul":
        kind, given = "kl_div", [each for each in given[1][0].next_functions if each[0] is not None]  # target · log target - target · input
        if len(given) != 1:
            return None
    if kind not in _LOSSES or not given:
        return None
    function, wrong, advice = _LOSSES[kind]
    made_by, is_sure = _maker(given[0][0])
    maker = wrong.get(made_by)
    if maker == _CUT:
        advice = "Leave the relu out behind the last layer: a class whose logit it cuts gets no gradient."
        return _Found(LossGraph.name, f"{function} is given the output of a relu: no logit is below 0{{}}.", advice)
    return _Found(LossGraph.name, f"{function} is given the output of {maker}{{}}.", advice, asks=not is_sure) if maker else None


def _of_one(node: Any, kind: str) -> _Found | None:
    """A norm of one number, or a tensor divided by its sum over one: what an expert's weight is, if a router chooses one."""
    given, shape = node.next_functions, shape_of(node)
    sizes = getattr(node, "_saved_normalized_shape", ())
    if kind == "NativeGroupNorm":
        sizes = (node._saved_C // node._saved_group, node._saved_HxW)
    if sizes and math.prod(sizes) == 1:
        text = f"A norm over one number each of a tensor of shape {shape}: its result is its bias, or 0, whatever it gets{{}}."
        return _Found(OF_ONE, text, "Normalize over a dimension of several numbers, behind the first layer, or leave the norm out.")
    if kind != "Div" or len(given) != 2 or len(shape) < 2 or shape[0] < 2:
        return None
    total = given[1][0]
    while total is not None and kind_of(total) in ("Add", "ClampMin", "Clamp"):
        total = total.next_functions[0][0]
    if total is None or kind_of(total) != "Sum" or total.next_functions[0] != given[0] or shape_of(total) != shape:
        return None
    text = f"A tensor of shape {shape} is divided by its own sum over a dimension of size 1: the result is 1 whatever it is, and what "
    return _Found(OF_ONE, text + "made it learns nothing{}.", "With one number, use it as it is; a sum is for two and more.")


def _all_pairs(node: Any, kind: str) -> _Found | None:
    sides = [each for each in node.next_functions if each[0] is not None]
    if kind not in _ELEMENTWISE or not sides or len(node.next_functions) < 2:
        return None
    made = shape_of(node)
    if kind_of(sides[0][0]) == "Expand":
        made = shape_of(sides[0][0])
        sides[0] = sides[0][0].next_functions[0]
    if len(made) != 2 or made[0] != made[1] or made[0] < 2 or any(source is None for source, _ in sides):
        return None
    column, row = (made[0], 1), made[:1]
    shapes = [shape_of(*side) for side in sides]
    made_so = [kind_of(source) in _BY_HAND for source, _ in sides]
    advice = "Give both the same shape: {0}.squeeze(-1), or {1}.unsqueeze(-1)."
    if len(sides) == 1 and shapes[0] in (column, row) and not made_so[0]:
        text = f"Predictions of shape {shapes[0]} meet targets of another shape, such as {row if shapes[0] == column else column}"
        return _Found(PAIRS, f"{text}, and become {made}: each against all{{}}.", advice.format("predictions", "targets"))
    if len(sides) == 2 and {*shapes} == {column, row} and not made_so[shapes.index(column)]:
        text = f"Tensors of shapes {column} and {row}, both computed from the batch, become {made}: each against all"
        return _Found(PAIRS, text + "{}.", advice.format("the first", "the second"))
    return None
