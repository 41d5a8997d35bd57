"""torch.compile by inductor of a part by nn.Module.compile() (set after the watch); results against themselves bare.

source: pytorch/pytorch PR 184969 (collection after compile), pytorch/pytorch#111733
meta: {"limit": 200, "compare": ["status", "stdout", "files", "left"]}
"""
import torch
from torch import nn
from fcw import grads, mlp, rng, say, seed, sha, watch, weights

seed(45)
model = nn.Sequential(nn.Identity(), nn.LayerNorm(8), nn.Identity())
model[0] = nn.Linear(8, 8)
model[2] = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
watch(model)
model[2].compile(dynamic=False)
opt = torch.optim.Adam(model.parameters(), 1e-2)


def loss_of(out, y):
    return nn.functional.smooth_l1_loss(out.softmax(-1), y) + out.var(0).sum() * 0.01


for step in range(6):
    x, y = torch.randn(4, 8), torch.rand(4, 4)
    loss = loss_of(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    say(loss.item().hex(), sha(grads(model)))
model.eval()
with torch.no_grad():
    say(sha(model(torch.ones(4, 8))))
say(sha(weights(model), opt.state_dict()), rng())
