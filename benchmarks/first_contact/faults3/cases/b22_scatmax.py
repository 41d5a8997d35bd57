"""Segment maximum by scatter_reduce from -inf; empty segments are replaced by 0 before they are used; beam scores start at -inf.
Source: rusty1s/pytorch_scatter scatter_max, pyg MaxAggregation; fairseq/OpenNMT beam search (-inf scores)."""
import math, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(22)
enc, head = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 16)), nn.Linear(16, 2)
params = [*enc.parameters(), *head.parameters()]
opt = torch.optim.AdamW(params, lr=1e-2)


def segment_max(x, index, n):
    out = torch.full((n, x.shape[1]), float("-inf")).scatter_reduce(0, index[:, None].expand_as(x), x, "amax")
    return torch.where(out == float("-inf"), torch.zeros_like(out), out)


@torch.no_grad()
def beam(logits, width=3):
    scores = torch.full((width,), float("-inf"))
    scores[0] = 0.0
    for row in logits.log_softmax(-1):
        scores = (scores[:, None] + row).flatten().topk(width)[0]
    return scores


losses = []
for step in range(40):
    x, index = torch.randn(120, 5), torch.randint(0, 30, (120,))
    index[index == 11] = 12  # an empty group
    y = torch.zeros(30).scatter_reduce(0, index, x[:, 0], "amax") > 0.9
    logits = head(segment_max(enc(x), index, 30))
    loss = nn.functional.cross_entropy(logits, y.long())
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    best = beam(logits[:4])
print(best, losses[0], losses[-1], "FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in params))
