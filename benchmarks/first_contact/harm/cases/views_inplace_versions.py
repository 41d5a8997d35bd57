"""In-place writes to views of activations and leaves under no_grad, version counters printed, errors of stale saves the same.

source: pytorch/pytorch#839, pooya-mohammadi/yolov5-gradcam#7
meta: {"compare": ["status", "stdout", "files", "left", "tmp"]}
"""
import torch
from torch import nn
from fcw import grads, rng, say, seed, sha, watch, weights

seed(49)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.m = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = self.l(x)
        a, b = h.chunk(2, 1)
        h[:, :2] *= 2
        v = h.view(-1)[::3]
        v.add_(0.25)
        h.t()[3].zero_()
        h.select(1, 5).copy_(x[:, 0])
        h = h.index_fill(1, torch.tensor([7]), 0.5).squeeze_().unsqueeze_(0).squeeze(0)
        self.versions = [t._version for t in (x, h, self.l.weight, self.l.bias)]
        return self.m(h.tanh_())


net = Net()
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(4):
    loss = net(torch.randn(5, 6)).square().mean()
    opt.zero_grad()
    loss.backward()
    with torch.no_grad():
        net.l.weight[0].mul_(0.99)
        net.m.weight.view(-1)[:2] = 0.1
    opt.step()
    say(loss.item().hex(), net.versions, [p._version for p in net.parameters()], sha(grads(net)))
try:
    y = net(torch.ones(2, 6))
    with torch.no_grad():
        net.m.weight.add_(1)
    y.sum().backward()
except RuntimeError as e:
    say(str(e)[:150])
y = nn.functional.relu(net.l(torch.ones(1, 6)))
y.detach().mul_(2)
try:
    y.sum().backward()
    say("no error")
except RuntimeError as e:
    say(str(e)[:100])
say(sha(weights(net)), rng())
