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
    "equal", "rounding", "length", "not finite", "candidate", "shifted", "few tokens", "temperature", "truncated", "unrelated",
    "other weights",
]  # fmt: skip
Said = tuple[Kind, str, bool, dict[str, Any]]  # the last of a comparison's first fields: whether it is certain, and the evidence
_WHERE = "compare_logprobs"
_CLIP = 0.2  # of the ratio, on both sides of 1: what PPO and GRPO clip by default
_ABOVE = 1e-2  # 0 as a log-probability, rounded
_ROUNDING, _FLOAT32 = 0.03, 1e-4  # mean |Δ| that bfloat16, and float32, in one of two engines make at most
_MARGIN = 3  # times the noise is still noise
_BETTER = 0.2  # of the difference, what an explanation leaves of it at most
_SHIFTS = [shift for by in range(1, 9) for shift in (by, -by)]
_FEW, _WRONG, _BEYOND = 0.9, 0.5, 30  # tokens are wrong by more than the second, and than so many times the others' decile
_SLOPE, _SIGN = 0.4, 0.9  # of a temperature: correlation of the difference with the mean of both; share of likely tokens that move alike
_MOST, _TOP = 64, 1024  # tokens whose logits are read; of each the largest
_TEMPERATURES = (1.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.5, 2.0)  # customary beside top-p and top-k
_TOP_P = (*(p / 100 for p in range(1, 100)), 0.995, 0.999)


@dataclass(frozen=True, slots=True)
class LogprobsComparison:
    """How b's log-probabilities differ from a's; true where they are equal, or rounding explains the difference.

    Args:
        kind: ``equal``; ``rounding`` of other kernels or another dtype; ``length``: rows of other lengths; ``not finite``; ``candidate``:
            b's are those of one of ``candidates``; ``shifted`` by some positions; ``few tokens`` are wrong; ``temperature``; ``truncated``
            and renormalized (top-p, top-k); ``unrelated``; ``other weights``: stale or undelivered.
        text: a sentence; a question where ``is_certain`` is False, since the numbers only suggest it.
        evidence: the text's numbers: ``temperature``, ``top_p``, ``top_k``, ``shift``, ``candidate``, ``rows``, ``places`` (row, position).
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
        """As JSON-ready values."""
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
        candidates: by label, what the engine may have instead: of the reference model (the weights without the adapter), an earlier step.

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
        said, ratio = next(said for cause in _CAUSES if (said := cause(e)) is not None), (-e.change).exp()
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
    """What there is to judge by: a, b, tokens, noise, candidates [batch, length] in float64, nan where a row has ended; logits by row.

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

    def explains(self, change: Tensor) -> bool:
        """Whether so little is left of the difference."""
        return _size(change) <= min(_BETTER * self.size, self.rounding)

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


def _not_finite(e: _Evidence) -> Said | None:
    for name, given, other in (("b", e.b, e.a), ("a", e.a, e.b)):
        if (bad := e.counts & ~given.isfinite() & other.isfinite()).any():
            hint = ": top-p, top-k or a grammar excludes tokens so" if given[bad].isinf().any() else ""
            text = f"{count(int(bad.sum()), 'number')} of {name} not finite where the other has finite ones{hint}"
            return "not finite", text, True, {"places": bad.nonzero().tolist()}
    return None


def _equal(e: _Evidence) -> Said | None:
    return None if e.size else ("equal", "all numbers are equal", True, {})


def _candidate(e: _Evidence) -> Said | None:
    for label, given in e.candidates.items():
        if e.explains(left := (e.b - given)[e.both]):
            text = f"b's are those of {label}: mean |Δ| {_size(left):.2g} to these, {e.size:.2g} to a's"
            return "candidate", text, True, {"candidate": label}
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
    if not wrong.any() or _size(size[~wrong]) > e.rounding:
        return None
    where = torch.zeros_like(e.both)
    where[e.both] = wrong
    places, counts, values = where.nonzero().tolist(), e.counts.long(), set(e.b[where].tolist())
    ids = set() if e.tokens is None else {f"{one:.0f}" for one in e.tokens[where].tolist()}
    ends = {"first": counts.argmax(1), "last": counts.cumsum(1).argmax(1)}
    hints = [f"each is the {end} of its row: a mask off by one?" for end, at in ends.items() if all(t == int(at[row]) for row, t in places)]
    hints += [f"token {' or '.join(sorted(ids))} in all: padding or special?"] if 0 < len(ids) <= 3 else []
    hints += [f"b is {values.pop():.3g} in all"] if len(places) > len(values) == 1 else []
    hints = hints or [f"(row, position) {few([f'({row}, {at})' for row, at in places], 4)}"]
    text = f"{len(places)} of {count(len(size), 'token')} differ by up to {size.max():.2g}, the others by {size[~wrong].max():.2g}"
    return "few tokens", "; ".join([text, *hints]), True, {"places": places}


def _by_logits(e: _Evidence) -> Said | None:
    """Temperature, top-p and top-k, of which the logits leave no doubt."""
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
    if e.explains(left(b, other)) and abs(math.log(other / own)) > 1e-3:
        text = f"b's are of logits / {other:.4g}" + ("" if own == 1 else f", a's of logits / {own:.4g}")
        return "temperature", text, True, {"temperature": other, "temperature_of_a": own}
    found: Said | None = None
    best = math.inf
    for temperature in (own, *_TEMPERATURES):
        scaled = logits / temperature
        kept = (scaled.topk(min(_TOP, scaled.shape[1])).values - scaled.logsumexp(1, keepdim=True)).exp().cumsum(1)
        within = torch.searchsorted(kept, torch.tensor(_TOP_P, dtype=torch.float64).repeat(len(kept), 1)).clamp(max=kept.shape[1] - 1)
        for name, masses in (("top-k", kept), ("top-p", kept.gather(1, within))):
            rest = (left(b, temperature)[:, None] + masses.log()).abs().mean(0)
            least, index = float(rest.min()), int(rest.argmin())
            if best > _FLOAT32 and least < best / 2 and e.explains(rest[index]):
                best, value = least, index + 1 if name == "top-k" else _TOP_P[index]
                text = f"b's are renormalized over the {name} {value} of logits" + ("" if temperature == 1 else f" / {temperature:.4g}")
                found = "truncated", text, True, {name.replace("-", "_"): value, "temperature": temperature}
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
        text = f"b gives {count(int(sure.sum()), 'token')} probability 1 where a gives {given:.2g} and more: only top-p or top-k does so"
        return "truncated", text, True, {"top_p": given}
    kept = math.exp(-float(e.change.max()))
    text = f"b gives no token less than a: renormalized over what top-p or top-k keeps, {kept:.2g} of the probability or more?"
    return "truncated", text, False, {"top_p": kept}


def _temperature(e: _Evidence) -> Said | None:
    """Temperature moves likely tokens one way and unlikely ones the other."""
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
        return "rounding", "no more than float32 in other kernels makes", True, {}
    return "rounding", "no more than 16 bits in one of them make; weights of few steps ago may hide in it", False, {}


def _other_weights(e: _Evidence) -> Said:
    sizes = {row: _size((e.b - e.a)[row][both]) for row, both in enumerate(e.both) if both.any()}
    bad = [row for row, size in sizes.items() if size > e.rounding]
    some = f", in rows {few(list(map(str, bad)), 8)} of {len(sizes)} alone" if len(bad) < len(sizes) else ""
    if len(e.change) >= 16 and not _correlation(e.flat_a, e.flat_b) > _BETTER:
        text = f"the two have nothing in common{some}: other tokens or prompts, or weights that never arrived?"
        return "unrelated", text, False, {"rows": bad}
    return "other weights", f"rounding does not explain it{some}: stale or undelivered weights?", False, {"rows": bad}


_CAUSES: tuple[Callable[[_Evidence], Said | None], ...] = (
    *(_other_lengths, _not_finite, _equal, _candidate, _shifted, _few_wrong, _by_logits, _truncated, _temperature, _rounding),
    _other_weights,  # what is left
)
