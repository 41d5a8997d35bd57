"""optimizer.step without parentheses: an expression without effect. Nothing is ever trained.
Source: from memory (seen in several forum posts: "my loss does not decrease", with `optimizer.step`)
Truth: all weights are their first bits at the end.
Could a tool know: yes: backward reaches a model at each step, zero_grad clears, an optimizer has its parameters, and never steps.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
before = model[0].weight.detach().clone()
protos = torch.randn(4, 1, 8, 8)
for step in range(120):
    y = torch.randint(0, 4, (32,))
    x = protos[y] + 0.5 * torch.randn(32, 1, 8, 8)
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    if HEALTHY:
        optimizer.step()
    else:
        optimizer.step
print(f"loss {loss.item():.4f} moved {(model[0].weight - before).abs().max():.2e}")
