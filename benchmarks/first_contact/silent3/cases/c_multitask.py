"""Healthy: three tasks drawn at random in each step, a shared trunk with heads of which only one runs in a step, learned uncertainty
weights (the loss may be negative), a detached probe that watches the trunk."""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Multi(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(16, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 64), nn.GELU())
        self.heads = nn.ModuleDict({"reg": nn.Linear(64, 2), "cls": nn.Linear(64, 4), "rank": nn.Linear(64, 1)})
        self.log_vars = nn.ParameterDict({k: nn.Parameter(torch.zeros(())) for k in self.heads})

    def forward(self, x, task):
        h = self.trunk(x)
        return self.heads[task](h), h


model, probe = Multi(), nn.Linear(64, 1)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
opt_p = torch.optim.Adam(probe.parameters(), lr=1e-2)
A, B, C = torch.randn(16, 2) * 0.2, torch.randn(16, 4), torch.randn(16, 1)
for step in range(500):
    task = ["reg", "cls", "rank"][int(torch.multinomial(torch.tensor([0.5, 0.4, 0.1]), 1))]
    x = torch.randn(48, 16)
    out, h = model(x, task)
    if task == "reg":
        raw = nn.functional.mse_loss(out, x @ A)
    elif task == "cls":
        raw = nn.functional.cross_entropy(out, (x @ B).argmax(1))
    else:
        s = (x @ C)[:, 0]
        raw = nn.functional.margin_ranking_loss(out[:24, 0], out[24:, 0], (s[:24] - s[24:]).sign(), margin=0.1)
    lv = model.log_vars[task]
    loss = raw * (-lv).exp() + 0.5 * lv
    opt.zero_grad()
    loss.backward()
    opt.step()
    lp = nn.functional.mse_loss(probe(h.detach()), x[:, :1])
    opt_p.zero_grad()
    lp.backward()
    opt_p.step()
print(f"loss {loss.item():.3f} log vars {[round(v.item(), 2) for v in model.log_vars.values()]} probe {lp.item():.3f}")
