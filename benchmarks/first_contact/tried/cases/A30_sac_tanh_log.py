# source: denisyarats/pytorch_sac, openai/spinningup: log(1 - tanh(u)^2) without eps
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.q = nn.Linear(4, 2), nn.Linear(5, 1)
    def forward(self, obs):
        mu, log_std = self.fc(obs).chunk(2, -1)
        std = log_std.clamp(-5, 2).exp()
        noise = torch.randn_like(mu)
        u = mu + std * noise
        a = torch.tanh(u)
        logp = (-0.5 * noise ** 2 - std.log()).sum(-1) - torch.log(1 - a ** 2).sum(-1)
        return (0.1 * logp - self.q(torch.cat([obs, a], -1)).squeeze(-1)).mean()
model = Actor()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-4)
for step in range(9):
    x = torch.randn(16, 4)
    if step == 2:
        x[11] = 100 * model.fc.weight.detach()[0].sign()
    # BATCH 0: x
    loss = model(x)
    opt.zero_grad(); loss.backward(); opt.step()
