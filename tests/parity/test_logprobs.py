"""What is said of two sets of log-probabilities, beside oracles in NumPy."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from numscope import UsageError, compare_logprobs

BATCH, LENGTH, VOCABULARY = 8, 40, 100


def logits(seed: int = 0) -> Tensor:
    """Some positions are nearly certain, some nearly uniform."""
    draw = torch.Generator().manual_seed(seed)
    spread = 0.3 + 5 * torch.rand(BATCH, LENGTH, 1, generator=draw, dtype=torch.float64)
    return torch.randn(BATCH, LENGTH, VOCABULARY, generator=draw, dtype=torch.float64) * spread


def drawn(scores: Tensor, seed: int = 1) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.multinomial(scores.softmax(-1).view(-1, VOCABULARY), 1, generator=draw).view(BATCH, LENGTH)


def of(scores: Tensor, tokens: Tensor) -> Tensor:
    return scores.log_softmax(-1).gather(2, tokens[..., None])[..., 0]


def truncated(scores: Tensor, top_p: float = 1.0, top_k: int = VOCABULARY) -> Tensor:
    ranked, order = scores.softmax(-1).sort(-1, descending=True)
    left_out = (ranked.cumsum(-1) - ranked >= top_p) | (torch.arange(VOCABULARY) >= top_k)
    return scores.masked_fill(torch.zeros_like(left_out).scatter(-1, order, left_out), -torch.inf)


def noisy(given: Tensor, size: float, seed: int = 2) -> Tensor:
    return (given + size * torch.randn(given.shape, generator=torch.Generator().manual_seed(seed), dtype=given.dtype)).clamp(max=0)


A = logits()
TOKENS = drawn(A)
OWN = of(A, TOKENS)


def test_numbers_are_those_that_numpy_gives() -> None:
    other = of(logits() + 0.3 * logits(5), TOKENS)
    found = compare_logprobs(OWN, other)
    a, b = OWN.numpy().ravel(), other.numpy().ravel()
    ratio = np.exp(a - b)
    assert (found.num_tokens, found.num_clipped) == (a.size, int(np.sum(np.abs(ratio - 1) > 0.2)))
    told = [found.mean_abs, found.max_abs, found.k1, found.k3, found.mean_ratio, found.correlation]
    exact = [np.abs(b - a).mean(), np.abs(b - a).max(), (b - a).mean(), (ratio - 1 - (a - b)).mean(), ratio.mean(), np.corrcoef(a, b)[0, 1]]
    assert told == pytest.approx(exact, rel=1e-12)
    assert json.loads(json.dumps(found.document()))["kind"] == found.kind == "other weights" and not found


@pytest.mark.parametrize("form", [Tensor.float, Tensor.numpy, Tensor.tolist, lambda given: list(given), lambda given: given[:, 3:].T.T])
def test_forms_make_no_difference(form: Any) -> None:
    found = compare_logprobs(form(OWN), form(of(A, TOKENS)))
    assert found and found.kind == "equal"


def test_none_is_not_finite() -> None:
    row: list[float | None] = [*OWN[0].tolist()[:-1], None]
    found = compare_logprobs(OWN[:1], [row])
    assert (found.kind, found.evidence) == ("not finite", {"not_finite": [[0, LENGTH - 1]]})


@pytest.mark.parametrize("temperature", [0.6, 0.95, 1.1, 2.0])
def test_a_temperature_is_asked_about_and_proved_by_logits(temperature: float) -> None:
    tokens = drawn(A / temperature)
    told = of(A, tokens), of(A / temperature, tokens)
    alone, beside = compare_logprobs(*told), compare_logprobs(*told, tokens=tokens, logits=A)
    assert (alone.kind, alone.is_certain) == ("temperature", False)
    assert (alone.evidence["temperature"] - 1) * (temperature - 1) > 0
    assert (beside.kind, beside.is_certain) == ("temperature", True)
    assert beside.evidence["temperature"] == pytest.approx(temperature, rel=1e-3)


def test_the_trainers_own_temperature_is_told_too() -> None:
    told = of(A / 0.7, TOKENS), OWN
    found = compare_logprobs(*told, tokens=TOKENS, logits=A)
    assert found.text == "b's are of logits / 1, a's of logits / 0.7"


@pytest.mark.parametrize(
    ("kept", "words"),
    [({"top_p": 0.8}, "top-p 0.8"), ({"top_p": 0.95}, "top-p 0.95"), ({"top_k": 3}, "top-k 3"), ({"top_k": 30}, "top-k 30")],
)
def test_truncation_is_seen_and_its_bound_is_proved_by_logits(kept: Any, words: str) -> None:
    scores = truncated(A, **kept)
    tokens = drawn(scores)
    told = of(A, tokens), of(scores, tokens)
    assert compare_logprobs(*told).kind == "truncated"
    found = compare_logprobs(*told, tokens=tokens, logits=A)
    assert found.text == f"b's are renormalized over the {words} of logits" and found.is_certain


def test_greedy_decoding_gives_each_token_probability_1() -> None:
    tokens = A.argmax(-1)
    assert "decodes greedily" in compare_logprobs(of(A, tokens), torch.zeros_like(OWN)).text


@pytest.mark.parametrize("size", [1e-6, 0.002, 0.02])
def test_noise_of_the_size_that_formats_make_is_rounding(size: float) -> None:
    found = compare_logprobs(OWN, noisy(OWN, size), tokens=TOKENS, logits=A)
    assert found and found.kind == "rounding" and found.is_certain == (size < 1e-4)


def test_noise_that_is_given_sets_the_limit() -> None:
    other = noisy(OWN, 0.05)
    assert compare_logprobs(OWN, other).kind == "other weights"
    assert compare_logprobs(OWN, other, noise=noisy(OWN, 0.04, 3)).kind == "rounding"
    assert compare_logprobs(OWN, noisy(OWN, 0.01), noise=noisy(OWN, 1e-5, 3)).kind == "other weights"


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("size", [0.1, 0.5])
def test_other_weights_are_no_temperature_and_no_truncation(seed: int, size: float) -> None:
    scores = A + size * logits(seed + 10) / 3
    tokens = drawn(scores, seed)
    assert compare_logprobs(of(A, tokens), of(scores, tokens)).kind == "other weights"


def test_candidates_are_recognized() -> None:
    earlier = of(A + 0.3 * logits(5), TOKENS)
    candidates = {"the reference model": of(logits(6), TOKENS), "step 37": noisy(earlier, 1e-3)}
    found = compare_logprobs(OWN, earlier, candidates=candidates)
    assert (found.kind, found.evidence) == ("candidate", {"candidate": "step 37"}) and found.is_certain
    assert compare_logprobs(OWN, noisy(OWN, 1e-3), candidates={"the reference model": OWN}).kind == "rounding"


@pytest.mark.parametrize("shift", [-3, -1, 1, 2])
def test_a_shift_is_told_with_its_sign(shift: int) -> None:
    other = noisy(OWN, 1e-3).roll(-shift, 1)
    inner = torch.ones(BATCH, LENGTH)
    inner[:, : max(0, -shift)] = inner[:, LENGTH - max(0, shift) :] = 0
    found = compare_logprobs(OWN, other, mask=inner)
    assert (found.kind, found.evidence) == ("shifted", {"shift": shift})


@pytest.mark.parametrize(("at", "words"), [(0, "each is the first of its row"), (LENGTH - 6, "each is the last of its row")])
def test_wrong_tokens_at_the_ends_of_rows_are_a_mask_off_by_one(at: int, words: str) -> None:
    mask, other = torch.ones(BATCH, LENGTH), noisy(OWN, 1e-3)
    mask[:, LENGTH - 5 :] = 0
    other[:, at], other[:, LENGTH - 5 :] = -7.5, 0
    found = compare_logprobs(OWN, other, mask=mask)
    assert found.kind == "few tokens" and words in found.text and "b is -7.5 in all" in found.text
    assert found.evidence["places"] == [[row, at] for row in range(BATCH) if abs(OWN[row, at] + 7.5) > 0.5]


def test_wrong_tokens_are_named_by_their_ids() -> None:
    tokens, other = TOKENS.clone(), noisy(OWN, 1e-3)
    for row, at in ((1, 5), (2, 7), (6, 30)):
        tokens[row, at], other[row, at] = 99, OWN[row, at] - 4
    found = compare_logprobs(OWN, other, tokens=tokens)
    assert found.kind == "few tokens" and "token 99 in all" in found.text and found.evidence["places"] == [[1, 5], [2, 7], [6, 30]]


def test_rows_that_differ_alone_are_told() -> None:
    other = OWN.clone()
    other[[2, 5]] = of(A + 0.5 * logits(5), TOKENS)[[2, 5]]
    found = compare_logprobs(OWN, other)
    assert found.text == "rounding does not explain it, in rows 2, 5 of 8 alone: stale or undelivered weights?"
    assert found.evidence == {"rows": [2, 5]}


def test_what_has_nothing_in_common_is_told() -> None:
    assert compare_logprobs(OWN, of(logits(9), TOKENS)).kind == "unrelated"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda row: [*row, -0.1], "what both have agrees"),
        (lambda row: row[:-2], "what both have agrees"),
        (lambda row: [-1.0] * (3 + len(row) % 2) + row, "they agree from their ends on"),
        (lambda row: [-3.0 * (i % 3) for i in range(len(row) + 1)], "another tokenization, or other samples"),
    ],
)
def test_rows_of_other_lengths_are_told(change: Any, words: str) -> None:
    rows = [row[: LENGTH - i] for i, row in enumerate(OWN.tolist())]
    found = compare_logprobs(rows, [change(row) for row in rows])
    assert found.kind == "length" and words in found.text and found.evidence["rows"] == list(range(BATCH))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: compare_logprobs(-OWN, OWN), "a: got numbers above 0, expected log-probabilities"),
        (lambda: compare_logprobs(OWN, OWN[:3]), "got 8 and 3 rows, expected the same tokens in both"),
        (lambda: compare_logprobs(A, OWN), "a: got Tensor .3 dimensions., expected numbers .batch, length."),
        (lambda: compare_logprobs("ab", OWN), "a: got str .*expected numbers"),
        (lambda: compare_logprobs(OWN, OWN, mask=torch.ones(8, 3)), "mask: got other lengths than those of a's 8 rows"),
        (lambda: compare_logprobs(OWN, OWN, mask=torch.zeros_like(OWN)), "got no token that counts and is finite in both"),
        (lambda: compare_logprobs([], []), "got 0 and 0 rows, expected the same tokens in both"),
        (lambda: compare_logprobs(OWN[0], OWN[0].tolist()), "a: got Tensor .1 dimensions., expected numbers .batch, length."),
        (lambda: compare_logprobs(OWN, OWN, logits=A), "logits: got no tokens"),
        (lambda: compare_logprobs(OWN, OWN - 1, logits=A.roll(1, 1), tokens=TOKENS), "logits: got others than a's"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(wrong: Any, told: str) -> None:
    with pytest.raises(UsageError, match=f"compare_logprobs: {told}"):
        wrong()


def min_p(scores: Tensor, share: float) -> Tensor:
    chances = scores.softmax(-1)
    return scores.masked_fill(chances < share * chances.amax(-1, keepdim=True), -torch.inf)


def test_min_p_is_proved_by_logits_and_without_them_a_question() -> None:
    scores = min_p(A / 0.8, 0.2)
    told = of(A, tokens := drawn(scores)), of(scores, tokens)
    found = compare_logprobs(*told, tokens=tokens, logits=A)
    assert found.text == "b's are renormalized over the min-p 0.2 of logits / 0.8" and found.is_certain
    own = of(min_p(A, 0.2), tokens := drawn(min_p(A, 0.2)))
    alone = compare_logprobs(of(A, tokens), own)
    assert alone.kind == "truncated" and not alone.is_certain and "min-p" in alone.text


@pytest.mark.parametrize("seed", range(4))
def test_several_truncations_together_are_never_certain(seed: int) -> None:
    scores = truncated(truncated(logits(seed) / 0.75, top_k=25), top_p=0.9)
    tokens = drawn(scores, seed)
    found = compare_logprobs(of(logits(seed), tokens), of(scores, tokens), tokens=tokens, logits=logits(seed))
    assert not found and not found.is_certain


def test_a_temperature_that_logits_disprove_is_not_asked_about() -> None:
    tokens = drawn(scores := A / 0.8)
    other = noisy(of(scores, tokens), 0.06)
    assert compare_logprobs(of(A, tokens), other).kind == "temperature"
    assert compare_logprobs(of(A, tokens), other, tokens=tokens, logits=A).kind == "other weights"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a / np.log(2), "a's times 1.443: logarithms to base 2"),
        (lambda a: a / np.log(10), "a's times 0.4343: logarithms to base 10"),
        (lambda a: (a / 0.7).bfloat16().double(), "a's times 1.4"),
        (lambda a: a.cumsum(1), "the sums of a's up to each token"),
        (lambda a: a.sum(1, keepdim=True).expand_as(a), "each row's sum of a's"),
        (lambda a: a.mean(1, keepdim=True).expand_as(a), "each row's mean of a's"),
    ],
)
def test_other_units_are_told(change: Any, words: str) -> None:
    found = compare_logprobs(OWN, change(OWN))
    assert found.kind == "rescaled" and found.is_certain and found.text.startswith(f"b's are {words}")


def test_what_is_not_finite_does_not_hide_the_cause() -> None:
    tokens = drawn(A / 0.6)
    other = of(A / 0.6, tokens)
    other[3, 4] = -torch.inf
    found = compare_logprobs(of(A, tokens), other, tokens=tokens, logits=A)
    assert (found.kind, found.is_certain) == ("temperature", True) and found.evidence["not_finite"] == [[3, 4]]
    assert found.text.startswith("b's are of logits / 0.6; 1 number of b not finite where the other has finite ones")


def test_a_peaked_policy_whose_unlikely_tokens_are_left_out_is_no_temperature() -> None:
    logits = torch.zeros(BATCH, LENGTH, VOCABULARY)  # one token of about 0.8, the others of 0.0025 each
    logits[..., 0] = 6.0
    kept = logits.masked_fill(logits < 1, -torch.inf)
    tokens = drawn(logits)
    found = compare_logprobs(of(logits, tokens), of(kept, tokens), tokens=tokens, logits=logits)
    assert (found.kind, found.is_certain) == ("truncated", True)


def test_a_row_of_an_earlier_step_is_a_row_and_recognized_among_the_candidates() -> None:
    earlier, other = of(A + logits(5), TOKENS), noisy(OWN, 1e-3)
    other[6] = earlier[6]
    alone = compare_logprobs(OWN, other)
    assert (alone.kind, alone.evidence, alone.is_certain) == ("other weights", {"rows": [6]}, False) and "in row 6 of 8 alone" in alone.text
    found = compare_logprobs(OWN, other, candidates={"step 2": of(logits(6), TOKENS), "step 0": earlier})
    assert found.kind == "candidate" and found.evidence == {"candidate": "step 0", "rows": [6]} and found.is_certain
    assert found.text.startswith('b agrees with "step 0" in row 6 alone')


def test_dropout_in_the_noise_leaves_nothing_certain() -> None:
    kept = torch.rand(OWN.shape, generator=torch.Generator().manual_seed(4)) > 0.2
    other, noise = OWN.where(kept, OWN * 2), OWN.where(kept.roll(1, 1), OWN * 2)
    other[2, 7] -= 60
    found = compare_logprobs(OWN, other, noise=noise)
    assert found.kind == "rounding" and not found.is_certain and "in train()?" in found.text


def test_few_tokens_are_certain_only_where_the_others_agree() -> None:
    other = noisy(OWN, 1e-3)
    other[1, 5], other[2, 8] = OWN[1, 5] - 6, OWN[2, 8] - 0.4
    found = compare_logprobs(OWN, other)
    assert (found.kind, found.is_certain) == ("few tokens", False) and "the others by 0.4" in found.text


def test_rows_are_named_only_where_they_are_the_fewer() -> None:
    other = of(A + 0.5 * logits(5), TOKENS)
    other[[0, 4]] = OWN[[0, 4]]
    assert compare_logprobs(OWN, other).text == "rounding does not explain it, in 6 of 8 rows: stale or undelivered weights?"


@given(st.lists(st.lists(st.floats(-50, 0) | st.none(), max_size=6), min_size=1, max_size=4), st.integers(0, 2**32))
def test_any_numbers_get_a_verdict(rows: list[list[float | None]], seed: int) -> None:
    draw = np.random.default_rng(seed)
    others = [[-float(draw.exponential()) for _ in range(draw.integers(0, 7))] for _ in rows]
    try:
        found = compare_logprobs(rows, others)
    except UsageError as error:
        assert "no token" in str(error)
    else:
        assert str(found) and found.num_tokens > 0 and bool(found) == (found.kind in ("equal", "rounding"))
        assert found.k3 >= -1e-9 and found.max_abs >= found.mean_abs * (1 - 1e-9)


def test_no_generator_moves_and_nothing_is_changed() -> None:
    state, before = torch.get_rng_state(), OWN.clone()
    compare_logprobs(OWN, noisy(OWN, 0.1), tokens=TOKENS, logits=A, candidates={"x": OWN})
    assert torch.equal(torch.get_rng_state(), state) and torch.equal(OWN, before)
