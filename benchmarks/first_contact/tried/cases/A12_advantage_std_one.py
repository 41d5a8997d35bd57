# source: PPO threads (openai/baselines, vwxyzjn/cleanrl): adv.std() of a minibatch of one is nan
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi, self.v = nn.Linear(4, 2), nn.Linear(4, 1)
    def forward(self, obs, act, ret):
        adv = ret - self.v(obs).squeeze(-1)
        norm = (adv - adv.mean()) / (adv.std() + 1e-8)
        logp = self.pi(obs).log_softmax(-1).gather(1, act[:, None]).squeeze(1)
        return -(norm.detach() * logp).mean() + adv.square().mean()
model = Agent()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    n = 1 if step == 2 else 8  # the last minibatch
    x, a, r = torch.randn(n, 4), torch.randint(0, 2, (n,)), torch.randn(n)
    # BATCH 0: x, a, r
    loss = model(x, a, r)
    opt.zero_grad(); loss.backward(); opt.step()
