"""input has nan for missing features; the model's first layer imputes them with a learned value and a mask (GRU-D style)"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
torch.manual_seed(0); torch.set_num_threads(1)

class Impute(nn.Module):
    def __init__(self, d):
        super().__init__(); self.fill = nn.Parameter(torch.zeros(d))
    def forward(self, x):
        m = torch.isnan(x); return torch.cat([torch.where(m, self.fill, x), m.float()], -1)
net = nn.Sequential(Impute(6), nn.GRU(12, 16, batch_first=True)); o = nn.Linear(16, 1); opt = torch.optim.Adam([*net.parameters(), *o.parameters()], 1e-3)
for step in range(25):
    x = torch.randn(8, 10, 6).masked_fill(torch.rand(8, 10, 6) < 0.2, float("nan")); loss = F.mse_loss(o(net(x)[0][:, -1]).squeeze(1), torch.nan_to_num(x).sum((1, 2))); opt.zero_grad(); loss.backward(); opt.step()
print(loss.item()); done(loss.detach(), net, o)
