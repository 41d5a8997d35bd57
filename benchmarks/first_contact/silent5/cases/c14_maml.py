import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# first-order meta-learning on sine waves: adapted copies, one optimizer for the slow weights
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))

    def forward(self, x):
        return self.body(x)


slow = Net()
opt = torch.optim.Adam(slow.parameters(), lr=1e-3)
for step in range(300):
    amp, ph = 0.5 + 3 * torch.rand(()), 3.14 * torch.rand(())
    fast = copy.deepcopy(slow)
    inner = torch.optim.SGD(fast.parameters(), lr=0.02)
    x = torch.rand(10, 1) * 10 - 5
    for _ in range(2):
        l = F.mse_loss(fast(x), amp * torch.sin(x + ph))
        inner.zero_grad(); l.backward(); inner.step()
    x = torch.rand(10, 1) * 10 - 5
    loss = F.mse_loss(fast(x), amp * torch.sin(x + ph))
    fast.zero_grad(); loss.backward()
    for p, f in zip(slow.parameters(), fast.parameters()):
        p.grad = f.grad.clone()
    opt.step()
print("steps", 300)
report(slow)
