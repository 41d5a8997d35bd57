"""F.dropout without training=self.training: it is active in evaluation too.

Source: https://github.com/delip/PyTorchNLPBook/issues/28
Truth: in eval mode the same input gives two outputs
Could a tool know: yes: dropout runs in a module whose training is False
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



class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(20, 128), nn.Linear(128, 10)

    def forward(self, x):
        h = F.relu(self.fc1(x))
        h = F.dropout(h, 0.5, training=self.training) if HEALTHY else F.dropout(h, 0.5)
        return self.fc2(h)


model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(250):
    model.train()
    x, y = batch()
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        model.eval()
        with torch.no_grad():
            right = [(model(x).argmax(1) == y).sum().item() for x, y in (batch() for _ in range(6))]
        print(step, round(loss.item(), 4), "accuracy", sum(right) / 384)
with torch.no_grad():
    print("end: two calls in eval are equal", torch.equal(model(x), model(x)))
