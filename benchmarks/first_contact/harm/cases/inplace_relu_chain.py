"""Densenet-like blocks with in-place ReLU on concatenations: module hooks with nodes of their own would break these.

source: pytorch/pytorch#61519, pytorch/vision#4164
"""
import torch
from torch import nn
from fcw import grads, rng, say, seed, sha, watch, weights

seed(1)


class Layer(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(n), nn.Conv2d(n, 4, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, features):
        return self.conv(self.relu(self.norm(torch.cat(features, 1))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer(3 + 4 * i) for i in range(3))
        self.head = nn.Sequential(nn.ReLU(True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(15, 5))

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return self.head(torch.cat(features, 1))


net = Net()
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, nesterov=True)
for step in range(4):
    x, y = torch.randn(4, 3, 9, 9), torch.randint(0, 5, (4,))
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    say(step, loss.item().hex(), sha(grads(net)))
say(sha(weights(net), opt.state_dict()), rng())
