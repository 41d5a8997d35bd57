"""Labels of a loss: how many count, and how much."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from numscope.alerts.checks.check import Check, ScriptLine, Subject, current_line
from numscope.probe.nodes import behind_shapes, kind_of, node_of, saved
from numscope.records.faults import suppress
from numscope.summary.host_copy import HostCopy
from numscope.summary.unseen import unseen

NONE = "no label counts"
PADDING = "padding in the loss"
INPUTS = "labels are the inputs"
LEAST_LOOKS = 2  # at which it is so: a single batch may be empty
LEAST_RATIO = 1.1  # of the largest number of labels to the smallest
MEAN, SUM = 1, 2  # as torch numbers reductions


class Labels(Check):
    """Counts the labels of a loss that its ``ignore_index``, or a mask before its sum, leaves: none; more than the mask that the model
    was given; those that are the model's input ids, place by place; or numbers that differ between micro-batches whose means count the
    same.

    *Cost:* at a thorough step one pass over the labels of each loss, and over the mask; what is on a device is read a look later.
    """

    name = "unequal micro-batches"
    also = (NONE, PADDING, INPUTS)

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._mask: Tensor | None = None  # that the model was given, until its loss
        self._ids: Tensor | None = None  # the only whole numbers that it was given but for masks
        self._seen: dict[int, list[tuple[ScriptLine, HostCopy]]] = defaultdict(list)  # by step, of each backward
        self._looks = dict.fromkeys((self.name, *self.also), 0)

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        with suppress(TypeError, ValueError):
            given = {**inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments, **kwargs}
            masks = [v for name, v in given.items() if "mask" in name and type(v) is Tensor and v.dim() == 2]
            self._mask = masks[0] if masks and not masks[0].is_floating_point() else None
            whole = [v for name, v in given.items() if type(v) is Tensor and v.dtype in (torch.int32, torch.int64) and "mask" not in name]
            self._ids = whole[0] if len(whole) == 1 and whole[0].dim() == 2 else None

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        (mask, self._mask), (ids, self._ids) = (self._mask, None), (self._ids, None)
        with unseen():
            found = _counted(node_of(roots[0])) if roots else None
            if found is not None:
                count, num, weight, labels = found
                has_mask = mask is not None and mask.numel() in (num, num + len(mask))  # labels may be those of the next tokens
                hidden = torch.minimum((mask == 0).sum(), (mask == 1).sum()) - len(mask) if mask is not None and has_mask else -num
                same: Tensor | bool = False
                if ids is not None and labels is not None and labels.numel() == ids.numel() and labels.device == ids.device:
                    same = ((labels.reshape(-1) == ids.reshape(-1)) | (labels.reshape(-1) < 0)).all()
                values = [torch.as_tensor(v, dtype=torch.float32, device=count.device) for v in (count, num, weight, hidden, same)]
                self._seen[self.subject.step].append((current_line(), HostCopy(torch.stack(values))))

    def end(self, closing: bool) -> None:
        self._mask = self._ids = None
        for step in [step for step, seen in self._seen.items() if all(copy.is_here for _, copy in seen)]:
            by_line = defaultdict(list)
            for line, copy in self._seen.pop(step):
                by_line[line].append(copy.take().tolist())
            for line, losses in by_line.items():
                self._judge(line, losses)

    def _judge(self, line: ScriptLine, losses: list[list[float]]) -> None:
        backward, (_, num, *_) = line.at(": backward at "), losses[0]
        counts, parts = [loss[0] for loss in losses], [loss[0] * loss[2] for loss in losses]
        if self._again(NONE, not all(counts)):
            text = f"None of the {num:.0f} labels of a batch counts{backward}: nothing is learned from it."
            advice = "Look at what sets labels to ignore_index, or at the mask: prompts may fill the window."
            self.say(text, advice, rule=NONE, line=line, asks=True)
        if self._again(PADDING, all(count + hidden > num for count, num, _, hidden, _ in losses)):
            text = f"{counts[0]:.0f} of {num:.0f} labels count in the loss{backward}, more than the mask that the model is given leaves."
            advice = "Set labels where the mask hides the input to -100, the ignore_index of cross_entropy."
            self.say(text, advice, rule=PADDING, line=line, asks=True)
        if self._again(INPUTS, all(count and same for count, *_, same in losses)):
            text = f"All labels of the loss{backward} are the model's own input ids, place by place: each token is to be told from itself."
            advice = "For the next token compare logits[:, :-1] with ids[:, 1:]; for a masked one mask it in the input."
            self.say(text, advice, rule=INPUTS, line=line, asks=True)
        equal = min(parts, default=0.0) > 0 and max(parts) < 1.001 * min(parts)
        if self._again(self.name, len(losses) > 1 and equal and max(counts) > LEAST_RATIO * min(counts)):
            text = f"Of {len(losses)} micro-batches {min(counts):.0f} to {max(counts):.0f} labels count, and their means count the same"
            advice = "Sum their losses, and divide each by the number of labels of the whole step."
            self.say(f"{text}{backward}: labels of short ones count more.", advice, line=line, asks=True)

    def _again(self, rule: str, is_so: bool) -> bool:
        self._looks[rule] += is_so
        return is_so and self._looks[rule] >= LEAST_LOOKS


def _counted(node: Any) -> tuple[Tensor, int, Tensor | float, Tensor | None] | None:
    """Of a mean or sum over labels, behind constant factors: how many count, of how many, the weight of one, and the labels themselves.
    None: of no such thing."""
    weight: Tensor | float = 1.0
    while (node := behind_shapes(node)) is not None and kind_of(node) in ("Mul", "Div"):
        other = _constant(node)
        if other is None or other.numel() != 1:
            return None
        weight = weight * other if kind_of(node) == "Mul" else weight / other
        node = next(each for each, _ in node.next_functions if each is not None)
    if node is not None and kind_of(node) == "Sum":
        behind = behind_shapes(node.next_functions[0][0])
        mask = _constant(behind) if behind is not None and kind_of(behind) == "Mul" else None
        if mask is None or mask.numel() == 1:
            return None
        return torch.where(((mask == 0) | (mask == 1)).all(), mask.sum(), torch.nan), mask.numel(), weight, None
    if node is None or kind_of(node) not in ("NllLoss", "NllLoss2D") or (target := saved(node, "target")) is None:
        return None
    count = (target != node._saved_ignore_index).sum()
    by = {MEAN: count.clamp(min=1), SUM: 1}.get(node._saved_reduction)
    return None if by is None or saved(node, "weight") is not None else (count, target.numel(), weight / by, target)


def _constant(node: Any) -> Tensor | None:
    """The factor, or divisor, without gradient of a product or quotient."""
    one, other = [each is None for each, _ in (*node.next_functions, (node, 0))[:2]]  # a factor that is a number stands nowhere
    return None if one == other or (one and kind_of(node) == "Div") else saved(node, "self" if one else "other")
