import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 1)
    def forward(self, x, y):
        p = torch.sigmoid(self.b(F.relu(self.a(x))))
        return -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()
net = Net().bfloat16(); opt = torch.optim.SGD(net.parameters(), 1e-2)
for step in range(4):
    if step == 2:
        with torch.no_grad(): net.b.bias.fill_(9.0)  # sure of itself
    loss = net(torch.randn(8, 4).bfloat16(), torch.randint(0, 2, (8, 1)).bfloat16())
    opt.zero_grad(); loss.backward(); opt.step()
    ok(step, loss, net)
