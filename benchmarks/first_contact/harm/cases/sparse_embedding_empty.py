"""Sparse gradients with SparseAdam and Adagrad, a batch that touches only padding, and uncoalesced gradients read by a hook.

source: pytorch/pytorch#82486, pytorch/pytorch#101370
"""
import torch
from torch import nn
from fcw import rng, say, seed, sha, watch, weights

seed(18)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Embedding(30, 5, padding_idx=0, sparse=True)
        self.b = nn.EmbeddingBag(30, 5, mode="sum", sparse=True)
        self.out = nn.Linear(5, 1)

    def forward(self, i):
        return self.out(self.a(i).mean(1) + self.b(i))


net = Net()
watch(net)
seen = []
net.a.weight.register_hook(lambda g: seen.append((g.is_sparse, g.is_coalesced(), g._nnz())))
sparse = torch.optim.SparseAdam([net.a.weight], lr=0.05)
bag = torch.optim.Adagrad([net.b.weight], lr=0.05)
dense = torch.optim.SGD(net.out.parameters(), 0.1)
for step in range(6):
    i = torch.randint(0, 30, (4, 3)) if step != 3 else torch.zeros(4, 3, dtype=torch.long)
    loss = (net(i) - 1).square().mean()
    for o in (sparse, bag, dense):
        o.zero_grad()
    loss.backward()
    g = net.a.weight.grad
    say(loss.item().hex(), g.layout, g.is_coalesced(), g._nnz(), sha(g.coalesce()))
    for o in (sparse, bag, dense):
        o.step()
say(seen, sha(weights(net)), sha(sparse.state_dict()), rng())
