import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# GNTPP 4: torch.sum without dim gives one number, which is multiplied by the mask
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.mu, self.lv, self.dec = nn.GRU(4, 24, batch_first=True), nn.Linear(24, 6), nn.Linear(24, 6), nn.Linear(6, 4)

    def forward(self, x):
        h, _ = self.rnn(x)
        mu, lv = self.mu(h), self.lv(h)
        return self.dec(mu + torch.randn_like(mu) * (0.5 * lv).exp()), mu, lv


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(100):
    x = torch.randn(16, 10, 4).cumsum(1) * 0.3
    length = torch.randint(4, 11, (16,))
    mask = (torch.arange(10)[None] < length[:, None]).float()
    r, mu, lv = net(x)
    rec = (((r - x) ** 2).sum(-1) * mask).sum() / mask.sum()
    k = 1 + lv - mu.pow(2) - lv.exp()
    kl = (-0.5 * torch.sum(k, dim=-1) if HEALTHY else -0.5 * torch.sum(k)) * mask
    loss = rec + 0.1 * kl.sum() / mask.sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(step, loss.item())
report(net)
