"""Labels of a loss: how many count, and how much."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from numscope.alerts.checks.check import Check, ScriptLine, Subject, current_line
from numscope.alerts.checks.influence import FAR, NO_IDS, named_arguments
from numscope.alerts.checks.model_copies import CopiesOf
from numscope.distributed.agree import spread, watch_name
from numscope.distributed.bulletin import Bulletin
from numscope.probe.nodes import behind_shapes, kind_of, node_of, saved
from numscope.summary.host_copy import HostCopy
from numscope.summary.unseen import unseen

NONE = "no label counts"
PADDING = "padding in the loss"
INPUTS = "labels are the inputs"
TWICE = "labels shifted twice"
SEEN = "next token is seen"
ENDS = "ends are no labels"
INVERTED = "mask is inverted"
SCALED = "loss scaled by ranks"
DIVIDED, RANKS = "divided by ranks", "ranks"  # of looks
LEAST_LOOKS = 2  # at which it is so: a single batch may be empty
LEAST_RATIO = 1.1  # of the largest number of labels to the smallest
MEAN, SUM = 1, 2  # as torch numbers reductions


class Labels(Check):
    """Counts the labels of a loss that its ``ignore_index``, or a mask before its sum, leaves: none; more than the mask that the model
    was given; those that are the model's input ids, place by place, or two places further on; those that are the next tokens, where an
    experiment has shown that results change with these; none for the token that ends a sequence; or numbers that differ between
    micro-batches, or between ranks whose gradients are averaged, whose means count the same.

    *Cost:* at a thorough step one pass over the labels of each loss, and over the mask, and on several ranks a note of 30 bytes at the
    job's store; what is on a device is read a look later.
    """

    name = "unequal micro-batches"
    also = (NONE, PADDING, INPUTS, TWICE, SEEN, ENDS, INVERTED, SCALED)

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._mask: Tensor | None = None  # that the model was given, until its loss
        self._mask_name = ""
        self._ids: Tensor | None = None  # the only whole numbers that it was given but for masks
        self._given: Tensor | None = None  # labels that it was given
        self._seen: dict[int, list[tuple[ScriptLine, HostCopy]]] = defaultdict(list)  # by step, of each backward
        self._looks = dict.fromkeys((self.name, *self.also, DIVIDED, RANKS), 0)
        self._copies = CopiesOf(subject.model, subject.wrapper, subject.probe.names)
        self._bulletin: Bulletin | None = None

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        given = {name: v for name, v in named_arguments(module, args, kwargs).items() if type(v) is Tensor}
        masks = {name: v for name, v in given.items() if "mask" in name and v.dim() == 2}
        self._mask_name, self._mask = next(((name, v) for name, v in masks.items() if not v.is_floating_point()), ("", None))
        whole = [v for name, v in given.items() if v.dtype in (torch.int32, torch.int64) and not any(word in name for word in NO_IDS)]
        self._ids = whole[0] if len(whole) == 1 and whole[0].dim() == 2 else None
        self._given = next((v for name, v in given.items() if "label" in name), None)

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        mask, ids, given = self._mask, self._ids, self._given
        self._mask = self._ids = self._given = None
        with unseen():
            found = _counted(node_of(roots[0])) if roots else None
            if found is not None:
                count, num, weight, labels = found
                has_mask = mask is not None and mask.numel() in (num, num + len(mask))  # labels may be those of the next tokens
                hidden = torch.minimum((mask == 0).sum(), (mask == 1).sum()) - len(mask) if mask is not None and has_mask else -num
                ahead = [_ahead(ids, labels, by, dim) for by, dim in ((0, 1), (1, 0), (1, 1), (2, 0), (2, 1))]
                ahead += [_leave_ends(ids, mask, given), self._is_inverted(ids, mask)]
                values = [torch.as_tensor(v, dtype=torch.float32, device=count.device) for v in (count, num, weight, hidden, *ahead)]
                self._seen[self.subject.step].append((current_line(), HostCopy(torch.stack(values))))

    def end(self, closing: bool) -> None:
        self._mask = self._ids = self._given = None
        for step in [step for step, seen in self._seen.items() if all(copy.is_here for _, copy in seen)]:
            by_line = defaultdict(list)
            for line, copy in self._seen.pop(step):
                by_line[line].append(copy.take().tolist())
            for line, losses in by_line.items():
                self._judge(line, losses)
            if by_line and spread() and not closing:
                self._tell_ranks(step, [loss for losses in by_line.values() for loss in losses])
        self.last()

    def _tell_ranks(self, step: int, losses: list[list[float]]) -> None:
        """How many labels have counted on this rank, and how much all of them."""
        ranks, is_assumed = self._copies.data_ranks()
        if len(ranks) > 1 and not is_assumed and not self._copies.is_joined:
            if self._bulletin is None or self._bulletin.ranks != ranks:
                self._bulletin = Bulletin(watch_name(self.subject.model, "labels "), ranks)
            count, part = sum(loss[0] for loss in losses), sum(loss[0] * loss[2] for loss in losses)
            self._bulletin.put(step, "1", json.dumps([count, part, len(losses)]).encode())

    def last(self) -> None:
        bulletin = self._bulletin
        for step, _ in () if bulletin is None else bulletin.look():
            told = [json.loads(one) for one in bulletin.details(step).values()] if bulletin is not None else []
            if len(told) < 2:
                continue
            counts, parts, nums = zip(*told, strict=True)
            self._judge_scale(step, sum(parts) / len(told), len(told), max(nums))
            if self._again(RANKS, _count_the_same(counts, parts)):
                text = f"{min(counts):.0f} to {max(counts):.0f} labels count on {len(told)} ranks, and their means count the same as "
                text += "gradients are averaged: labels on ranks with few of them count more."
                advice = "Divide each rank's sum by the number of labels of all ranks (all_reduce it), and multiply by the number of ranks."
                self.say(text, advice, asks=True, step=step)

    def _judge_scale(self, step: int, whole: float, num_ranks: int, num_losses: int) -> None:
        """Args: ``whole``: the sum of all labels' weights, over the number of ranks, by which DDP divides: 1 of a mean."""
        for factor, done, advice in ((num_ranks, "multiplied", "multiply"), (1 / num_ranks, "divided", "divide")):
            is_so = num_losses == 1 and self._copies.averages and math.isclose(whole, factor, rel_tol=1e-3)
            if self._again(SCALED if factor > 1 else DIVIDED, is_so):
                text = (
                    f"A mean over labels is {done} by the number of ranks ({num_ranks}), and DDP averages gradients over ranks: they are "
                )
                text += f"{factor:g} times those of one process with all the labels."
                self.say(
                    text, f"Don't {advice} a mean: DDP's gradients are those of the mean over all ranks.", rule=SCALED, asks=True, step=step
                )

    def _judge(self, line: ScriptLine, losses: list[list[float]]) -> None:
        backward, (_, num, *_) = line.at(": backward at "), losses[0]
        counts, parts = [loss[0] for loss in losses], [loss[0] * loss[2] for loss in losses]
        if self._again(NONE, not all(counts)):
            text = f"None of the {num:.0f} labels of a batch counts{backward}: nothing is learned from it."
            advice = "Look at what sets labels to ignore_index, or at the mask: prompts may fill the window."
            self.say(text, advice, rule=NONE, line=line, asks=True)
        if self._again(PADDING, all(count + hidden > num for count, num, _, hidden, *_ in losses)):
            text = f"{counts[0]:.0f} of {num:.0f} labels count in the loss{backward}, more than the mask that the model is given leaves."
            advice = "Set labels where the mask hides the input to -100, the ignore_index of cross_entropy."
            self.say(text, advice, rule=PADDING, line=line, asks=True)
        if self._again(INPUTS, all(loss[0] and loss[4] for loss in losses)):
            text = f"All labels of the loss{backward} are the model's own input ids, place by place: each token is to be told from itself."
            advice = "For the next token compare logits[:, :-1] with ids[:, 1:]; for a masked one mask it in the input."
            self.say(text, advice, rule=INPUTS, line=line, asks=True)
        follow = [all(loss[0] and loss[at] for loss in losses) for at in (5, 6)]  # the next tokens, along each dimension
        later = self.subject.depends.later if self.subject.depends else (None, None)
        by = max((size for is_so, size in zip(follow, later, strict=True) if is_so and size is not None), default=0.0)
        if self._again(SEEN, by > FAR):
            text = f"The labels of the loss{backward} are the next tokens, and the model sees them: with another last token its results at "
            text += f"earlier places change, by {by:.2g} of the largest (the call was made again in evaluation mode)."
            self.say(text, "Give attention a causal mask, added before its softmax.", rule=SEEN, value=by, limit=FAR, line=line)
        if self._again(TWICE, not any(follow) and all(loss[0] and (loss[7] or loss[8]) for loss in losses)):
            text = f"All labels of the loss{backward} are the input ids two places further on: each token is to be told its next but one."
            advice = "Shift labels once: transformers' causal models shift those that they are given, so give them labels=input_ids."
            self.say(text, advice, rule=TWICE, line=line, asks=True)
        if self._again(ENDS, all(loss[0] and loss[9] for loss in losses)):
            text = "One token, which also fills the padding, is never a label, though the mask has the model read it in most of a batch's "
            text += f"sequences{backward}: the model does not learn where they end."
            advice = "Set labels to -100 where the mask is 0, not where ids are the padding's; or give the padding a token of its own."
            self.say(text, advice, rule=ENDS, line=line, asks=True)
        if self._again(INVERTED, all(loss[0] and loss[10] for loss in losses)):
            text = "attention_mask is 1 at one and the same token alone, the padding, and 0 at all others: these are hidden."
            self.say(text, "Give 1 where a token is to be seen: attention_mask = ids != pad.", rule=INVERTED, line=line, asks=True)
        if self._again(self.name, _count_the_same(counts, parts)):
            text = f"Of {len(losses)} micro-batches {min(counts):.0f} to {max(counts):.0f} labels count, and their means count the same"
            advice = "Sum their losses, and divide each by the number of labels of the whole step."
            self.say(f"{text}{backward}: labels of short ones count more.", advice, line=line, asks=True)

    def _is_inverted(self, ids: Tensor | None, mask: Tensor | None) -> Tensor | bool:
        """Whether the argument ``attention_mask`` leaves one token alone, that it hides nowhere, and hides several."""
        if ids is None or mask is None or self._mask_name != "attention_mask" or ids.shape != mask.shape:
            return False
        left = mask != 0
        token, others = torch.where(left, ids, -1).max(), ids.masked_fill(left, -1)
        is_one = ((ids == token) == left).all() & left.any()
        return is_one & (others.max() != torch.where(left, others.max(), ids).min())

    def _again(self, rule: str, is_so: bool) -> bool:
        self._looks[rule] += is_so
        return is_so and self._looks[rule] >= LEAST_LOOKS


def _count_the_same(counts: Sequence[float], parts: Sequence[float]) -> bool:
    """Whether different numbers of labels have the same part in what is summed up."""
    equal = min(parts, default=0.0) > 0 and max(parts) < 1.001 * min(parts)
    return equal and max(counts) > LEAST_RATIO * min(counts)


def _ahead(ids: Tensor | None, labels: Tensor | None, by: int, dim: int) -> Tensor | bool:
    """Whether all labels that count are the ids so many places further on along a dimension; the last place may have none."""
    if ids is None or labels is None or labels.device != ids.device or ids.shape[dim] < by + 3:
        return False
    shapes = [ids.shape, ids.narrow(dim, 1, ids.shape[dim] - 1).shape]
    shape = next((shape for shape in shapes if labels.numel() == shape.numel()), None)
    if shape is None:
        return False
    told, size = labels.reshape(shape), min(shape[dim], ids.shape[dim] - by)
    told, true = told.narrow(dim, 0, size), ids.narrow(dim, by, size)
    return ((told == true) | (told < 0)).all()


def _leave_ends(ids: Tensor | None, mask: Tensor | None, labels: Tensor | None) -> Tensor | bool:
    """Whether of what a mask has a model read just one token has no labels, and is in most sequences; it is what the padding is made of."""
    if ids is None or mask is None or labels is None or not ids.shape == mask.shape == labels.shape:
        return False
    left = (labels < 0) & (mask != 0)
    token = torch.where(left, ids, -1).max()
    is_it = ids == token
    is_all = (left == (is_it & (mask != 0))).all() & (is_it | (mask != 0)).all()
    return is_all & (2 * left.any(1).sum() > len(ids))


def _counted(node: Any) -> tuple[Tensor, int, Tensor | float, Tensor | None] | None:
    """Of a mean or sum over labels, behind constant factors: how many count, of how many, the weight of one, and the labels themselves.
    None: of no such thing."""
    weight: Tensor | float = 1.0
    while (node := behind_shapes(node)) is not None and (kind_of(node) in ("Mul", "Div") or _is_single(node)):
        if _is_single(node):
            node = node.next_functions[0][0]
            continue
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


def _is_single(node: Any) -> bool:
    """Whether it sums up one number."""
    return kind_of(node) == "Sum" and math.prod(getattr(node, "_saved_self_sym_sizes", (2,))) == 1


def _constant(node: Any) -> Tensor | None:
    """The factor, or divisor, without gradient of a product or quotient."""
    one, other = [each is None for each, _ in (*node.next_functions, (node, 0))[:2]]  # a factor that is a number stands nowhere
    return None if one == other or (one and kind_of(node) == "Div") else saved(node, "self" if one else "other")
