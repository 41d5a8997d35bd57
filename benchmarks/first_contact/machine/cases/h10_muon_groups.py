# opts: --check again:every=1
# truth: healthy (KellerJordan/modded-nanogpt: torch.optim.Muon for matrices, AdamW for the rest, OneCycleLR, lr groups, a parameter frozen midway)
import flips as C, torch
from torch import nn
torch.manual_seed(0); m = nn.Sequential(nn.Embedding(30, 16), nn.Linear(16, 32), nn.SiLU(), nn.RMSNorm(32), nn.Linear(32, 30))
M = [p for n, p in m.named_parameters() if p.ndim == 2 and n[0] != "0"]; R = [p for n, p in m.named_parameters() if not (p.ndim == 2 and n[0] != "0")]
a, b = torch.optim.Muon(M, 0.02, momentum=0.95), torch.optim.AdamW([{"params": R[:1], "lr": 1e-3}, {"params": R[1:], "weight_decay": 0}], 1e-3, capturable=False); s = torch.optim.lr_scheduler.OneCycleLR(b, 1e-2, total_steps=8)
for C.STEP in range(7):
    x = torch.randint(0, 30, (4, 6)); nn.functional.cross_entropy(m(x).flatten(0, 1), x.roll(1, 1).flatten()).backward()
    if C.STEP == 4: m[1].bias.requires_grad_(False); m[1].bias.grad = None
    a.step(); b.step(); s.step(); a.zero_grad(); b.zero_grad()
C.finish(m, a, b)
