# source: sthalles/SimCLR fp16 threads: exp(sim / temperature) in float16
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class SimCLR(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 8)
    def forward(self, a, b):
        u, v = F.normalize(self.net(a), dim=-1), F.normalize(self.net(b), dim=-1)
        sim = u @ v.t()
        e = torch.exp(sim / 0.05)
        return -(e.diag() / e.sum(1)).log().mean()
model = SimCLR().to(torch.float16)  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(9):
    x = torch.randn(8, 8).to(torch.float16)
    b = torch.randn(8, 8).to(torch.float16) if step != 2 else x.clone()
    # BATCH 0: x, b
    loss = model(x, b)
    opt.zero_grad(); loss.backward(); opt.step()
