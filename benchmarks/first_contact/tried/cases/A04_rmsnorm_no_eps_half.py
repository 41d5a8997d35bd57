# source: meta-llama/llama RMSNorm ports without the float() and with eps=1e-8 in float16
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-8):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(d))
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.norm, self.head = nn.Embedding(20, 16), RMSNorm(16), nn.Linear(16, 20)
    def forward(self, x, y):
        return F.cross_entropy(self.head(self.norm(self.emb(x))).flatten(0, 1), y.flatten())
model = Net()
with torch.no_grad():
    model.emb.weight[0] = 0  # a padding row
model = model.to(torch.float16)  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.randint(1, 20, (4, 6)), torch.randint(0, 20, (4, 6))
    if step == 2:
        x[1, 4:] = 0
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
