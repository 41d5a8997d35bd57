"""Optimizers that step inside backward by post-accumulate-grad hooks, gradients freed at once, peak of living gradients printed.

source: pytorch/pytorch PR 107063, pytorch/tutorials PR 2568
"""
import torch
from fcw import mlp, rng, say, seed, sha, watch, weights

seed(23)
model = mlp()
opts = {p: torch.optim.Adam([p], lr=1e-2, foreach=False) for p in model.parameters()}
order = []


def step_now(p):
    order.append((tuple(p.shape), p.grad is not None, sum(q.grad is not None for q in model.parameters())))
    opts[p].step()
    opts[p].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(step_now)
watch(model)
for step in range(4):
    loss = (model(torch.randn(4, 8)) - 1).square().mean()
    loss.backward()
    say(loss.item().hex(), order[-6:], [p.grad for p in model.parameters()])
say(sha(weights(model)), [sha(o.state_dict()) for o in opts.values()], rng())
