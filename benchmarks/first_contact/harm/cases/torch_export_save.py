"""torch.export of a model in training, strict and not, saved as .pt2; the graph, the signature and what it computes.

source: pytorch/pytorch#167329, huggingface/diffusers#14135
meta: {"ignore": ["*.pt2"], "limit": 120}
"""
import inspect
import torch
from torch import nn
from fcw import mlp, rng, say, seed, sha, train, watch, weights

seed(16)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.bias = mlp(), nn.Parameter(torch.zeros(4))

    def forward(self, hidden, timestep, scale=None):
        out = self.body(hidden) + timestep.sum() + self.bias
        return out if scale is None else out * scale


net = Net()
watch(net)
opt = torch.optim.Adam(net.parameters(), 1e-2)
for part in range(2):
    for step in range(2):
        loss = net(torch.randn(3, 8), torch.ones(1)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    say(inspect.signature(net.forward))
    for strict in (False, True):
        ep = torch.export.export(net, (torch.randn(3, 8),), {"timestep": torch.ones(1)}, strict=strict)
        say(strict, ep.graph_module.code.replace("\n\n", "\n"), list(ep.state_dict), sha(ep.module()(torch.ones(3, 8), timestep=torch.ones(1))))
    torch.export.save(ep, "net.pt2")
say(sha(weights(net)), rng())
