"""Branches of a loss that carry a gradient and should not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from numscope.alerts.checks.check import Check, current_line
from numscope.probe.nodes import behind_shapes, below, kind_of, node_of, sides_of

ADVANTAGE = "advantage carries a gradient"
MOST = 1 << 11  # nodes of a side that are looked at
_LOSSES = {"MseLoss": "mse_loss", "SmoothL1Loss": "smooth_l1_loss", "HuberLoss": "huber_loss"}
_OF_PROBABILITIES = {"BinaryCrossEntropy": "binary_cross_entropy", "BinaryCrossEntropyWithLogits": "binary_cross_entropy_with_logits"}
# What puts the terms of a loss together, from its last operation on.
_SUMS = ("Mean", "Sum", "Add", "Sub", "Rsub", "Neg", "Mul", "Div", "Pow", "Abs", "Minimum", "Maximum", "Stack", "Cat", "Where")


class Branches(Check):
    """Looks at the sides of a loss's terms: a target that carries a gradient into the weights that make the prediction, and an advantage
    that carries one.

    *Cost:* at a thorough step a walk over the loss's last operations, and over both sides of those that look so, of 2,048 nodes at most.
    """

    name = "target carries a gradient"
    also = (ADVANTAGE,)

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        terms = [*below([node for root in roots if (node := node_of(root)) is not None], _is_sum, MOST)]
        wanted = {id(p) for p in self.subject.model.parameters()}
        for node, kind in [(node, kind_of(node)) for node in terms]:
            sides = sides_of(node)
            if len(sides) < 2 or None in sides[:2]:
                continue
            if (loss := _LOSSES.get(kind)) and _is_bootstrap(sides[1]) and wanted & _shared(*sides[:2]):
                self._say_target(loss, "a reward and the model's own output")
            elif (loss := _OF_PROBABILITIES.get(kind)) and wanted & _shared(*sides[:2]):
                self._say_target(loss, "the model's own output")
            elif kind in ("Sub", "Rsub") and any(map(_is_bootstrap, sides)) and node in _squared(terms) and wanted & _shared(*sides):
                self._say_target("a squared difference", "a reward and the model's own output")
            elif kind == "Mul":
                self._product(sides, wanted, terms)

    def _product(self, sides: Sequence[Any], wanted: set[int], terms: Sequence[Any]) -> None:
        logits = [_logits_of(side) for side in sides]
        if (logits[0] is None) == (logits[1] is None):
            return
        source, factor = (logits[0], sides[1]) if logits[1] is None else (logits[1], sides[0])
        if _is_advantage(factor) and wanted & _shared(source, factor, common=False):
            text = "The log-probability of an action is multiplied by an advantage that carries a gradient{}: the value is trained to make "
            text += "likely actions look good."
            self._say(ADVANTAGE, text, "Detach the advantage: -(log_prob * advantage.detach()).")
        elif kind_of(factor) == "Softmax" and wanted & _shared(source, factor):
            (inner,) = sides_of(factor)
            pairs = [sides_of(term) for term in terms if kind_of(term) == "Mul"]
            if not any(inner in map(_logits_of, pair) for pair in pairs):  # else each is the other's target
                self._say_target("cross_entropy or kl_div", "probabilities of the model's own")

    def _say_target(self, loss: str, made_of: str) -> None:
        text = (
            f"The target of {loss}, {made_of}, carries a gradient into the weights that make the prediction{{}}: each moves to the other."
        )
        self._say(self.name, text, "Compute the target within torch.no_grad(), or detach() it.")

    def _say(self, rule: str, text: str, advice: str) -> None:
        line = current_line()
        self.say(text.format(line.at(": backward at ")), advice, rule=rule, line=line, asks=True)


def _is_sum(node: Any) -> bool:
    """Whether a loss's terms go on here."""
    return kind_of(node) in (*_SUMS, *_LOSSES, *_OF_PROBABILITIES) or behind_shapes(node) is not node


def _squared(terms: Sequence[Any]) -> Iterator[Any]:
    """The terms of which the loss has squares or magnitudes."""
    for node in terms:
        sides = sides_of(node)
        if kind_of(node) in ("Pow", "Abs") or (kind_of(node) == "Mul" and sides[0] is sides[-1]):
            yield sides[0]


def _is_bootstrap(node: Any) -> bool:
    """Whether it is a constant and a constant times something, as a reward and a discounted value are."""
    for kind in ("Add", "Mul"):
        if node is None or kind_of(node) != kind or (sides := sides_of(node)).count(None) != 1:
            return False
        node = next(side for side in sides if side is not None)
    return True


def _is_advantage(node: Any, depth: int = 6) -> bool:
    """Whether it is a difference of a constant, such as a return, and of something with a gradient, perhaps scaled."""
    sides = [] if node is None or not depth else sides_of(node)
    kind = kind_of(node) if sides else ""
    if kind == "Rsub" or (kind == "Sub" and (None in sides or any(map(_is_bootstrap, sides)))):
        return True
    return kind in ("Sub", "Mul", "Div", "Neg", "Add", "Stack", "Cat") and any(_is_advantage(side, depth - 1) for side in sides)


def _logits_of(node: Any) -> Any:
    """Of a log-probability, or a ratio of two, the node of what it is computed from; None of anything else."""
    for _ in range(8):
        if node is None:
            return None
        kind, sides = kind_of(node), sides_of(node)
        if kind in ("LogSoftmax", "Log") or (kind == "Sub" and sides[1] is not None and kind_of(sides[1]) == "Logsumexp"):
            return sides[0]
        if kind == "Sub" and sides[0] is not None and kind_of(sides[0]) == "Div":  # a normal distribution's
            return sides[0].next_functions[0][0]
        if kind not in ("Gather", "NllLoss", "Neg", "Exp", "Sum", "Clamp", "Sub", "Stack", "Cat") or (kind == "Sub" and None not in sides):
            return None
        node = sides[0]
    return None


def _shared(one: Any, other: Any, *, common: bool = True) -> set[int]:
    """The ids of matrices behind the other, and, with ``common``, behind both; none if one of them is made of the other."""
    nodes = [set(below([side], most=MOST)) for side in (one, other)]
    if one in nodes[1] or other in nodes[0] or any("BackwardBackward" in node.name() for node in nodes[1]):
        return set()
    leaves = [{id(leaf) for n in side if (leaf := getattr(n, "variable", None)) is not None and leaf.dim() > 1} for side in nodes]
    return leaves[0] & leaves[1] if common else leaves[1]
