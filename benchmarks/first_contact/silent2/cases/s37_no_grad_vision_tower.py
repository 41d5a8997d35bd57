"""Vision-language fine-tuning: the vision tower is to be trained and is in the optimizer, but its forward has @torch.no_grad().
Source: https://github.com/BAAI-DCAI/Bunny/issues/130
Truth: the tower does not move.
Could a tool know: yes. Trainable parameters in the optimizer, used in the forward, have no gradient.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
class Tower(nn.Module):
    def __init__(self): super().__init__(); self.c = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.GELU(), nn.Conv2d(16, 32, 1))
    def run(self, x): return self.c(x).flatten(2).transpose(1, 2)
    forward = run if HEALTHY else torch.no_grad()(run)
class VLM(nn.Module):
    def __init__(self):
        super().__init__(); self.tower, self.proj, self.tok = Tower(), nn.Linear(32, 32), nn.Embedding(12, 32)
        self.t = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True), 1); self.o = nn.Linear(32, 12)
    def forward(self, x, q): return self.o(self.t(torch.cat([self.proj(self.tower(x)), self.tok(q)], 1))[:, -1])
net = VLM(); first = net.tower.c[0].weight.detach().clone()
opt = torch.optim.AdamW([{"params": net.tower.parameters(), "lr": 1e-3}, {"params": [p for n, p in net.named_parameters() if "tower" not in n]}], 2e-3, weight_decay=0)
for step in range(120):
    y = torch.randint(0, 3, (16,)); x = 0.5 * torch.randn(16, 3, 8, 8); x[torch.arange(16), y] += 1; q = torch.randint(0, 12, (16, 2))
    loss = F.cross_entropy(net(x, q), y); opt.zero_grad(); loss.backward(); opt.step()
print(f"TRUTH tower moved {(net.tower.c[0].weight - first).abs().max():.5f} loss {loss:.3f}")
