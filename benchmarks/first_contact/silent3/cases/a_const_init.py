"""All weights are initialized with one constant (nn.init.constant_): all units of a layer stay equal for ever.
Source: from memory (a common beginner's question: "initialize weights with a constant, network does not learn")
Truth: all rows of the hidden layers are equal at the end; the net has one unit a layer.
Could a tool know: yes: all rows of several weights are bit for bit equal, and so are their gradients.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))


def init(m):
    if isinstance(m, nn.Linear):
        if HEALTHY:
            nn.init.xavier_uniform_(m.weight)
        else:
            nn.init.constant_(m.weight, 0.1)
        nn.init.zeros_(m.bias)


model.apply(init)
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
w = torch.randn(8, 4)
for step in range(150):
    x = torch.randn(64, 8)
    loss = nn.functional.cross_entropy(model(x), (x @ w).argmax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.4f} largest difference of two rows {(model[0].weight - model[0].weight[:1]).abs().max():.2e}")
