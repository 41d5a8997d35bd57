"""Compares the log-probabilities that a trainer and an inference engine give the same tokens, and says why they differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from numscope.records.errors import UsageError
from numscope.records.faults import ours
from numscope.records.words import count, few
from numscope.summary.unseen import unseen

Kind = Literal[
    "equal", "rounding", "length", "not finite", "candidate", "rescaled", "shifted", "few tokens", "temperature", "truncated", "unrelated",
    "other weights",
]  # fmt: skip
Said = tuple[Kind, str, bool, dict[str, Any]]  # the last of a comparison's first fields: whether it is certain, and the evidence
_WHERE = "compare_logprobs"
_CLIP = 0.2  # of the ratio, on both sides of 1: what PPO and GRPO clip by default
_ABOVE = 1e-2  # 0 as a log-probability, rounded
_ROUNDING, _FLOAT32 = 0.03, 1e-4  # mean |Δ| that bfloat16, and float32, in one of two engines make at most
_MARGIN = 3  # times the noise is still noise
_BETTER = 0.2  # of the difference, what an explanation leaves of it at most
_EXACT = 0.02  # of the difference, what is left where numbers were only rounded after they were rescaled
_TAIL = 10  # rounding's largest |Δ|, in units of its mean
_SHIFTS = [shift for by in range(1, 9) for shift in (by, -by)]
_FEW, _WRONG, _BEYOND = 0.9, 0.5, 30  # tokens are wrong by more than the second, and than so many times the others' decile
_SLOPE, _SIGN = 0.4, 0.9  # of a temperature: correlation of the difference with the mean of both; share of likely tokens that move alike
_MOST, _TOP = 64, 1024  # tokens whose logits are read; of each the largest
_TEMPERATURES = (1.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.5, 2.0)  # customary beside top-p and top-k
_MIN_P = (0.01, 0.02, 0.03, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.5)
_TOP_P = (*(p / 100 for p in range(1, 100)), 0.995, 0.999)


@dataclass(frozen=True, slots=True)
class LogprobsComparison:
    """How b's log-probabilities differ from a's; true where they are equal, or rounding explains the difference.

    Args:
        kind: ``equal``; ``rounding`` of other kernels or another dtype; ``length``: rows of other lengths; ``not finite``; ``candidate``:
            b's are those of one of ``candidates``; ``rescaled``: a's times a constant, or their sums or means; ``shifted`` by some
            positions; ``few tokens`` are wrong; ``temperature``; ``truncated`` and renormalized (top-p, top-k, min-p); ``unrelated``;
            ``other weights``: stale or undelivered. What is not finite is a kind where the rest agrees, and else said behind the cause.
        text: a sentence; a question where ``is_certain`` is False, since the numbers only suggest it.
        evidence: the text's numbers: ``temperature``, ``top_p``, ``top_k``, ``shift``, ``candidate``, ``factor``, ``rows``, ``places`` and
            ``not_finite`` (row, position).
        num_tokens: that count, and are finite in both.
        mean_abs, max_abs: of the difference, b - a.
        k1, k3: estimates of KL(b || a) from tokens that b drew: the mean of b - a, and of exp(a - b) - 1 - (a - b).
        mean_ratio: of exp(a - b), the importance ratio of trainer and engine; near 1 where b drew the tokens as it says.
        num_clipped: ratios outside 1 ± 0.2.
        correlation: of a and b; nan where one of them is constant.
    """

    kind: Kind
    text: str
    is_certain: bool
    evidence: Mapping[str, Any]
    num_tokens: int
    mean_abs: float
    max_abs: float
    k1: float
    k3: float
    mean_ratio: float
    num_clipped: int
    correlation: float

    def __bool__(self) -> bool:
        return self.kind in ("equal", "rounding")

    def __str__(self) -> str:
        return (
            f"{self.kind}: {self.text}\n  {count(self.num_tokens, 'token')}: mean |Δ| {self.mean_abs:.2g}, max {self.max_abs:.2g}; "
            f"KL {self.k1:.2g} (k1), {self.k3:.2g} (k3); ratio {self.mean_ratio:.3g}, {self.num_clipped / self.num_tokens:.0%} "
            f"outside 1 ± {_CLIP}; correlation {self.correlation:.4g}"
        )

    def document(self) -> dict[str, Any]:
        return asdict(self)


def compare_logprobs(
    a: Any,
    b: Any,
    *,
    mask: Any = None,
    tokens: Any = None,
    logits: Any = None,
    noise: Any = None,
    candidates: Mapping[str, Any] | None = None,
) -> LogprobsComparison:
    """Why an inference engine gives the sampled tokens other log-probabilities than the trainer.

        print(numscope.compare_logprobs(trainer_logps, engine_logps, mask=completion_mask))

    What follows from the numbers is looked for first; what they only suggest is put as a question. ``logits``, ``noise`` and
    ``candidates`` turn such questions into proofs.

    Args:
        a, b: the trainer's and the engine's, of the same tokens: tensors or arrays [batch, length], or lists of rows of any lengths, where
            None is nan.
        mask: [batch, length], nonzero where a token counts, such as the completion's.
        tokens: [batch, length], their ids, by which wrong tokens are named.
        logits: [batch, length, vocabulary], the trainer's, each where its token is: with ``tokens`` they tell temperature, top-p and top-k.
            64 tokens of them are read.
        noise: a's again, [batch, length], with the engine's rounding (under autocast, in its dtype): thrice its mean distance from a is
            rounding. Without it: 0.03.
        candidates: by label, what the engine may have instead, each a forward of yours over the same tokens: of the weights without the
            adapter, of the step before and of step 0. They are tried on all rows, and on those rows alone that rounding does not explain.

    Raises: UsageError where shapes don't fit, no token counts, a or b have numbers above 0, or ``logits`` are not a's.

    *Cost:* some passes over [batch, length] numbers in float64 on the CPU, and a copy from their device with a sync; for ``logits`` of
    150,000 tokens in the vocabulary, some twenty seconds.
    """
    rows, others = _rows(a, "a"), _rows(b, "b")
    lengths = [len(row) for row in rows]

    def padded(given: Any, name: str) -> Tensor:
        found = _rows(given, name)
        if [len(row) for row in found] != lengths:
            raise UsageError(f"{name}: got other lengths than those of a's {count(len(rows), 'row')}, expected the same.", _WHERE)
        return pad_sequence([*found, *others], batch_first=True, padding_value=math.nan)[: len(rows)]

    if len(rows) != len(others) or not rows:
        raise UsageError(f"got {len(rows)} and {len(others)} rows, expected the same tokens in both.", _WHERE)
    if logits is not None and (tokens is None or [len(row) for row in logits] != lengths):
        raise UsageError("logits: got no tokens, or other lengths than a's, expected [batch, length, vocabulary], and tokens.", _WHERE)
    with unseen():
        e = _Evidence(
            padded(rows, "a"),
            pad_sequence([*others, *rows], batch_first=True, padding_value=math.nan)[: len(rows)],
            padded([torch.ones(n) for n in lengths] if mask is None else mask, "mask").nan_to_num() != 0,
            [n - len(row) for n, row in zip(lengths, others, strict=True)],
            None if tokens is None else padded(tokens, "tokens"),
            logits,
            None if noise is None else padded(noise, "noise"),
            {label: padded(given, label) for label, given in (candidates or {}).items()},
        )
        if not len(e.change):
            raise UsageError("got no token that counts and is finite in both, expected some.", _WHERE)
        said, ratio = _with_not_finite(e, *next(said for cause in _CAUSES if (said := cause(e)) is not None)), (-e.change).exp()
        k1, k3, mean_ratio = (float(one.mean()) for one in (e.change, ratio - 1 + e.change, ratio))
        num_clipped, most = int(((ratio - 1).abs() > _CLIP).sum()), float(e.change.abs().max())
        alike = _correlation(e.flat_a, e.flat_b)
    return LogprobsComparison(*said, len(ratio), e.size, most, k1, k3, mean_ratio, num_clipped, alike)


def _rows(given: Any, name: str) -> list[Tensor]:
    try:
        whole = given if isinstance(given, list | tuple) else torch.as_tensor(given).detach().cpu()
        listed = ([math.nan if x is None else x for x in row] if isinstance(row, list | tuple) else row for row in whole)
        rows = [torch.as_tensor(row).detach().to("cpu", torch.float64) for row in listed]
        if any(row.dim() != 1 for row in rows):
            raise ValueError(f"{rows[0].dim() + 1} dimensions")
    except ours(TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"{name}: got {type(given).__name__} ({error}), expected numbers [batch, length].", _WHERE) from None
    if name in "ab" and any((row > _ABOVE).any() for row in rows):
        raise UsageError(f"{name}: got numbers above 0, expected log-probabilities.", _WHERE)
    return rows


class _Evidence:
    """The numbers to judge by: a, b, tokens, noise, candidates [batch, length] in float64, nan where a row has ended; logits by row.

    Args:
        counts: where a token counts.
        longer: by how much each row of a is longer than that of b.
    """

    def __init__(
        self, a: Tensor, b: Tensor, counts: Tensor, longer: list[int], tokens: Tensor | None, logits: Sequence[Tensor] | None,
        noise: Tensor | None, candidates: Mapping[str, Tensor],
    ) -> None:  # fmt: skip
        self.a, self.b, self.counts, self.longer, self.tokens, self.logits = a, b, counts, longer, tokens, logits
        self.candidates = candidates
        self.both = counts & a.isfinite() & b.isfinite()
        self.flat_a, self.flat_b = a[self.both], b[self.both]
        self.change = self.flat_b - self.flat_a
        self.size = _size(self.change)
        self.rounding = (
            _ROUNDING if noise is None else max(_FLOAT32, _MARGIN * _size((noise - a)[self.both]))
        )  # a mean |Δ| that it explains
        self.rows = {row: _size((b - a)[row][both]) for row, both in enumerate(self.both) if both.any()}
        self.bad_rows = [row for row, size in self.rows.items() if size > self.rounding]

    def explains(self, change: Tensor, size: float | None = None, better: float = _BETTER) -> bool:
        """Whether so little is left of the difference."""
        return _size(change) <= min(better * (self.size if size is None else size), self.rounding)

    def moved(self, shifts: Tensor) -> Tensor:
        """The differences of b's at t and a's at t + shift, with one shift a row."""
        at = torch.arange(self.a.shape[1]) + shifts[:, None]
        inside, at = (at >= 0) & (at < self.a.shape[1]), at.clamp(0, self.a.shape[1] - 1)
        moved = self.b - self.a.gather(1, at)
        return moved[inside & self.counts.gather(1, at) & moved.isfinite()]


def _correlation(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1]) if len(a) > 1 else math.nan


def _size(change: Tensor) -> float:
    size = float(change.abs().nanmean())
    return math.inf if math.isnan(size) else size


def _share(where: Tensor) -> float:
    return float(where.double().mean())


def _quantile(values: Tensor, share: float) -> float:
    return float(values.kthvalue(1 + int(share * (len(values) - 1))).values)


# ---- causes, from what is certain to what is likely


def _other_lengths(e: _Evidence) -> Said | None:
    rows = [row for row, more in enumerate(e.longer) if more]
    if not rows:
        return None
    if e.size <= e.rounding:
        told = "what both have agrees: an end token, padding or a limit"
    elif e.explains(e.moved(torch.tensor(e.longer))):
        told = "they agree from their ends on: prompt tokens or padding in front"
    else:
        told = (_shifted(e) or ("", "what both have differs: another tokenization, or other samples"))[1]
    text = f"{len(rows)} of {count(len(e.longer), 'row')} have another length in b (row {rows[0]}: {-e.longer[rows[0]]:+})"
    return "length", f"{text}; {told}", True, {"rows": rows}


def _with_not_finite(e: _Evidence, kind: Kind, text: str, is_certain: bool, evidence: dict[str, Any]) -> Said:
    """A verdict on the finite numbers that adds that there are others."""
    for name, given, other in (("b", e.b, e.a), ("a", e.a, e.b)):
        if (bad := e.counts & ~given.isfinite() & other.isfinite()).any():
            hint = ": top-p, top-k, min-p or a grammar excludes tokens so" if given[bad].isinf().any() else ""
            told = f"{count(int(bad.sum()), 'number')} of {name} not finite where the other has finite ones{hint}"
            evidence = {**evidence, "not_finite": bad.nonzero().tolist()}
            if kind in ("equal", "rounding"):
                return "not finite", told, True, evidence
            return kind, f"{text}; {told}", is_certain, evidence
    return kind, text, is_certain, evidence


def _equal(e: _Evidence) -> Said | None:
    return None if e.size else ("equal", "all numbers are equal", True, {})


def _candidate(e: _Evidence) -> Said | None:
    for rows in (list(e.rows), e.bad_rows):
        for label, given in e.candidates.items():
            left, before = ((e.b - one)[rows][e.both[rows]] for one in (given, e.a))
            if len(left) >= 4 and e.explains(left, _size(before)):
                some = f" in {_named(rows)} alone" if rows != list(e.rows) else ""
                text = f'b agrees with "{label}"{some}: mean |Δ| {_size(left):.2g} to it, {_size(before):.2g} to a'
                return "candidate", text, True, {"candidate": label, **({"rows": rows} if some else {})}
    return None


def _named(rows: Sequence[int]) -> str:
    return f"{'row' if len(rows) == 1 else 'rows'} {few(list(map(str, rows)), 8)}"


def _rescaled(e: _Evidence) -> Said | None:
    """b is a in other units, or sums of it."""
    a, ratio = e.a.where(e.both, 0), (e.flat_b / e.flat_a)[e.flat_a < -_FLOAT32]
    if len(ratio) < 16 or e.size <= _FLOAT32:
        return None
    factor, sums = float(ratio.median()), a.sum(1, keepdim=True)
    units = next((f": logarithms to base {base}" for base in (2, 10) if abs(factor * math.log(base) - 1) < 1e-2), "")
    forms: dict[str, Tensor] = {
        f"a's times {factor:.4g}{units}": factor * a,
        "the sums of a's up to each token": a.cumsum(1),
        "each row's sum of a's": sums.expand_as(a),
        "each row's mean of a's": (sums / e.both.sum(1, keepdim=True)).expand_as(a),
    }
    for text, given in forms.items():
        if e.explains((e.b - given)[e.both], better=_EXACT) and _correlation(given[e.both], e.flat_b) > 0.99:
            return "rescaled", f"b's are {text}", True, {"factor": factor} if "times" in text else {}
    return None


def _shifted(e: _Evidence) -> Said | None:
    for shift in _SHIFTS:
        moved = e.moved(torch.full((len(e.a),), shift))
        if len(moved) >= 4 and e.explains(moved):
            text = f"b's at t are a's at t {shift:+}, to mean |Δ| {_size(moved):.2g} in place of {e.size:.2g}"
            return "shifted", f"{text}; the logits at t are of the token at t + 1", True, {"shift": shift}
    return None


def _few_wrong(e: _Evidence) -> Said | None:
    size = e.change.abs()
    wrong = size > max(_WRONG, _BEYOND * _quantile(size, _FEW))
    if not wrong.any() or _size(size[~wrong]) > e.rounding or (others := float(size[~wrong].max())) > _WRONG:
        return None
    where = torch.zeros_like(e.both)
    where[e.both] = wrong
    changes = [(e.b - e.a)[row][e.both[row]].abs() for row in where.any(1).nonzero()[:, 0].tolist()]
    if any(len(change) >= 4 and change.median() > e.rounding for change in changes):  # a row differs, not a token
        return None
    places, counts, values = where.nonzero().tolist(), e.counts.long(), set(e.b[where].tolist())
    ids = set() if e.tokens is None else {f"{one:.0f}" for one in e.tokens[where].tolist()}
    ends = {"first": counts.argmax(1), "last": counts.cumsum(1).argmax(1)}
    hints = [f"each is the {end} of its row: a mask off by one?" for end, at in ends.items() if all(t == int(at[row]) for row, t in places)]
    hints += [f"token {' or '.join(sorted(ids))} in all: padding or special?"] if 0 < len(ids) <= 3 else []
    hints += [f"b is {values.pop():.3g} in all"] if len(places) > len(values) == 1 else []
    hints = hints or [f"(row, position) {few([f'({row}, {at})' for row, at in places], 4)}"]
    text = f"{len(places)} of {count(len(size), 'token')} differ by up to {size.max():.2g}, the others by {others:.2g}"
    return "few tokens", "; ".join([text, *hints]), others <= _TAIL * min(e.rounding, _ROUNDING), {"places": places}


def _by_logits(e: _Evidence) -> Said | None:
    """Temperature, top-p, top-k and min-p, of which the logits leave no doubt where one of them fits exactly."""
    if e.logits is None or e.tokens is None:
        return None
    chosen = e.both.nonzero()
    rows, at = (chosen := chosen[:: -(-len(chosen) // _MOST)]).unbind(1)
    logits = torch.stack([torch.as_tensor(e.logits[row][t]) for row, t in chosen.tolist()]).to("cpu", torch.float64)
    a, b, token = e.a[rows, at], e.b[rows, at], logits.gather(1, e.tokens[rows, at].long()[:, None])[:, 0]

    def left(given: Tensor, temperature: float) -> Tensor:
        return given - token / temperature + (logits / temperature).logsumexp(1)

    def temperature_of(given: Tensor) -> float:
        """A grid over its logarithm, then golden sections."""

        def error(x: float) -> float:
            return _size(left(given, math.exp(x)))

        if error(0.0) <= _FLOAT32:
            return 1.0
        best = min((x / 5 for x in range(-15, 16)), key=error)
        low, high = best - 0.2, best + 0.2
        for _ in range(25):
            near, far = low + 0.382 * (high - low), low + 0.618 * (high - low)
            low, high = (low, far) if error(near) < error(far) else (near, high)
        return math.exp((low + high) / 2)

    own, other = temperature_of(a), temperature_of(b)
    if (off := _size(left(a, own))) > e.rounding:
        raise UsageError(f"logits: got others than a's, by {off:.2g} on average, expected those of the position before each token.", _WHERE)
    found: Said | None = None
    if e.explains(left(b, other)) and abs(math.log(other / own)) > 1e-3:
        text = f"b's are of logits / {other:.4g}" + ("" if own == 1 else f", a's of logits / {own:.4g}")
        found = "temperature", text, True, {"temperature": other, "temperature_of_a": own}
        if not (e.counts & e.a.isfinite() & e.b.isneginf()).any():  # which tokens that are left out have, at any temperature
            return found
    best = math.inf if found is None else 2 * _FLOAT32
    for temperature in (own, *(_TEMPERATURES if found is None else ())):
        scaled = logits / temperature
        likeliest = (scaled.topk(min(_TOP, scaled.shape[1])).values - scaled.logsumexp(1, keepdim=True)).exp()
        kept, within_p = likeliest.cumsum(1), torch.tensor(_TOP_P, dtype=torch.float64).repeat(len(likeliest), 1)
        within_min = torch.searchsorted(-likeliest, -likeliest[:, :1] * torch.tensor(_MIN_P, dtype=torch.float64), right=True) - 1
        within_p = torch.searchsorted(kept, within_p).clamp(max=kept.shape[1] - 1)
        found_in = (("top-k", kept, _TOP_P), ("top-p", kept.gather(1, within_p), _TOP_P), ("min-p", kept.gather(1, within_min), _MIN_P))
        for name, masses, values in found_in:
            rest = (left(b, temperature)[:, None] + masses.log()).abs().mean(0)
            least, index = float(rest.min()), int(rest.argmin())
            if best > _FLOAT32 and least < best / 2 and e.explains(rest[index]):
                best, value, is_exact = least, index + 1 if name == "top-k" else values[index], least <= _FLOAT32
                text = f"b's are renormalized over the {name} {value} of logits" + ("" if temperature == 1 else f" / {temperature:.4g}")
                text += "" if is_exact else f", but for mean |Δ| {least:.2g}: rounding, or several truncations together?"
                found = "truncated", text, is_exact, {name.replace("-", "_"): value, "temperature": temperature}
    return found


def _truncated(e: _Evidence) -> Said | None:
    """Renormalized, no token has less than before, and the only one that is kept has all."""
    mean, sure = float(e.change.mean()), e.flat_b > -1e-7
    is_alike = any(_share(e.change >= -least) > 0.995 and mean > least for least in (_FLOAT32 / 10, e.rounding))
    if len(e.change) < 16 or not is_alike or mean < 10 * _FLOAT32:
        return None
    if sure.all():
        return "truncated", "b gives each token probability 1: it decodes greedily", True, {"top_k": 1}
    given = float(e.flat_a[sure].min().exp()) if sure.any() else 1.0
    if given < 0.999:
        text = f"b gives {count(int(sure.sum()), 'token')} probability 1 where a gives {given:.2g} and more: top-p, top-k or min-p?"
        return "truncated", text, False, {"top_p": given}
    kept = math.exp(-float(e.change.max()))
    text = f"b gives no token less than a: renormalized over what top-p, top-k or min-p keeps, {kept:.2g} of the probability or more?"
    return "truncated", text, False, {"top_p": kept}


def _temperature(e: _Evidence) -> Said | None:
    """Temperature moves likely tokens one way and unlikely ones the other; logits would have shown it."""
    if e.logits is not None:
        return None
    slope = _correlation(e.change, e.flat_a + e.flat_b)
    if len(e.change) < 64 or not abs(slope) > _SLOPE or e.size < _FLOAT32:
        return None
    along = e.change * slope
    if _share(along[e.flat_a >= _quantile(e.flat_a, 0.75)] > 0) < _SIGN or along[e.flat_a < _quantile(e.flat_a, 0.25)].mean() > 0:
        return None
    bound = 1 / _quantile((e.flat_b / e.flat_a)[e.flat_a < e.flat_a.median()], 0.02 if slope < 0 else 0.98)
    more, less = ("more", "less") if slope > 0 else ("less", "more")
    text = f"b is {more} sure of likely tokens and {less} of unlikely ones: a temperature {bound:.2g} times a's, or further from 1?"
    return "temperature", text, False, {"temperature": bound}


def _rounding(e: _Evidence) -> Said | None:
    if e.size > e.rounding:
        return None
    if e.size <= _FLOAT32:
        return "rounding", "as little as float32 in other kernels makes", True, {}
    if e.size > _ROUNDING:
        return (
            "rounding",
            "as much as noise= has, which is more than 16 bits usually make: was a's model, or noise='s, in train()?",
            False,
            {},
        )
    return "rounding", "as much as bfloat16 or float16 on one side makes; weights a few steps old may hide in it", False, {}


def _other_weights(e: _Evidence) -> Said:
    bad = e.bad_rows
    some = f", in {_named(bad)} of {len(e.rows)} alone" if 2 * len(bad) <= len(e.rows) else f", in {len(bad)} of {len(e.rows)} rows"
    some = "" if len(bad) == len(e.rows) else some
    if len(e.change) >= 16 and not _correlation(e.flat_a, e.flat_b) > _BETTER:
        text = f"the two have nothing in common{some}: other tokens or prompts, or weights that never arrived?"
        return "unrelated", text, False, {"rows": bad}
    return "other weights", f"rounding does not explain it{some}: stale or undelivered weights?", False, {"rows": bad}


_CAUSES: tuple[Callable[[_Evidence], Said | None], ...] = (
    *(_other_lengths, _equal, _candidate, _by_logits, _rescaled, _shifted, _few_wrong, _truncated, _temperature, _rounding),
    _other_weights,  # what is left
)
