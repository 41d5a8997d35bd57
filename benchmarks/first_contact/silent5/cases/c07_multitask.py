import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# three tasks of different scale with learned weights; one task's labels come seldom
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(48, 5), nn.Linear(48, 1), nn.Linear(48, 1)])
        self.log_var = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        h = self.body(x)
        return [f(h) for f in self.heads]


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
A, b = torch.randn(16, 5), torch.randn(16)
for step in range(500):
    x = torch.randn(32, 16)
    o = net(x)
    ls = [F.cross_entropy(o[0], (x @ A).argmax(1)), F.mse_loss(o[1].squeeze(1), 30 * torch.tanh(x @ b))]
    ls.append(F.binary_cross_entropy_with_logits(o[2].squeeze(1), (x[:, 0] > 1.5).float()) if step % 5 == 0 else torch.zeros(()))
    loss = sum(l * (-v).exp() + v for l, v in zip(ls, net.log_var))
    opt.zero_grad(); loss.backward(); opt.step()
print("steps", 500)
report(net)
