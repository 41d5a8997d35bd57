"""Replicas that differ: ranks that should hold the same weights, bit for bit, and do not."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast
from zlib import crc32

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from numscope.alerts.checks.check import EVERY, OCCASIONS, STRETCH, Check, Subject, is_early
from numscope.alerts.checks.model_copies import CopiesOf, Shared
from numscope.distributed.agree import spread, watch_name
from numscope.distributed.bulletin import Bulletin
from numscope.probe.optimizers import gradient_of, ids_known, ids_of
from numscope.records.words import few
from numscope.summary.checksum import Checksums
from numscope.summary.unseen import unseen
from numscope.summary.unwrap import Unsummarizable, plain

MOST_NAMED = 8  # ranks and buffers that an alert lists

Sums = tuple[tuple[int, int], ...]  # of each copy: its own, and its gradient's; 0 without one


@dataclass(slots=True)
class _Group:
    """The state about ranks that share tensors."""

    bulletin: Bulletin
    assumed: bool  # as of Shared
    names: list[str]
    layers: list[tuple[str, str]]
    is_buffer: list[bool]
    equal_at: int | None = None  # the last step at which all agreed
    first: frozenset[int] | None = None  # the copies that differed when they were first compared
    said: set[bool] = field(default_factory=set)  # an alert was given of these (buffers: True)
    apart: tuple[int, Callable[[], None]] | None = None  # since which step, and a question that waits: they may average weights soon
    settled: bool = False  # they do, or it was asked


@dataclass(slots=True)
class _Seen:
    """A step's sums, perhaps still on their way from a device; gradients' with the places of their weights."""

    step: int
    group: _Group
    weights: Checksums
    gradients: list[tuple[list[int], Checksums]] = field(default_factory=list)  # an optimizer each, the first one's count

    @property
    def is_here(self) -> bool:
        return self.weights.are_here and all(sums.are_here for _, sums in self.gradients)


class ReplicasDiffer(Check):
    """Compares checksums of weights, of buffers that nobody broadcasts, and of their gradients, as they are before the optimizer's step.

    Where ranks may train apart on purpose, with weights that they average now and then, it asks only if these do not meet within a stretch.

    *Cost:* at thorough steps and at four early ones, with several ranks, one pass over weights and gradients, and a note of 16 bytes a
    parameter at the job's store; where it may only ask, at each step of a stretch. The lowest of the ranks looks at the other ranks' notes
    at later steps; nobody waits. Sums on a device are read when the step is over.
    """

    name = "replicas differ"
    cheap = OCCASIONS
    fused = True

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._copies = CopiesOf(subject.model, subject.wrapper, subject.probe.names)
        self._place = ""
        self._groups: dict[tuple[int, ...], _Group] = {}
        self._shared: list[Shared] = []  # of the step at work
        self._seen: list[_Seen] = []
        self._synchronizes = True  # DDP, in the call that was the last
        self._trains_apart = False  # steps were taken without that

    def enter(self, *given: Any) -> None:
        if self._groups and torch.is_grad_enabled():
            self._synchronizes = self._copies.synchronizes

    def before_step(self, optimizer: Optimizer) -> None:
        self._trains_apart = self._trains_apart or not self._synchronizes
        follows = self.subject.num % EVERY < STRETCH and any(map(self._may_be_apart, self._groups.values()))
        if (self.subject.thorough or follows or is_early(self.subject.num)) and spread() and not self._copies.is_joined:
            with unseen():
                self._see(optimizer)

    def _see(self, optimizer: Optimizer) -> None:
        if not self._shared:
            self._shared = self._copies.find()
            for shared in self._shared:
                shared.copies = [copy for copy in shared.copies if _readable(copy.tensor)]
                weights = Checksums([copy.tensor for copy in shared.copies])
                self._seen.append(_Seen(self.subject.step, self._group_of(shared), weights))
        mine = ids_of(optimizer)
        seen_now = self._seen[len(self._seen) - len(self._shared) :]
        for seen, shared in zip(seen_now, self._shared, strict=True):
            params = [(i, copy.tensor) for i, copy in enumerate(shared.copies) if not copy.is_buffer]
            given = [(i, gradient_of(cast(Parameter, p))) for i, p in params if not mine.isdisjoint(ids_known(cast(Parameter, p)))]
            found = [(i, gradient) for i, gradient in given if gradient is not None and _readable(gradient)]
            seen.gradients.append(([i for i, _ in found], Checksums([gradient for _, gradient in found])))

    def _group_of(self, shared: Shared) -> _Group:
        if not self._place:  # the name counts models of this kind that have been trained, which all ranks do in the same order
            self._place = watch_name(self.subject.model, "replicas ")
        group = self._groups.get(shared.ranks)
        names = [copy.name for copy in shared.copies]
        if group is None or group.names != names:
            place = f"{self._place}/{crc32(' '.join(names).encode())}"
            layers, flags = [(c.layer, c.slot) for c in shared.copies], [c.is_buffer for c in shared.copies]
            group = self._groups[shared.ranks] = _Group(Bulletin(place, shared.ranks), shared.assumed, names, layers, flags)
        return group

    def end(self, closing: bool) -> None:
        self._shared = []
        while self._seen and self._seen[0].is_here:
            seen = self._seen.pop(0)
            own = seen.weights.read()
            gradients = {i: value for places, sums in reversed(seen.gradients) for i, value in zip(places, sums.read(), strict=True)}
            packed = array("Q", [number for i, weight in enumerate(own) for number in (weight, gradients.get(i, 0))])
            digest = hashlib.sha1(array("Q", own).tobytes(), usedforsecurity=False).hexdigest()[:16]
            seen.group.bulletin.put(seen.step, digest, packed.tobytes())
        self._look()

    def last(self) -> None:
        self._look()
        for group in self._groups.values():
            if group.apart is not None:
                group.apart[1]()
                group.apart = None

    def close(self) -> None:
        self._seen.clear()
        self._shared = []

    def _may_be_apart(self, group: _Group) -> bool:
        """Whether nothing says that these ranks' gradients are averaged at each step."""
        return group.assumed or self._trains_apart or self._copies.averages_weights

    # ---- on the rank that reads

    def _look(self) -> None:
        for group in self._groups.values():
            for step, num_kinds in group.bulletin.look():
                self._compare(group, step, num_kinds)

    def _compare(self, group: _Group, step: int, num_kinds: int) -> None:
        if num_kinds == 1:
            group.equal_at, group.first = step, frozenset() if group.first is None else group.first
            group.said.clear()
            _meet(group)
            return
        told = _told(group, step)
        if not told:
            return
        differ = [i for i in range(len(group.names)) if len({sums[i][0] for sums in told.values()}) > 1]
        at_first = group.first is None
        if group.first is None:
            group.first = frozenset(differ)
        weights = [i for i in differ if not group.is_buffer[i]]
        if not weights:
            _meet(group)
        if group.assumed:
            agreed = [i for i in weights if _agree(told, i)]
            others = any(not group.is_buffer[i] for i in group.first)
            several = [] if 2 * len(agreed) <= len(weights) else agreed  # gradients of models of their own differ
            # Where each rank has its part of some weights, others that are trained alike show that they train one model.
            same = {*range(len(group.names))} - {*differ}
            parted = [i for i in weights if i not in group.first] if any(_agree(told, i) for i in same) else []
            weights = several if at_first else parted if others else weights
        buffers = differ if all(group.is_buffer[i] for i in differ) else []
        if weights and self._may_be_apart(group) and not all(_agree(told, i) for i in weights):
            if not group.settled:
                since, ask = group.apart = group.apart or (step, partial(self._tell, group, step, told, weights, at_first, False))
                if step - since >= STRETCH - 1:
                    ask()
                    group.apart, group.settled = None, True
            weights = []
        for chosen, is_buffer in ((weights, False), (buffers, True)):
            if chosen and is_buffer not in group.said:
                group.said.add(is_buffer)
                self._tell(group, step, told, chosen, at_first, is_buffer)

    def _tell(self, group: _Group, step: int, told: dict[int, Sums], differ: list[int], at_first: bool, is_buffer: bool) -> None:
        names = [group.names[i] for i in differ]
        ranks = sorted(told)
        odd = sorted({rank for i in differ for rank in _odd(told, i)})
        split = [i for i in differ if not _odd(told, i)]
        gradients = [_agree(told, i) for i in differ]
        agree = None if is_buffer or all(a is None for a in gradients) else all(a is not False for a in gradients)
        kind = "buffers" if is_buffer else "parameters"
        num = sum(flag is is_buffer for flag in group.is_buffer)
        what = f"{names[0]} differs" if len(names) == 1 else f"{len(names)} of {num} {kind} differ"
        if len(ranks) == 2:
            who = f"between ranks {ranks[0]} and {ranks[1]}"
        elif split or not odd:
            who = f"over ranks {few([*map(str, ranks)], MOST_NAMED)}, of which no majority agrees"
        else:
            who = f"on rank{'s' if len(odd) > 1 else ''} {few([*map(str, odd)], MOST_NAMED)} from the other {len(ranks) - len(odd)} ranks"
        said = [f"{what} {who}"]
        if len(names) > 1:
            said.append(f"the first is {names[0]}")
        if at_first or group.equal_at is not None:
            said.append("they have differed from the start" if at_first else f"all were equal at step {group.equal_at}")
        before = {} if at_first or group.equal_at is None or not agree else _told(group, group.equal_at)
        parted = any(_agree(before, i) is False for i in differ) if before else False
        if agree is not None:
            said.append("gradients agree" if agree else "gradients differ too")
        if parted:
            said[-1] += f" now; at step {group.equal_at}, whose update parted the weights, they differed"
        if len(ranks) == 2:
            said.append("of two ranks nobody can say which is right")
        layer, slot = group.layers[differ[0]]
        asks = is_buffer or self._may_be_apart(group)
        self.say(
            "; ".join(said) + ".",
            _ONE_STEPS if parted else _advice(at_first, agree, is_buffer),
            again=True,
            layer=layer,
            tensor=slot,
            parameters=() if is_buffer else names,
            value=float(len(differ)),
            limit=0.0,
            evidence={
                "first step seen": step,
                "last step equal": group.equal_at,
                "ranks": ranks,
                "odd ranks": odd if not split and len(ranks) > 2 else [],
                **({"buffers": names[:MOST_NAMED]} if is_buffer else {}),
                "gradients agree": agree,
            },
            asks=asks and not (at_first and agree),
            step=step,
        )


_ONE_STEPS = (
    "Look for what one rank alone does to its averaged gradients (clipping, a hook, a branch by rank); if there is nothing, suspect what "
    "averaged them in that step: the network, or that rank's hardware."
)


def _told(group: _Group, step: int) -> dict[int, Sums]:
    """Each rank's sums; none where a rank was so fast that it has written over its note."""
    told = {rank: _unpacked(data) for rank, data in group.bulletin.details(step).items()}
    told = {rank: sums for rank, sums in told.items() if len(sums) == len(group.names)}
    return told if len(told) == len(group.bulletin.ranks) else {}


def _meet(group: _Group) -> None:
    """The weights are the same on all ranks: if they were not before, the ranks average them."""
    group.settled, group.apart = group.settled or group.apart is not None, None


def _advice(at_first: bool, agree: bool | None, is_buffer: bool) -> str:
    if is_buffer:
        return "Each rank computes its own: use SyncBatchNorm, broadcast them, or know that a checkpoint has those of the rank that saves."
    if agree is False:
        return "Average gradients: call the DDP wrapper, not ddp.module, or all_reduce them; clip them after that, on all ranks alike."
    if at_first:
        return "Broadcast the weights of one rank before the first step, or give all ranks the same seed when the model is made."
    return "The update differs: compare optimizer states, learning rates and clipping over ranks; if they are equal, suspect the hardware."


def _readable(tensor: Tensor) -> bool:
    try:
        return plain(tensor).numel() > 0
    except Unsummarizable:
        return False


def _unpacked(data: bytes) -> Sums:
    numbers = array("Q")
    numbers.frombytes(data)
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def _agree(told: dict[int, Sums], i: int) -> bool | None:
    """Whether a copy's gradient is the same on all ranks; None if no rank has one."""
    found = {sums[i][1] for sums in told.values()}
    return None if found == {0} else len(found) == 1


def _odd(told: dict[int, Sums], i: int) -> list[int]:
    """The ranks that have other bits than a majority of them; none without a majority."""
    by_rank = {rank: sums[i][0] for rank, sums in told.items()}
    most, num = Counter(by_rank.values()).most_common(1)[0]
    return [rank for rank, own in by_rank.items() if own != most] if 2 * num > len(by_rank) else []
