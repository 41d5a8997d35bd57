"""ReduceLROnPlateau (mode min by default) is stepped with the validation accuracy: the better the model, the lower the rate.
Source: https://github.com/md-mohaiminul/ViS4mer/issues/4
Truth: rate at the end, accuracies.
Could a tool know: partly. The scheduler lowers the rate although the loss falls all the time.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
class Video(nn.Module):      # frames' features, a temporal convolution
    def __init__(self):
        super().__init__(); self.c = nn.Sequential(nn.Conv1d(8, 24, 5, padding=2), nn.BatchNorm1d(24), nn.GELU(), nn.Conv1d(24, 24, 5, padding=2), nn.GELU()); self.h = nn.Linear(24, 6)
    def forward(self, x): return self.h(self.c(x).mean(2))
P = torch.randn(6, 8, 12)
def batch(): y = torch.randint(0, 6, (32,)); return 0.35 * P[y] + torch.randn(32, 8, 12), y
val = [batch() for _ in range(4)]
net = Video(); opt = torch.optim.AdamW(net.parameters(), 1e-3); sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, mode="max" if HEALTHY else "min", patience=3, factor=0.2)
for epoch in range(18):
    net.train()
    for _ in range(12):
        x, y = batch(); loss = F.cross_entropy(net(x), y); opt.zero_grad(); loss.backward(); opt.step()
    net.eval()
    with torch.no_grad(): acc = sum((net(x).argmax(1) == y).float().mean().item() for x, y in val) / 4
    sched.step(acc)
print(f"TRUTH lr {opt.param_groups[0]['lr']:.1e} accuracy {acc:.2f} loss {loss:.3f}")
