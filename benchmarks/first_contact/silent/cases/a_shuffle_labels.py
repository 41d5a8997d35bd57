"""The inputs are shuffled, the labels are not.

Source: https://github.com/DrexelChatbotGroup/DrexelChatbot/issues/15 (and mlcommons/GaNDLF#870)
Truth: the loss stays at ln 10 = 2.30, the twin's falls
Could a tool know: no: labels without relation to the inputs are a hard task
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

centers = torch.randn(10, 20)


def batch(n=64):
    y = torch.randint(0, 10, (n,))
    return centers[y] + torch.randn(n, 20), y


X, Y = batch(2048)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(8):
    order = torch.randperm(2048)
    x = X[order]
    y = Y[order] if HEALTHY else Y
    for i in range(0, 2048, 64):
        loss = F.cross_entropy(model(x[i : i + 64]), y[i : i + 64])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, round(loss.item(), 4))
print("end: loss", round(loss.item(), 4))
