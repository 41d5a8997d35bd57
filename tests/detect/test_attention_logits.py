"""The largest logit of fused attention: what a softmax that is written out would get."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import numscope
from numscope.detect import low_precision
from numscope.detect.low_precision import AttentionLogits, largest_logit


def by_hand(q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor | None, is_causal: bool, scale: float | None) -> float:
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    logits = q.double() @ k.double().mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        logits = logits.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else logits + mask
    if is_causal:
        logits = logits.masked_fill(~torch.ones(logits.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    return float(logits.max())


@pytest.mark.parametrize("most", [1, 40, 1 << 24])
@pytest.mark.parametrize("mask", [None, "bool", "added", "causal"])
@pytest.mark.parametrize(("heads", "scale"), [((4, 4), None), ((4, 2), 0.7), ((4, 1), None)])
def test_it_is_that_of_the_whole_matrix(
    heads: tuple[int, int], scale: float | None, mask: str | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(low_precision, "_MOST_LOGITS", most)
    torch.manual_seed(0)
    q, k = torch.randn(2, heads[0], 7, 8), torch.randn(2, heads[1], 7 if mask == "causal" else 9, 8)
    given = {"bool": torch.rand(2, 1, 7, 9) > 0.5, "added": torch.randn(7, 9)}.get(mask or "")
    found: dict[str, float] = {}
    with AttentionLogits(lambda: "attention", found):
        F.scaled_dot_product_attention(q, k, k, given, is_causal=mask == "causal", scale=scale, enable_gqa=heads[0] != heads[1])
    expected = by_hand(q, k, given, mask == "causal", scale)
    assert found == {"attention": pytest.approx(expected, rel=1e-6)}
    assert largest_logit(q, k, given, mask == "causal", scale) == pytest.approx(expected, rel=1e-6)


class Attends(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.calm, self.hot = (nn.MultiheadAttention(16, 2, batch_first=True) for _ in range(2))
        nn.init.constant_(self.hot.in_proj_bias, scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in (self.calm, self.hot):
            x = x + layer(x, x, x, need_weights=False)[0]
        return x.square().mean()


def test_the_layer_with_the_largest_is_in_the_checks_line(capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    net = Attends(6.0)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    with numscope.watch(net, check="precision:at=1", alerts="note"):
        for _ in range(3):
            with torch.autocast("cpu", torch.bfloat16):
                loss = net(torch.randn(4, 5, 16))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    [line] = [line for line in capfd.readouterr().err.splitlines() if "changes the gradient by" in line]
    assert line.endswith("(of hot)") and 80 < float(line.split("the largest attention logit is ")[1].split()[0]) < 130
