# source: huggingface/trl PPO threads: exp(logprob - old_logprob) overflows
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class PPO(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.pi = nn.GRU(4, 8, batch_first=True), nn.Linear(8, 3)
    def forward(self, obs, act, old, adv):
        logp = self.pi(self.gru(obs)[0]).log_softmax(-1).gather(-1, act[..., None]).squeeze(-1)
        ratio = torch.exp(logp - old)
        return -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
model = PPO()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    x, a = torch.randn(6, 5, 4), torch.randint(0, 3, (6, 5))
    old, adv = -torch.rand(6, 5) - 0.5, torch.randn(6, 5)
    if step == 2:
        old[4, 2], adv[4, 2] = -200.0, -1.0
    # BATCH 0: x, a, old, adv
    loss = model(x, a, old, adv)
    opt.zero_grad(); loss.backward(); opt.step()
