# source: rosinality/glow-pytorch: logabs of a scale that is 0 after data-dependent init
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class ActNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.loc, self.scale = nn.Parameter(torch.zeros(d)), nn.Parameter(torch.ones(d))
    def forward(self, x):
        return self.scale * (x + self.loc), torch.log(torch.abs(self.scale)).sum()
class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.net = ActNorm(4), nn.Linear(2, 4)
    def forward(self, x):
        z, logdet = self.norm(x)
        a, b = z.chunk(2, -1)
        s, t = self.net(a).chunk(2, -1)
        s = torch.tanh(s)
        z = torch.cat([a, b * s.exp() + t], -1)
        return (0.5 * z ** 2).sum(-1).mean() - logdet - s.sum(-1).mean()
model = Flow()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(9):
    x = torch.randn(8, 4)
    if step == 2:
        with torch.no_grad():
            model.norm.scale[1] = 0
    # BATCH 0: x
    loss = model(x)
    opt.zero_grad(); loss.backward(); opt.step()
