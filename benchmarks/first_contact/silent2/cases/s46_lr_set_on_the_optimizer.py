"""The rate is lowered by `optimizer.lr = ...`, which is an attribute that nothing reads.
Source: invented (a slip from Keras, where optimizer.lr is the rate)
Truth: the rate of the parameter groups.
Could a tool know: yes. An optimizer has an attribute lr that differs from all groups' rates.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 8)); optimizer = torch.optim.SGD(net.parameters(), 0.3, momentum=0.9); W = torch.randn(8, 8) * 0.4
for step in range(160):
    if step and step % 40 == 0:
        new = 0.3 * 0.1 ** (step // 40)
        if HEALTHY:
            for g in optimizer.param_groups: g["lr"] = new
        else: optimizer.lr = new
    x = torch.randn(32, 8); loss = F.mse_loss(net(x), torch.sin(x @ W)); optimizer.zero_grad(); loss.backward(); optimizer.step()
print(f"TRUTH rate {optimizer.param_groups[0]['lr']:.1e} loss {loss:.4f}")
