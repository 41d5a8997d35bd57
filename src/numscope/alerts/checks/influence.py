"""What a model's results depend on, by experiment: its call is made again with other inputs, in a process of its own."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from numscope.alerts.checks.check import UNKNOWN, Check, Subject, current_line
from numscope.distributed.agree import has_group
from numscope.records.faults import ours, suppress
from numscope.replay.call import eager
from numscope.replay.fork import in_child
from numscope.summary.unseen import unseen
from numscope.summary.unwrap import is_wrapped

MASK = "mask without effect"
PADDING = "padding is seen"
LOOK = 2  # the step, counted from 0, at which the experiment is made: a model's first ones may still make layers, or look at their data
MOST_SECONDS = 0.4  # that a call may take on one thread: the experiment makes some ten
FAR = 1e-3  # of the results' largest magnitude: a smaller difference may be rounding, which depends on where in a batch a sample stands

NO_IDS = ("mask", "label", "position", "type", "target")  # whole numbers that are no tokens

Result = list[Tensor]
Change = Callable[[Tensor, Tensor], Tensor]  # of an input and its copy


class Depends(NamedTuple):
    """By how much results differ, over their largest magnitude; None: the experiment could not be made."""

    others: float | None = None  # a sample's, if another sample is another one; there is no other dimension along which it does not
    place: float | None = None  # of two equal samples, in the same way
    later: tuple[float | None, float | None] = (None, None)  # at earlier places, by the last one along dimension 0, and 1
    masked: tuple[float | None, str] = (None, "")  # by what a mask of the call's hides, whichever of its two values does; its name
    padding: float | None = None  # by what stands in an embedding's padding

    @classmethod
    def measured(cls, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Depends:
        """Of a call, which is made again some ten times in evaluation mode; what it writes is not put back."""
        call = _Calls(module, args, kwargs)
        first = call()
        if not first or not all(t.isfinite().all() for t in first) or not _same(first, call()):
            return cls()
        others, place = call.mixes(0, first), call.place(0, first)
        if max(others or 0, place or 0) > FAR:
            columns = call.mixes(1, first), call.place(1, first)
            if columns[0] is not None and max(columns[0], columns[1] or 0) <= FAR:  # samples lie along these
                others = place = None
        later = (call.later(0, first), call.later(1, first))
        return cls(others, place, later, call.masked(first), call.padding(first))


class Influence(Check):
    """At the third step the model's call is made again in a forked process: with another sample in a sample's neighbourhood, other tokens
    at the end, at masked places and in the padding. What must not change the other results, and does, is asked about.

    *Cost:* some ten calls in a process of their own, once, and the fork; nothing where a call takes ``MOST_SECONDS``, on a device, of
    several ranks, or where another thread is at work.
    """

    name = "samples mix"
    also = (MASK, PADDING)

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._begun = 0.0
        self._seconds = MOST_SECONDS  # the longest call of a step before
        self._sizes: set[int] = set()  # of the calls' first dimension
        self._seen: set[float] = set()  # sums of what they got: if it is the same each time, it may be one graph

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        subject = self.subject
        inputs = _tensors((args, kwargs))
        on_host = all(t.device.type == "cpu" for t in inputs)
        if module is not subject.model or not torch.is_grad_enabled() or not module.training or has_group() or not on_host:
            return
        with unseen(), torch.no_grad():  # a script's own mode counts the script's operations
            self._sizes |= {len(t) for t in inputs[:1]}
            self._seen |= {t[:1].sum().item() for t in inputs[:1]}
        if subject.num == LOOK and subject.depends is None:
            subject.depends = Depends()
            is_short = self._seconds * torch.get_num_threads() < MOST_SECONDS  # one thread does it there
            if is_short and all(type(p.data) is Tensor for p in module.parameters()):
                found = in_child(partial(Depends.measured, module, args, kwargs), lambda why: Depends(), goes_on=True)
                subject.depends = found or subject.depends
                self._judge(subject.depends)
        self._begun = time.perf_counter()

    def leave(self, module: nn.Module, output: Any) -> None:
        if self._begun:
            self._seconds = time.perf_counter() - self._begun
            self._begun = 0.0

    def end(self, closing: bool) -> None:
        if self.subject.num >= LOOK:
            self.spoken.update((self.name, *self.also))

    def _judge(self, found: Depends) -> None:
        line = current_line() if max(found.others or 0, found.place or 0, found.masked[0] or 0, found.padding or 0) > FAR else UNKNOWN
        is_batch = len(self._sizes) == 1 and len(self._seen) > 1 and "softmax over the batch" not in self.subject.said
        tried = f"The call was made again{line.at()}, in evaluation mode"
        if found.others is not None and found.others > FAR and is_batch:
            text = f"{tried}, with another sample in the batch: results of the others change, by {found.others:.2g} of the largest."
            advice = (
                "Look at the order of dimensions: batch_first of attention and recurrent layers, view or reshape where permute is meant."
            )
            self.say(text, advice, line=line, tensor="output", value=found.others, limit=FAR, asks=True)
        elif found.place is not None and found.place > FAR and is_batch:
            text = f"{tried}, with the same sample twice in the batch: its two results differ, by {found.place:.2g} of the largest."
            advice = "Look at what is added along the batch, such as positions made for (tokens, batch)."
            self.say(text, advice, line=line, tensor="output", value=found.place, limit=FAR, asks=True)
        size, name = found.masked
        if size is not None and size > FAR:
            text = f"{tried}, with other inputs where {name} is 0, and where it is not: both change the results elsewhere, by {size:.2g}."
            advice = "Look at how the mask reaches the attention: its shape, its sign, and that it is added before the softmax."
            self.say(text, advice, rule=MASK, line=line, tensor="output", value=size, limit=FAR, asks=True)
        elif found.padding is not None and found.padding > FAR:
            text = f"{tried}, with other numbers in the padding (padding_idx): other results change, by {found.padding:.2g} of the largest."
            advice = (
                "Give attention a mask that hides the padding (key_padding_mask is True where it is to be ignored), pack sequences for "
            )
            advice += "recurrent layers, and take the last token that is none."
            self.say(text, advice, rule=PADDING, line=line, tensor="output", value=found.padding, limit=FAR, asks=True)


class _Calls:
    """A call, with other inputs. Results whose first dimension is the inputs' first two in one get these back."""

    def __init__(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._module, self._args, self._kwargs = module.eval(), args, kwargs
        self._inputs = _tensors((args, kwargs))
        named = {name: v for name, v in named_arguments(module, args, kwargs).items() if type(v) is Tensor}
        whole = {name: v for name, v in named.items() if v.dim() == 2 and v.dtype in (torch.int32, torch.int64)}
        ids = [v for name, v in whole.items() if not any(word in name for word in NO_IDS)]
        self._ids = ids[0] if len(ids) == 1 else None
        self._shape = torch.Size((0,)) if self._ids is None else self._ids.shape
        of_ids = {} if self._ids is None else {n: v.reshape(-1) for n, v in named.items() if "mask" in n and v.numel() == self._ids.numel()}
        self._masks = {n: v.view(ids[0].shape) for n, v in of_ids.items() if bool(((v == 0) | (v == 1)).all())}

    def __call__(self, change: Change = lambda t, copy: copy, seed: int = 0) -> Result:
        """Its results of one or more dimensions; none if it raises."""
        try:
            torch.manual_seed(seed)
            args, kwargs = tree_map_only(Tensor, lambda t: change(t, t.detach().clone()), (self._args, dict(self._kwargs)))
            with torch.enable_grad(), eager():  # torch's attention has another way without gradients
                out = self._module(*args, **kwargs)
        except ours():
            return []
        if not isinstance(out, Tensor | tuple | list | dict) and hasattr(out, "__dict__"):
            out = vars(out)
        leaves = tree_leaves(dict(out) if isinstance(out, dict) else out)
        return [self._unfolded(leaf.detach()) for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.dim()]

    def _unfolded(self, result: Tensor) -> Tensor:
        wide = next((t for t in self._inputs if t.dim() >= 2), None)
        if wide is None or len(result) != wide.shape[0] * wide.shape[1]:
            return result
        return result.reshape(*wide.shape[:2], *result.shape[1:])

    def sizes(self) -> tuple[int, int]:
        """Of the first two dimensions that its inputs have in common; 0: of no use."""
        wide = [t for t in self._inputs if t.dim() >= 2]
        if not wide:
            return 0, 0
        rows, columns = wide[0].shape[:2]
        odd = [t for t in self._inputs if len(t) != rows and (t.dim() == wide[0].dim() or not t.is_floating_point())]
        is_graph = odd or any(list(t.shape).count(rows) > 1 for t in wide)  # by edges, or by pairs of nodes
        return (0, 0) if is_graph or rows == 1 else (rows, columns if columns > 1 else 0)

    def mixes(self, dim: int, first: Result) -> float | None:
        """By how much, at least of any result, other samples' results change by one sample along a dimension of the inputs."""
        size = self.sizes()[dim]
        if not size:
            return None
        found = []
        for a, b in zip(first, self(partial(_twice, dim=dim, size=size)), strict=False):
            at = next((d for d in {dim, 0} if a.dim() > d and a.shape[d] == size), None)  # what was pooled has lost the other one
            if at is not None and a.shape == b.shape and a.shape[:2] != (size, size):  # of all pairs
                found.append(_distance(a.narrow(at, 1, size - 1), b.narrow(at, 1, size - 1), a))
        return min(found, default=None)

    def place(self, dim: int, first: Result) -> float | None:
        """By how much the results of two equal samples differ; None where the call draws random numbers."""
        size = self.sizes()[dim]
        if not size or not _same(first, self(seed=1)):
            return None
        found = []
        for b in self(partial(_twice, dim=dim, size=size)):
            at = next((d for d in {dim, 0} if b.dim() > d and b.shape[d] == size), None)
            if at is not None and b.shape[:2] != (size, size):
                found.append(_distance(b.select(at, 0), b.select(at, size - 1), b))
        return min(found, default=None)

    def later(self, dim: int, first: Result) -> float | None:
        """By how much results at all but the last place along a dimension change with the last whole number there."""
        ids = self._ids
        if ids is None or ids.shape[dim] < 3:
            return None
        size = ids.shape[dim]

        def change(t: Tensor, copy: Tensor) -> Tensor:
            if t is ids:
                copy.select(dim, size - 1).copy_(copy.select(dim, 0).roll(1))
            return copy

        found = [
            _distance(a.narrow(dim, 0, size - 1), b.narrow(dim, 0, size - 1), a)
            for a, b in zip(first, self(change), strict=False)
            if a.shape == b.shape and a.shape[:2] == ids.shape
        ]
        return max(found, default=None)

    def masked(self, first: Result) -> tuple[float | None, str]:
        """By how much results change by what stands where a mask is 0, or where it is 1, whichever changes less; and the mask's name."""
        for name, mask in self._masks.items():
            hides = mask == 0
            if hides.any() and not hides.all():
                both = [self._changed_by(partial(_there, where), first) for where in (hides, ~hides)]
                return (None if None in both else min(size for size in both if size is not None)), name
        return None, ""

    def padding(self, first: Result) -> float | None:
        """By how much results change by what an embedding makes of its padding; where it can be left out, that must change them too."""
        ids = self._ids
        values = {m.padding_idx for m in self._module.modules() if isinstance(m, nn.Embedding) and m.padding_idx is not None}
        if ids is None or len(values) != 1:
            return None
        (padding,) = values
        size = self._changed_by(lambda m, x: x.eq(padding) if m.padding_idx == padding and torch.equal(x, ids) else None, first)
        if size is None or size <= FAR:
            return size
        cuts = (self._cut(row, tokens, padding) for row, tokens in enumerate(ids.tolist()))
        if (cut := next((each for each in cuts if each is not None), None)) is not None:
            return cut
        return size if any(isinstance(m, nn.MultiheadAttention) for m in self._module.modules()) else None

    def _cut(self, row: int, tokens: list[int], padding: int) -> float | None:
        """By how much results of a sample alone change as the padding at its end is left out; None where that can't be done."""
        long = tokens.index(padding) if padding in tokens else 0
        if long < 2 or tokens.count(padding) < len(tokens) - long:
            return None
        shape, rows = self._shape, slice(row, row + 1)

        def alone(t: Tensor, copy: Tensor) -> Tensor:
            return copy[rows] if len(t) == shape[0] else copy

        def short(t: Tensor, copy: Tensor) -> Tensor:
            return copy[rows, :long] if t.shape == shape else alone(t, copy)

        pairs = [(a[:, :long] if a.shape[1:2] == shape[1:] else a, b) for a, b in zip(self(alone), self(short), strict=False)]
        return max((_distance(a, b, a) for a, b in pairs if a.shape == b.shape), default=None)

    def _changed_by(self, where: Callable[[Any, Tensor], Tensor | None], first: Result) -> float | None:
        """By how much results change elsewhere by another output of the first embedding of the ids at some places."""
        seen: list[Tensor] = []

        def spoil(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
            fits = not seen and args and type(args[0]) is Tensor and self._ids is not None and args[0].shape == self._ids.shape
            at = where(module, args[0]) if fits else None
            if at is None or not at.any() or at.all():
                return None
            seen.append(at)
            other = output.detach().flatten(0, -2).roll(1, 0).view_as(output) + output.detach().std() * torch.linspace(
                -1, 1, output.shape[-1]
            )
            return torch.where(at[..., None], other, output)

        handles = [m.register_forward_hook(spoil) for m in self._module.modules() if isinstance(m, nn.Embedding)]
        now = self()
        for handle in handles:
            handle.remove()
        found = []
        for a, b in zip(first, now, strict=False):
            if a.shape == b.shape and seen and a.shape[:2] == seen[0].shape:
                found.append(_distance(a[~seen[0]], b[~seen[0]], a))
            elif a.shape == b.shape and seen and len(a) == len(seen[0]):
                found.append(_distance(a, b, a))
        return max(found, default=None)


def _there(where: Tensor, module: Any, ids: Tensor) -> Tensor:
    return where


def named_arguments(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """A call's arguments by name."""
    with suppress(TypeError, ValueError):
        return {**inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments, **kwargs}
    return dict(kwargs)


def _tensors(tree: Any) -> list[Tensor]:
    """Plain ones, of one or more dimensions."""
    leaves = [t for t in tree_leaves(tree) if type(t) is Tensor and t.layout is torch.strided and not (t.is_nested or t.is_quantized)]
    leaves = [t for t in leaves if not is_wrapped(t)]
    return [t for t in leaves if t.dim()]


def _twice(t: Tensor, copy: Tensor, dim: int, size: int) -> Tensor:
    """With its last slice once more as its first one; along the next dimension, as recurrent states have it, if the size is there."""
    at = next((d for d in (dim, 1 - dim) if t.dim() > d and t.shape[d] == size), None)
    if at is not None and t.numel():
        copy.select(at, 0).copy_(copy.select(at, size - 1))
    return copy


def _distance(a: Tensor, b: Tensor, whole: Tensor) -> float:
    """The largest difference, over the largest magnitude of the whole; inf where one is not finite."""
    if not a.numel():
        return 0.0
    size = ((a - b).abs().max() / whole.abs().max().clamp(min=1e-30)).item()
    return size if math.isfinite(size) else math.inf


def _same(first: Result, now: Result) -> bool:
    return len(first) == len(now) and all(torch.equal(a, b) for a, b in zip(first, now, strict=True))
