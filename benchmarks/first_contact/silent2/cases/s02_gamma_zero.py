"""RNN-VAE for motion; 'no scheduler' is written as StepLR(gamma=0), so after the first period the rate is 0 and training stops.
Source: https://github.com/LINCellularNeuroscience/VAME/issues/26
Truth: rate at the end, and whether weights moved in the last 50 steps.
Could a tool know: yes. The optimizer steps with lr 0 from step 100 on.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)

class RNNVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.GRU(4, 24, batch_first=True); self.mu = nn.Linear(24, 6); self.lv = nn.Linear(24, 6)
        self.dec = nn.GRU(6, 24, batch_first=True); self.out = nn.Linear(24, 4)
    def forward(self, x):
        h = self.enc(x)[1][0]; mu, lv = self.mu(h), self.lv(h)
        z = mu + torch.randn_like(mu) * (0.5 * lv).exp()
        y = self.out(self.dec(z[:, None].expand(-1, x.shape[1], -1))[0])
        return y, -0.5 * (1 + lv - mu ** 2 - lv.exp()).sum(1).mean()

model = RNNVAE(); opt = torch.optim.Adam(model.parameters(), 3e-3, amsgrad=True)
sched = torch.optim.lr_scheduler.StepLR(opt, step_size=20, gamma=1 if HEALTHY else 0, last_epoch=-1)
step = 0
for epoch in range(48):
    for _ in range(5):
        ph = torch.rand(32, 1, 4) * 6.28
        x = torch.sin(torch.arange(12.0)[None, :, None] * 0.5 + ph)
        y, kl = model(x); loss = F.mse_loss(y, x) + 1e-3 * kl
        opt.zero_grad(); loss.backward(); opt.step(); step += 1
    sched.step()
    if epoch == 38: old = [p.detach().clone() for p in model.parameters()]
moved = max((a - b).abs().max().item() for a, b in zip(old, model.parameters()))
print(f"TRUTH lr {opt.param_groups[0]['lr']} moved in the last 45 steps {moved:.2e} loss {loss:.4f}")
