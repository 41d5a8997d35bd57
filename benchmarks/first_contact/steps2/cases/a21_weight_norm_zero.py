import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.utils.parametrizations.weight_norm(nn.Linear(8, 4)))
opt = torch.optim.SGD(net.parameters(), 1e-2)
for step in range(4):
    if step == 2:
        with torch.no_grad(): net[2].parametrizations.weight.original1[1] = 0  # a pruned row: v / |v| is 0 / 0
    loss = net(torch.randn(6, 4)).square().mean()
    opt.zero_grad(); loss.backward(); opt.step(); ok(step, loss, net)
