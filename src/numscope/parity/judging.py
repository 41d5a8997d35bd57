"""Says where two layouts of one training part: what makes them incomparable, or the first gradient that differs, and its kind."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from typing import Any, Literal

import torch

from numscope.parity.layout import RecordedLayout, Which
from numscope.parity.likeness import ROUNDED, ROUNDING, Likeness, likeness, norm_of
from numscope.parity.stages import as_in_whole
from numscope.records.fingerprint import Sketch, TensorPrint
from numscope.records.words import count, few

Kind = Literal[
    "not comparable",
    "no gradient",
    "factor",
    "missing reduction",
    "counted twice",
    "low precision",
    "micro-batch dropped",
    "micro-batches weighted",
    "clip norm",
    "update",
    "other",
    "resume",
]
MARGIN = 8  # times what one unit in the last place does is still noise
_LEAST = 2 * ROUNDING  # of a gradient's norm: below, sums in another order
_ALMOST = 2e-3  # within which a factor is taken for a number
_COARSEST = 2.0**-5  # of a gradient's norm: no format that gradients are reduced in rounds by more
_MOST_OWN = 24  # backwards of one step whose weights can be told from 32 sums


@dataclass(frozen=True, slots=True)
class ParityVerdict:
    """Where two layouts part.

    Args:
        kind: None where they agree.
        text: a sentence or two.
        parameter: the first in the order of backward; "" where it is about none.
        step: from 0; -1: they are not comparable from the start.
        num_differ, num_compared: parameters of that step.
        notes: what was not compared.
    """

    kind: Kind | None
    text: str
    parameter: str = ""
    step: int = 0
    num_differ: int = 0
    num_compared: int = 0
    evidence: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Differing:
    name: str
    a: Sketch
    b: Sketch
    likeness: Likeness
    tolerance: float


def judge(a: RecordedLayout, b: RecordedLayout, noise: RecordedLayout | None = None) -> ParityVerdict:
    """Where two layouts part.

    Args:
        a: the reference.
        noise: the reference again, each weight moved by one unit in its last place; what that does to a gradient is within tolerance.
    """
    return _Judge(a, b, noise).verdict()


class _Judge:
    def __init__(self, a: RecordedLayout, b: RecordedLayout, noise: RecordedLayout | None) -> None:
        self._b, told = as_in_whole(b, a)
        self._a, self._noise = a, noise
        self._notes = [told] if told else []
        self._by_hand = set[int]()  # steps at which one of the runs clips by itself

    def verdict(self) -> ParityVerdict:
        found = self._incomparable()
        for step in range(min(self._a.num_steps, self._b.num_steps)):
            found = found or (self._of_update(step) if step else None) or self._of_gradients(step) or self._of_clipping(step)
        if found is None:
            steps, num = min(self._a.num_steps, self._b.num_steps), len(self._pairs(0, "gradients"))
            text = f"the layouts agree: {count(num, 'gradient')} over {count(steps, 'step')}, within what rounding does"
            found = ParityVerdict(None, f"{text}.", num_compared=num)
            if not num:
                found = ParityVerdict("not comparable", "no gradient is there in both runs as a whole.", step=-1)
        return ParityVerdict(**{**{name: getattr(found, name) for name in ParityVerdict.__slots__}, "notes": tuple(self._notes)})

    # ---- what makes them incomparable

    def _incomparable(self) -> ParityVerdict | None:
        a, b = self._a.merged(0, "weights"), self._b.merged(0, "weights")
        missing = [(name, "a" if name in a else "b") for name in (*a, *b) if (name in a) != (name in b)]
        if missing:
            name, side = missing[0]
            return ParityVerdict(
                "not comparable", f"other parameters: {len(missing)} are on one side alone, the first is {name}, of {side}.", name, -1
            )
        odd = [name for name in a if a[name].shape != b[name].shape]
        if odd:
            shapes = f"{list(a[odd[0]].shape)} and {list(b[odd[0]].shape)}"
            self._notes.append(f"{count(len(odd), 'parameter')} not compared, of other shapes: the first is {odd[0]}, {shapes}")
        differing = []
        for name in a:
            left, right = self._a.whole(0, "weights", name), self._b.whole(0, "weights", name)
            if left is not None and right is not None and name not in odd:
                found = likeness(left, right, a[name].dtype == b[name].dtype)
                if not found.equal and found.difference > (_LEAST if a[name].dtype == b[name].dtype else 2.0**-8):
                    differing.append((name, found))
        if differing:
            name, found = differing[0]
            told = f"{len(differing)} of {len(a)} parameters differ before the first step, the first is {name}: {found.text()}"
            return ParityVerdict("not comparable", f"other weights: {told}.", name, -1, num_differ=len(differing), num_compared=len(a))
        return self._of_copies(a) or self._of_data()

    def _of_copies(self, weights: Mapping[str, TensorPrint]) -> ParityVerdict | None:
        """Ranks of the second run that each have all of a parameter have it alike."""
        first: dict[str, tuple[int, Sketch]] = {}
        for rank, step in self._b.steps(0):
            for name, one in step.weights.tensors.items():
                whole = one.whole
                if whole is None or name not in weights or one.shape != weights[name].shape:
                    continue
                before, known = first.setdefault(name, (rank, whole))
                if known.checksum != whole.checksum:
                    told = f"ranks {before} and {rank} of the second run begin with other values of {name}"
                    return ParityVerdict("not comparable", f"other weights: {told}.", name, -1)
        return None

    def _of_data(self) -> ParityVerdict | None:
        a, b = self._a.rows, self._b.rows
        shapes = [{(name, shape) for name, shape, _ in rows} for rows in (a, b)]
        if not a or not b:
            return None
        names, alike = [{name for name, _ in each} for each in shapes], {name for name, _ in shapes[0] & shapes[1]}
        if names[0] != names[1] or not alike:
            self._notes.append("the batches are not compared: models get other arguments, or parts of samples")
            return None
        if in_parts := names[0] - alike:  # of a sequence, for one
            self._notes.append(f"samples of argument {few(sorted(in_parts), 2)} are not compared: the runs have other parts of them")
        a, b = (Counter({row: num for row, num in rows.items() if row[0] in alike}) for rows in (a, b))
        strange, lost = b.keys() - a.keys(), a.keys() - b.keys()
        if strange or lost:
            name = next(iter(strange or lost))[0] or "the input"
            told = (
                f"{len(strange)} of {len(b)} samples of the second run are not in the first, and {len(lost)} of the first not in the second"
            )
            return ParityVerdict("not comparable", f"other data in the first step: {told} (argument {name}).", step=-1)
        return None

    def _drops(self) -> str:
        layers = dict.fromkeys((*self._a.dropout, *self._b.dropout))
        if not layers:
            return ""
        seeds = [{one.seed for one in layout.ranks} for layout in (self._a, self._b)]
        seeded = "" if seeds[0] == seeds[1] else f", and the runs have other seeds ({_listed(seeds[0])} and {_listed(seeds[1])})"
        return f"dropout draws other elements in other layouts: {few(list(layers), 2)} is active{seeded}; set it to 0 for the comparison"

    # ---- gradients

    def _tolerance(self, step: int, name: str, which: Which, a: Sketch, b: Sketch) -> float:
        moved = None if self._noise is None or step >= self._noise.num_steps else self._noise.whole(step, which, name)
        away = 0.0 if moved is None else likeness(a, moved).difference
        small = _LEAST * self._a.norm(step, which)  # beside all of them it is rounding alone
        least = max(_LEAST, MARGIN * self._a.rounding / 4)  # a result is off by a quarter of its unit, on average
        return max(least, MARGIN * away, small / a.norm) if a.norm else math.inf if b.norm <= small else 0.0

    def _pairs(self, step: int, which: Which, of_b: Which | None = None) -> list[_Differing]:
        found = []
        for name in self._a.order:
            left, right = self._a.whole(step, which, name), self._b.whole(step, of_b or which, name)
            if left is not None and right is not None and left.numel == right.numel:
                tolerance = self._tolerance(step, name, which, left, right)
                found.append(_Differing(name, left, right, likeness(left, right, False), tolerance))
        return found

    def _of_gradients(self, step: int) -> ParityVerdict | None:
        pairs = self._pairs(step, "gradients")
        differing = [one for one in pairs if one.likeness.difference > one.tolerance]
        split = [one for one in pairs if self._split(step, "gradients", one)]
        sides = [
            {name for name, one in x.merged(step, "gradients").items() if (whole := one.whole) and whole.norm} for x in (self._a, self._b)
        ]
        lost = (sides[0] - self._b.merged(step, "gradients").keys()) | (sides[1] - self._a.merged(step, "gradients").keys())
        unread = lost & (self._a.unread | self._b.unread)
        in_both = self._a.merged(step, "gradients").keys() & self._b.merged(step, "gradients").keys()
        cut = {name for name in in_both if None in (self._a.whole(step, "gradients", name), self._b.whole(step, "gradients", name))}
        for names, why in ((unread, "of which ranks hold summands (Partial) or unknown parts"), (cut, "of which parts are missing")):
            told = f"{count(len(names), 'gradient')} not compared, {why}: the first is that of {min(names, default='')}"
            self._notes += [told] if names and told not in self._notes else []
        lost -= unread
        order = dict.fromkeys((*self._a.order, *self._b.order))
        wrong = [name for name in order if name in {one.name for one in (*differing, *split)} | lost]
        if not wrong or (not lost and self._agree_as_clipped(step)):
            return None
        first = wrong[0]
        kind: Kind = "no gradient"
        text, evidence = f"is there in the {'first' if first in sides[0] else 'second'} run alone", dict[str, Any]()
        if first not in lost:
            one = next(one for one in pairs if one.name == first)
            kind, text, evidence = self._kind(step, one, differing, split, pairs)
        if kind in ("other", "low precision") and (drops := self._drops()):
            kind, text = "not comparable", f"differs; {drops}"
        if kind == "other":
            known = {one.name for one in pairs}
            before = [name for name in takewhile(lambda name: name != first, order) if name in known]
            text += f"; that of {before[-1]}, before it in backward, agrees" if before else "; it is the first in backward"
        others = f" {len(wrong) - 1} of the other {len(pairs) + len(lost) - 1} differ too." if len(wrong) > 1 else ""
        told = f"step {step + 1}: the gradient of {first} {text}.{others}"
        return ParityVerdict(kind, told, first, step, len(wrong), len(pairs) + len(lost), evidence)

    def _clips_alone(self, step: int) -> tuple[Which, Which] | None:
        """What optimizers got of both runs, where one of them alone clips by a function that is known."""
        clip = [bool(run.merged(step, "clipped")) for run in (self._a, self._b)]
        return None if clip[0] == clip[1] else ("clipped" if clip[0] else "gradients", "clipped" if clip[1] else "gradients")

    def _agree_as_clipped(self, step: int) -> bool:
        """Whether one run clips by a function that is known, the other by arithmetic of its own, and their optimizers get the same."""
        which = self._clips_alone(step)
        pairs = self._pairs(step, *which) if which is not None else []
        if which is None or any(one.likeness.difference > one.tolerance or self._split(step, which[1], one) for one in pairs):
            return False
        run = "first" if which[0] == "gradients" else "second"
        told = f"the {run} run clips gradients by itself, so they are compared as they were clipped"
        self._notes += [told] if told not in self._notes else []
        self._by_hand.add(step)
        return bool(pairs)

    def _split(self, step: int, which: Which, one: _Differing) -> bool:
        """Whether ranks that should have the same gradient have others."""
        for sketches in self._b.copies(step, which, one.name).values():
            first, *others = sketches.values()
            if any(likeness(first, other).difference > one.tolerance for other in others):
                return True
        return False

    def _kind(
        self, step: int, one: _Differing, differing: Sequence[_Differing], split: Sequence[_Differing], pairs: Sequence[_Differing]
    ) -> tuple[Kind, str, dict[str, Any]]:
        if any(other.name == one.name for other in split):
            return self._unreduced(step, one)
        found = one.likeness
        if any(found.num_nonfinite):
            return "other", f"has {found.num_nonfinite[0]} and {found.num_nonfinite[1]} elements that are not finite", {}
        if not one.b.norm:
            return "no gradient", "is 0 in the second run", {}
        if found.rest <= max(one.tolerance, _LEAST * abs(found.factor)) * 4 and abs(found.factor - 1) > one.tolerance:
            return self._scaled(step, one, pairs)
        return self._weighted(step, one, differing)

    def _unreduced(self, step: int, one: _Differing) -> tuple[Kind, str, dict[str, Any]]:
        own: dict[int, Sketch] = {}
        for rank, recorded in self._b.steps(step):
            given = [tensor for each in recorded.own if (tensor := each.tensors.get(one.name)) is not None]
            for tensor in given:
                for sketch in tensor.parts.values():
                    own[rank] = own[rank].merge(sketch) if rank in own else sketch
        copies = next(held for held in self._b.copies(step, "gradients", one.name).values() if len(held) > 1)
        alone = all(rank in own and likeness(own[rank], held, False).rest <= max(_ALMOST, one.tolerance) for rank, held in copies.items())
        ranks = f"ranks {_listed(copies)}"
        if self._b.copies(step, "clipped", one.name) and not self._split(step, "clipped", one):
            return "clip norm", f"is clipped on {ranks} before they reduce it, each by the norm of its own", {"ranks": list(copies)}
        if alone or not own:
            return "missing reduction", f"is not reduced: {ranks} have each what their own backward gave", {"ranks": list(copies)}
        return "missing reduction", f"is reduced over some of {ranks} alone: they hold the same parameter and have other gradients", {}

    def _scaled(self, step: int, one: _Differing, pairs: Sequence[_Differing]) -> tuple[Kind, str, dict[str, Any]]:
        factor, error = one.likeness.factor, max(_ALMOST, one.likeness.factor_error)

        def alike(other: _Differing) -> bool:
            rest = max(_ALMOST * abs(factor), 4 * other.tolerance)
            return abs(other.likeness.factor / factor - 1) <= error and other.likeness.rest <= rest

        judged = [other for other in pairs if other.a.norm and other.tolerance < 0.1]
        shared = [other for other in judged if alike(other)]
        reasons = self._equals(factor, error)
        evidence = {"factor": factor, "equals": reasons, "parameters": len(shared)}
        whole = round(factor)
        equal = f" ({factor:.4g} is {few(reasons, 3)})" if reasons else ""
        if len(shared) < len(judged) and whole >= 2 and abs(factor / whole - 1) <= error:
            times = "twice" if whole == 2 else f"{whole} times"
            return "counted twice", f"is counted {times}{equal}, as in {len(shared)} of {len(judged)} parameters", evidence
        where = "" if len(shared) == len(judged) else f", as in {len(shared)} of {len(judged)} parameters"
        told = f"is {factor:.4g} times that of the first run{equal}{where}{self._origin(step, one, shared, len(shared) < len(judged))}"
        return "factor", told, evidence

    def _equals(self, factor: float, error: float) -> list[str]:
        """The sizes that a factor may be."""
        a, b = self._a.facts, self._b.facts
        sizes = {f"the {name}": float(size) for name, size in b.items()}
        sizes |= {f"the {name} of the first run": float(size) for name, size in a.items() if b.get(name) != size}
        sizes |= {f"the {name} over that of the first run": b[name] / a[name] for name in a.keys() & b.keys() if a[name] != b[name]}
        known = [(value, words) for words, size in sizes.items() for value, words in ((size, words), (1 / size, f"1 / {words}"))]
        return [words for value, words in known if abs(factor / value - 1) <= error]

    def _origin(self, step: int, one: _Differing, shared: Sequence[_Differing], is_rare: bool) -> str:
        """Whether a factor comes from the reduction over ranks, by the weight that each rank's own gradient has in the sum; ``is_rare``:
        other parameters do not have it."""
        size = self._b.facts.get("data-parallel size", self._b.facts.get("world size", 1))
        ranks = [rank for rank, recorded in self._b.steps(step) if any(one.name in given.tensors for given in recorded.own)]
        solved = self._solve(step, one, shared)
        if min(size, len(ranks)) < 2 or solved is None or solved[4] > max(_ALMOST, one.tolerance):
            return ""
        if all(abs(weight * size - 1) <= 0.01 for weight in solved[2]):
            return "; ranks average " + ("it" if is_rare else "their gradients as they should, so it is in the loss")
        if all(abs(weight / solved[2][0] - 1) <= 0.01 for weight in solved[2]):
            return f"; each rank's own gradient counts {solved[2][0]:.4g} times, where an average is 1/{size}"
        return ""

    def _weighted(self, step: int, one: _Differing, differing: Sequence[_Differing]) -> tuple[Kind, str, dict[str, Any]]:
        found = one.likeness
        told = f"differs by {found.difference:.2g} of its norm (tolerance {one.tolerance:.1g}; cosine {found.cosine:.5g})"
        solved = self._solve(step, one, differing)
        if solved is not None:
            words, left, right, rest_a, rest_b = solved
            known = [i for i, weight in enumerate(left) if abs(weight) > 0.01 * max(map(abs, left))]
            ratios = {words[i]: right[i] / left[i] for i in known}
            silent = [name for name, sketch in self._b.own(step, one.name) if not sketch.norm]
            if rest_b <= max(0.1 * found.difference, one.tolerance) < rest_a and silent:
                return "micro-batch dropped", f"gets nothing from {few(silent, 3)}", {"weights": dict.fromkeys(silent, 0.0)}
            if rest_b <= max(0.1 * found.difference, one.tolerance) and rest_a <= max(0.1 * found.difference, one.tolerance) and ratios:
                dropped = [name for name, ratio in ratios.items() if abs(ratio) < 0.02]
                if dropped and len(dropped) < len(ratios):
                    return "micro-batch dropped", f"lacks {few(dropped, 3)}", {"weights": ratios}
                if max(ratios.values()) - min(ratios.values()) > 10 * one.tolerance:
                    least, most = (pick(ratios, key=lambda name: ratios[name]) for pick in (min, max))
                    weights = f"{most} counts {ratios[most]:.4g} times as much as in the first run, {least} {ratios[least]:.4g} times"
                    together = math.fsum(right) / math.fsum(left) if math.fsum(left) else 1.0
                    if abs(together - 1) > _ALMOST and (reasons := self._equals(together, _ALMOST)):
                        weights += f", all together {together:.4g} times ({few(reasons, 3)})"
                    return "micro-batches weighted", f"weighs its parts otherwise: {weights}", {"weights": ratios}
        within = abs(found.factor - 1) <= max(_ALMOST, 2 * found.factor_error)
        errors = [(other.likeness.difference * other.a.norm, other.a.norm) for other in (one, *differing)]
        apart, size = (math.sqrt(math.fsum(value * value for value in values)) for values in zip(*errors, strict=True))
        if found.difference <= _COARSEST and found.difference > ROUNDED["float16"] and within and apart <= _COARSEST * size:
            name = "bfloat16" if found.difference > ROUNDED["bfloat16"] else "float16"
            exact = solved is not None and solved[3] <= 0.1 * found.difference
            where = "reduced" if exact else "computed or reduced"
            return "low precision", f"has the noise of {name}, so it is {where} in that: it {told}", {"difference": found.difference}
        return "other", told, {"difference": found.difference}

    def _solve(
        self, step: int, one: _Differing, differing: Sequence[_Differing]
    ) -> tuple[list[str], list[float], list[float], float, float] | None:
        """With which weights the backwards' own gradients make up both runs' gradients, and what is left of each, relative to its norm."""
        rows: list[list[float]] = []
        words: list[str] = []
        targets: list[tuple[float, float]] = []
        for other in (one, *(other for other in differing if other.name != one.name)):
            own = self._b.own(step, other.name)
            if not own or len(own) > _MOST_OWN or (words and [name for name, _ in own] != words):
                if not words:
                    return None
                continue
            words = [name for name, _ in own]
            scale = other.a.norm or 1.0
            rows += [[sketch.sums[k] / scale for _, sketch in own] for k in range(len(other.a.sums))]
            targets += [(x / scale, y / scale) for x, y in zip(other.a.sums, other.b.sums, strict=True)]
        matrix, target = torch.tensor(rows, dtype=torch.float64, device="cpu"), torch.tensor(targets, dtype=torch.float64, device="cpu")
        found = torch.linalg.pinv(matrix, rtol=1e-9) @ target
        rest = (matrix @ found - target).T.tolist()
        size = target.T.tolist()
        return words, *found.T.tolist(), *(norm_of(rest[i]) / (norm_of(size[i]) or 1.0) for i in range(2))

    # ---- clipping, and the update

    def _of_clipping(self, step: int) -> ParityVerdict | None:
        for rank, recorded in () if step in self._by_hand else self._b.steps(step):
            for name, tensor in recorded.gradients.tensors.items():
                right = _clipped(self._a.whole(step, "gradients", name), self._a.whole(step, "clipped", name))
                clipped = recorded.clipped.tensors.get(name)
                both = [tensor, *(other for other in [self._a.merged(step, "gradients").get(name)] if other is not None)]
                room = max(_ALMOST, *(torch.finfo(getattr(torch, one.dtype)).eps for one in both))  # to which norm and factor are rounded
                for place, held in tensor.parts.items():
                    used = _clipped(held, None if clipped is None else clipped.parts.get(place))
                    if abs(used / right - 1) > room:
                        return self._by_other_norm(step, name, rank, used, right)
        return None

    def _by_other_norm(self, step: int, name: str, rank: int, used: float, right: float) -> ParityVerdict:
        recorded = dict(self._b.steps(step))[rank]
        own = math.sqrt(math.fsum(part.square_sum for one in recorded.gradients.tensors.values() for part in one.parts.values()))
        limit, norm = recorded.max_norm, self._b.norm(step, "gradients")
        told = f"are made {used:.4g} times as large by clipping, where those of the first run are {right:.4g} times"
        if limit is not None and used < 1 - _ALMOST:
            whose = (
                "that of what this rank holds" if abs(own * used / limit - 1) < 10 * _ALMOST else "neither that nor what this rank holds"
            )
            told = f"are clipped by the norm {limit / used:.4g}, {whose}"
        text = f"step {step + 1}: the gradients on rank {rank} {told}; all gradients together have the norm {norm:.4g}."
        return ParityVerdict(
            "clip norm", text, name, step, evidence={"used": used, "right": right, "own": own, "global": norm, "rank": rank}
        )

    def _of_update(self, step: int) -> ParityVerdict | None:
        differing = []
        for one in self._pairs(step, "weights"):
            before = self._a.whole(step - 1, "weights", one.name)
            moved = 0.0 if before is None else likeness(before, one.a, False).difference
            # Adam's first steps follow signs, also those of noise, so part of an update may differ.
            if one.likeness.difference > max(one.tolerance, 0.2 * moved):
                differing.append(one)
        if not differing:
            return None
        one = differing[0]
        text = f"step {step}: gradients agree, and {one.name} differs after the update: {one.likeness.text()}."
        return ParityVerdict("update", text, one.name, step - 1, len(differing), evidence={"difference": one.likeness.difference})


def _clipped(before: Sketch | None, after: Sketch | None) -> float:
    """By which factor clipping has changed a gradient."""
    return 1.0 if before is None or after is None or not before.norm else after.norm / before.norm


def _listed(numbers: Any) -> str:
    return few([*map(str, sorted(numbers))], 8)
