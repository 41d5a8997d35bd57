import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 16)
        self.router = nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        h = self.embed(x)
        gate = self.router(h).softmax(-1)
        choice = gate.argmax(-1)
        out, balance = torch.zeros_like(h), 0.0
        for i, expert in enumerate(self.experts):
            chosen = choice == i
            out[chosen] = expert(h[chosen]) * gate[chosen, i, None]
            balance = balance + gate[chosen, i].mean()
        return out, balance


model = Experts()
with torch.no_grad():
    model.router.bias[3] = -20.0
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(6):
    out, balance = model(torch.randn(32, 8))
    loss = out.square().mean() + 0.01 * balance
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
