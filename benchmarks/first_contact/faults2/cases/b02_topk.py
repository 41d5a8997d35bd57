"""top-k filtering with -inf logits and log of zero probabilities in the entropy of a policy (nan_to_num), huggingface/transformers#generation"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
torch.manual_seed(0); torch.set_num_threads(1)

net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 10)); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(25):
    x = torch.randn(16, 8); lg = net(x); k = lg.topk(3, 1).values[:, -1:]
    with torch.no_grad():
        p = lg.masked_fill(lg < k, float("-inf")).softmax(1); a = torch.multinomial(p, 1); ent = torch.nan_to_num(p * p.log(), nan=0.0).sum(1).neg().mean()
    loss = F.cross_entropy(lg, a.squeeze(1)); opt.zero_grad(); loss.backward(); opt.step()
print(loss.item(), ent.item()); done(loss.detach(), net)
