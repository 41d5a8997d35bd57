import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(16, 4, bias=False), nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        gate = self.router(x).softmax(-1)
        return x + sum(gate[..., i, None] * e(x) for i, e in enumerate(self.experts))


model = nn.Sequential(nn.Linear(8, 16), MoE(), nn.Linear(16, 2)).bfloat16()
with torch.no_grad():
    model[1].router.weight.mul_(8e4).clamp_(-6e4, 6e4)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for step in range(6):
    loss = F.cross_entropy(model(torch.randn(8, 8).bfloat16()).float(), torch.randint(0, 2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
