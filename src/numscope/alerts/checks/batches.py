"""Batches that come again: the same one at each step, and epochs in the same order; samples that never come."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import data

from numscope.alerts.checks.check import OCCASIONS, Check, Subject
from numscope.probe.inputs import KEPT, Batch
from numscope.probe.living import Beside
from numscope.probe.loop_calls import LoopCall
from numscope.records.heap import instances_of
from numscope.records.words import count

SAME_STEPS = 16  # in a row, with one batch for all
REPEATED = 16  # runs of the same length, each of one batch, in a row
NEVER_DRAWN = "samples are never drawn"
MATCHES = 64  # batches in a row that came before in this order; of an epoch that is shorter, several epochs


class Batches(Check):
    """The same batch, each time in another tensor, at each of ``steps`` steps in a row, or each batch as often in a row as a loader has
    workers; and 64 batches in a row that come in the order in which they came before, or a DistributedSampler that begins an epoch as it
    began the one before. A WeightedRandomSampler with fewer weights than its data has samples. Of several ranks the first one asks: their
    loaders are alike.

    *Cost:* a checksum of 4,096 elements of each input a step, shared by the checks of data, and a look into a dict; where there is a
    WeightedRandomSampler, one walk over all objects. Epochs of more than 16,384 steps can't be compared.
    """

    name = "same batch again"
    also = ("epochs in the same order", NEVER_DRAWN)
    cheap = OCCASIONS

    def __init__(self, subject: Subject, steps: int = SAME_STEPS) -> None:
        super().__init__(subject)
        self._num_seen = 0
        self._steps = steps
        self._last: int | None = None
        self._entered = -1  # the last step with a call
        self._input: weakref.ref[Tensor] | None = None  # of the step's first call
        self._num_held = 0  # steps in a row with the same tensor, which the script holds: all of its data
        self._may_repeat = True
        self._runs: list[int] = [0]  # how often each of the last batches came in a row
        self._at: dict[int, int] = {}  # the count at which a sum was last seen
        self._count = 0
        self._distance = 0
        self._matches = 0
        self._sampler: weakref.ref[Any] | None = None  # the last DistributedSampler that began an epoch
        self._drawn_at = 0  # the step then
        self._again: int | None = None  # the epoch with which it began as before
        self._epochs: Beside[Any, int] = Beside()  # of each, at its last begin
        self._trains: Beside[Any, bool] = Beside()  # steps followed
        if subject.rank:
            self.spoken.update((self.name, *self.also))

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.subject.inputs.see(self.subject.num, self.subject.step, args, kwargs)
        if self._entered != self.subject.num and torch.is_grad_enabled():
            first = next((each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)), None)
            is_held = first is not None and self._input is not None and self._input() is first
            self._entered, self._num_held = self.subject.num, self._num_held + 1 if is_held else 0
            self._input = None if first is None else weakref.ref(first)

    def called(self, call: LoopCall) -> None:
        if call.kind != "sample":
            return
        if isinstance(call.target, data.DistributedSampler):
            self._draws(call.target)
        elif NEVER_DRAWN not in self.spoken:
            self._weighs(call)

    def _draws(self, sampler: data.DistributedSampler[Any]) -> None:
        """A DistributedSampler begins an epoch."""
        if self._sampler is not None and (last := self._sampler()) is not None and self.subject.num > self._drawn_at:
            self._trains[last] = True
        if self._trains.get(sampler) and sampler.shuffle and self._epochs.get(sampler) == sampler.epoch:
            self._again = sampler.epoch  # said once a step has followed: it may be a pass of evaluation
        else:
            self._again = None
        self._sampler, self._drawn_at, self._epochs[sampler] = weakref.ref(sampler), self.subject.num, sampler.epoch

    def _weighs(self, call: LoopCall) -> None:
        weights = len(call.target.weights)
        sets: list[Any] = [each.dataset for each in instances_of(data.DataLoader) if each.sampler is call.target]
        samples = next((len(each) for each in sets if hasattr(each, "__len__")), 0)
        if weights < samples:
            text = (
                f"WeightedRandomSampler has {count(weights, 'weight')} for a dataset of {samples} samples: those from number {weights} on"
            )
            advice = "Give it a weight for each sample, not for each class: class_weights[labels]."
            self.say(f"{text} are never drawn.", advice, rule=NEVER_DRAWN, value=float(weights), limit=float(samples))
        self.spoken.add(NEVER_DRAWN)  # one walk over all objects is enough

    def end(self, closing: bool) -> None:
        if self._again is not None and self.subject.num > self._drawn_at and self._sampler is not None:
            text = f"A DistributedSampler has begun a further epoch with epoch={self._again}: its samples come in the same order again."
            self.say(text, "Call sampler.set_epoch(epoch) at each epoch's begin.", rule=self.also[0], asks=True)
        inputs = self.subject.inputs
        inputs.settle()
        for batch in inputs.since(self._num_seen):
            if self.name not in self.spoken:
                self._repeats(batch)
            if self.also[0] not in self.spoken:
                self._has_order(batch)
        self._num_seen = inputs.num_batches

    def _repeats(self, batch: Batch) -> None:
        if batch.sum == self._last:
            self._runs[-1] += 1
        else:
            self._runs = [*self._runs[-REPEATED:], 1]
        self._last = batch.sum
        if self._runs[-1] >= self._steps and self._num_held < self._steps - 1:
            text = f"The last {self._runs[-1]} steps got the same input."
            self._tell(
                text, "Take the next batch from the loader in each step: next(iter(loader)) begins anew each time.", batch, self._runs[-1]
            )
        whole = self._runs[-REPEATED - 1 : -1]  # those that are over
        if self._may_repeat and len(whole) == REPEATED and len({*whole}) == 1 and 1 < whole[0] < self._steps:
            self._may_repeat = False  # the walk is made once
            if whole[0] in _numbers_of_workers():
                text = f"Each batch comes {whole[0]} times in a row, and a DataLoader has {whole[0]} workers."
                advice = "Split an IterableDataset by get_worker_info(); seed a generator that workers copy in worker_init_fn."
                self._tell(text, advice, batch, whole[0])

    def _tell(self, text: str, advice: str, batch: Batch, value: int) -> None:
        about = {"last step": batch.step}
        self.say(text, advice, tensor="input", value=float(value), limit=float(self._steps), evidence=about, asks=True)

    def _has_order(self, batch: Batch) -> None:
        last = self._at.pop(batch.sum, None)
        self._at[batch.sum] = self._count  # last in the dict's order
        if len(self._at) > KEPT:
            del self._at[next(iter(self._at))]
        distance = 0 if last is None else self._count - last
        self._count += 1
        self._matches = self._matches + 1 if distance == self._distance else 1
        self._distance = distance
        if distance >= 2 and self._matches >= MATCHES:
            text = f"The last {self._matches} batches came in the order in which they came {distance} steps before."
            advice = "Shuffle: DataLoader(shuffle=True), or sampler.set_epoch(epoch) at each epoch's begin."
            about = {"steps of an epoch": distance, "last step": batch.step}
            matches, limit = float(self._matches), float(MATCHES)
            self.say(text, advice, rule=self.also[0], tensor="input", value=matches, limit=limit, evidence=about, asks=True)

    def close(self) -> None:
        self._at.clear()


def _numbers_of_workers() -> set[int]:
    """Of the process's loaders; several steps on a batch are a method of their own. *Cost:* a walk over all objects."""
    iterators = getattr(data.dataloader, "_BaseDataLoaderIter", data.DataLoader)  # one may outlive its loader
    found = [*instances_of(data.DataLoader), *instances_of(iterators)]
    return {int(getattr(each, "num_workers", getattr(each, "_num_workers", 0))) for each in found}
