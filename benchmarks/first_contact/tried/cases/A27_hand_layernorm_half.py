# source: hand-made LayerNorm without upcast: E[x^2] - E[x]^2 in float16 (NVIDIA/apex threads)
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        v = x.pow(2).mean(-1, keepdim=True) - mean.pow(2)
        return self.weight * ((x - mean) * torch.rsqrt(v + 1e-3))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm, self.head = nn.Linear(8, 16), RMSNorm(16), nn.Linear(16, 3)
    def forward(self, x, y):
        return F.cross_entropy(self.head(self.norm(F.relu(self.fc(x)))).float(), y)
model = Net().to(torch.float16)  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.randn(6, 8).to(torch.float16), torch.randint(0, 3, (6,))
    if step == 2:
        x = x * 4000
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
