"""openai/CLIP#15, sauradip/STALE#16: nn.Parameter(torch.empty(...)) never initialised (memory filled with nan by torch's own debugging switch)
TRUTH op=? reason=bad parameter"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

torch.use_deterministic_algorithms(True)
class Prompt(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(16, 32)
        self.bg = nn.Parameter(torch.zeros(1, 32) if CURED else torch.empty(1, 32))  # FAULT
        self.cls = nn.Parameter(torch.randn(4, 32))
    def forward(self, x):
        t = torch.cat([self.cls, self.bg]); t = t / (t.norm(dim=1, keepdim=True) + 1e-6)
        return 10 * F.normalize(self.proj(x), dim=1) @ t.T
net = Prompt(); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(3):
    x, y = torch.randn(8, 16), torch.randint(0, 5, (8,))
    loss = F.cross_entropy(net(x), y); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
