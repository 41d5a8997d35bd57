"""Compares a resumed run with the state that it goes on from: what was lost, reset, copied from another rank, or is seen twice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from numscope.parity.training_state import Bits, Moment, TrainingState
from numscope.records.words import count, few

_LEAST = 0.5  # share of the trained weights that have to be a state's for a run to have begun from it


class Loss(NamedTuple):
    """One thing that a resumed run has lost.

    Args:
        text: a clause.
        advice: a sentence; "" where another one's is enough.
        asks: whether it may be intended.
        parameters: those that it is about.
    """

    text: str
    advice: str
    asks: bool = False
    parameters: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """The state that a run goes on from.

    Args:
        state: this rank's, with what other ranks have of spread tensors.
        first_rank: rank 0's state of the same step.
        differs: the generators of which this rank and rank 0 had other states when that run began.
    """

    state: TrainingState
    first_rank: TrainingState
    differs: frozenset[str] = frozenset()


def find_origin(now: TrainingState, states: Sequence[TrainingState]) -> Origin | None:
    """The state whose weights a run begins with; None where it begins with none of these.

    Args:
        now: as the first call begins.
        states: of earlier processes, in the order of time.
    """
    best: tuple[float, list[TrainingState]] = 0.0, []
    for group in reversed(_by_save(now, states)):
        weights = group[0].with_parts_of(group[1:]).weights
        equal = [now.weights[name].equals(weights[name]) if name in weights else False for name in now.trained]
        known = [one for one in equal if one is not None]
        share = sum(known) / len(known) if known else 0.0
        if share >= _LEAST and share > best[0]:
            best = share, group
    if not best[1]:
        return None
    group = best[1]
    own = next((one for one in group if one.rank == now.rank and one.world == now.world), group[0])
    first = next((one for one in group if one.rank == 0), group[0])
    return Origin(own.with_parts_of(group), first, _differing(now, states))


def _by_save(now: TrainingState, states: Iterable[TrainingState]) -> list[list[TrainingState]]:
    """The states of each save, of all ranks."""
    groups: list[list[TrainingState]] = []
    latest: dict[tuple[int, int], list[TrainingState]] = {}
    for one in states:
        if one.model != now.model or not one.weights or one.process == now.process:
            continue
        group = latest.get((one.step, one.world))
        if group is None or any(one.rank == other.rank for other in group):
            groups.append(group := [])
            latest[one.step, one.world] = group
        group.append(one)
    return groups


def _differing(now: TrainingState, states: Sequence[TrainingState]) -> frozenset[str]:
    """Generators of which this rank and rank 0 had other states at the first call of the run before."""
    latest = {one.rank: one for one in states if one.model == now.model and one.world == now.world and one.process != now.process}
    mine, first = latest.get(now.rank), latest.get(0)
    if mine is None or first is None or now.rank == 0:
        return frozenset()
    return frozenset(name for name, one in mine.first.random.items() if name in first.first.random and first.first.random[name] != one)


def losses(origin: Origin, now: TrainingState) -> list[Loss]:
    """The parts of a state with which a run does not go on.

    Args:
        now: as its first call began, with the first batches in ``batches``, and the optimizers' states before their first step.
    """
    before = origin.state
    of_weights, of_optimizers = [*_of_weights(before, now)], [*_of_optimizers(before, now)]
    then = before.following or before.moment
    of_settings = [*_of_settings(before, then, now)]
    found = [*of_weights, *of_optimizers, *of_settings, *_of_averages(before, now)]
    drawn = [*_of_random(origin, now)] if before.world == now.world else []
    if of_optimizers and of_optimizers[0].asks and (drawn or of_weights or _has_others(before, now)):
        # nothing but weights was taken: mostly a training of its own
        text = f"it goes on with weights alone: {'; '.join(one.text for one in [*of_optimizers, *of_settings, *drawn, *of_weights])}"
        weights = [name for one in found for name in one.parameters]
        return [Loss(text, "If it is to go on, load the rest of the checkpoint too.", True, weights)]
    if before.world == now.world:
        found += [*drawn, *_of_batches(before, now, is_explained=bool(drawn))]
    return found


def _has_others(before: TrainingState, now: TrainingState) -> bool:
    """Whether a run has optimizers of other classes."""
    return bool(now.optimizers) and set(before.optimizers).isdisjoint(now.optimizers)


def _of_weights(before: TrainingState, now: TrainingState) -> Iterable[Loss]:
    wrong = [name for name, one in before.weights.items() if name in now.weights and now.weights[name].equals(one) is False]
    cast = [name for name in wrong if now.weights[name].dtype != before.weights[name].dtype]
    if cast:
        a, b = before.weights[cast[0]].dtype, now.weights[cast[0]].dtype
        yield Loss(
            f"{_names(cast)} {_is(cast)} {b}, and {_was(cast)} {a}", "Load weights in the dtype that they are trained in.", True, cast
        )
    resized = [name for name in wrong if name not in cast and now.weights[name].numel != before.weights[name].numel]
    if resized:
        text = f"{_names(resized)} {_is(resized)} of another size"
        yield Loss(text, "If it is the same model, make it with the same settings.", True, resized)
    if wrong := [name for name in wrong if name not in {*cast, *resized}]:
        text = f"{count(len(wrong), 'weight')} of {len(before.weights)} {_is(wrong)} not what was saved, the first is {wrong[0]}"
        yield Loss(
            text, "Compare the keys of the checkpoint with model.state_dict(); strict=True refuses those that do not match.", False, wrong
        )


def _of_optimizers(before: TrainingState, now: TrainingState) -> Iterable[Loss]:
    theirs, kind = (", ".join(dict.fromkeys(one.optimizers or before.optimizers)) or "the optimizer" for one in (before, now))
    advice = "Call optimizer.load_state_dict before the first step, with the parameters in the same order."
    held = any(before.states.values()) or any(before.counts.values())
    if held and not now.states and not now.counts:
        kept = ", ".join([*before.states, *before.counts])
        is_other = _has_others(before, now)
        text = f"the optimizer is {kind}, and was {theirs} with {kept}" if is_other else f"{kind} begins without state ({kept})"
        yield Loss(text, advice, True)  # it may be tuned anew
        return
    for key, saved in before.states.items():
        mine = now.states.get(key, {})
        both = {name: (one, mine.get(name)) for name, one in saved.items() if name in now.weights}
        wrong = {name: its for name, (one, its) in both.items() if (not one.is_zero if its is None else its.equals(one) is False)}
        for word, names in _grouped(saved, wrong).items():
            yield Loss(f"{kind}'s {key} {word} in {count(len(names), 'parameter')}", advice, False, names)
    for key, numbers in before.counts.items():
        own = now.counts.get(key, {})
        wrong_counts = [name for name, value in numbers.items() if name in now.weights and name in own and own[name] != value]
        for value in dict.fromkeys(own[name] for name in wrong_counts):
            names = [name for name in wrong_counts if own[name] == value]
            yield Loss(
                f"{kind}'s {key} is {value:g} in {count(len(names), 'parameter')}, and was {numbers[names[0]]:g}", advice, False, names
            )


def _grouped(saved: Mapping[str, Bits], wrong: Mapping[str, Bits | None]) -> Mapping[str, list[str]]:
    words: dict[str, list[str]] = {}
    for name, one in wrong.items():
        if one is None:
            word = "is missing"
        elif one.dtype != saved[name].dtype:
            word = f"is {one.dtype}, and was {saved[name].dtype},"
        else:
            word = "is zero" if one.is_zero else "is not what was saved"
        words.setdefault(word, []).append(name)
    return words


def _of_settings(before: TrainingState, then: Moment, now: TrainingState) -> Iterable[Loss]:
    advice = "Load the optimizer's and the scheduler's state after both are made."
    both = {name: (values, now.moment.settings[name]) for name, values in then.settings.items() if name in now.moment.settings}
    for name, (values, own) in both.items():
        for a, b in [(a, b) for a, b in zip(values, own, strict=False) if a != b and not (math.isnan(a) and math.isnan(b))][:1]:
            yield Loss(f"{name.removeprefix('optimizer_')} is {b:.6g}, and was {a:.6g}", advice, True)
    for a, b in {(len(values), len(own)) for values, own in both.values() if len(values) != len(own)}:
        yield Loss(
            f"there {'is' if b == 1 else 'are'} {count(b, 'parameter group')}, and there {'was' if a == 1 else 'were'} {a}", advice, True
        )
    for kind, place in then.schedulers:
        own_places = [one for name, one in now.moment.schedulers if name == kind]
        if own_places and place not in own_places:
            yield Loss(f"{kind} is at {own_places[0]}, and was at {place}", "Call scheduler.load_state_dict.")
    epochs = dict(now.moment.epochs)
    for kind, epoch in then.epochs:
        if epochs.get(kind, epoch) < epoch:
            yield Loss(f"{kind}'s epoch is {epochs[kind]}, and was {epoch}", "Call sampler.set_epoch with the epoch that goes on.", True)
    scale = before.moment.scale
    if scale is not None and now.moment.scale is not None and now.moment.scale != scale:
        yield Loss(f"GradScaler's scale is {now.moment.scale:g}, and was {scale:g}", "Call scaler.load_state_dict.")


def _of_averages(before: TrainingState, now: TrainingState) -> Iterable[Loss]:
    kinds, mine = {kind for kind, _ in now.averages}, {value for _, value in now.averages}
    for kind, value in dict(one for one in before.averages if one[1] and one[0] in kinds and one[1] not in mine).items():
        if kind == "n_averaged":
            own = next(number for name, number in now.averages if name == kind)
            yield Loss(f"AveragedModel's n_averaged is {own}, and was {value}", "Load AveragedModel's own state_dict.")
            continue
        yield Loss(f"the averaged copy of {kind} is another one", "Save and load the averaged copy's state_dict too.", True)


def _of_random(origin: Origin, now: TrainingState) -> Iterable[Loss]:
    before, first = origin.state, origin.first_rank
    lost = []
    for name, (block, place) in now.moment.random.items():
        of_first = [one.random[name] for one in (first.moment, first.following) if one is not None and name in one.random]
        if name in origin.differs and block in {known for known, _ in of_first}:
            text = f"rank {now.rank} has rank 0's random state ({name})"
            yield Loss(text, "Save and load the random states of each rank.")
        if before.rank != now.rank or name not in before.draws:
            continue
        known = [one.random[name] for one in (before.moment, before.following) if one is not None and name in one.random]
        if not any(block == theirs and place >= least for theirs, least in known):
            lost.append(name)
    if lost:
        advice = "Save and load torch.get_rng_state(), random.getstate() and numpy.random.get_state(), on each rank."
        yield Loss(f"the random state of {few(lost, 3)} is not what was saved", advice, True)


def _of_batches(before: TrainingState, now: TrainingState, is_explained: bool) -> Iterable[Loss]:
    """``is_explained``: batches may be other ones since other random numbers were drawn."""
    if not now.batches or before.rank != now.rank:
        return
    first = now.batches[0][1]
    following = before.next_batches
    place = "Restore the loader's place: skip the batches of the epoch that were seen, or use a loader with a state_dict."
    advice = "" if is_explained else place
    if following and first == following[0]:
        return
    seen = {value: step for step, value in before.batches}
    is_one_epoch = len(seen) <= max((total for _, total in before.places), default=len(seen))  # or less, where no batch has come again
    may_begin_anew = len(seen) < len(before.batches) or (is_one_epoch and not any(done < total for done, total in before.places))
    if first in following:
        yield Loss(f"{count(following.index(first), 'batch')} {'is' if following.index(first) == 1 else 'are'} skipped", advice, True)
    elif first in seen and (following or not may_begin_anew):
        yield Loss(f"the batch of step {seen[first]} comes again", advice, True)
    elif following and not is_explained:
        yield Loss("the first batch is not the one that came next", advice, True)


def _names(names: Sequence[str]) -> str:
    return few(names, 2)


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _was(names: Sequence[str]) -> str:
    return "was" if len(names) == 1 else "were"
