# opts: --check again:every=1
# truth: no hardware; the wall clock goes into the forward (a decay by time): mul in Clock
# source: wandb-like throttles / time-based decay; invented
import flips as C, torch, time
from torch import nn
class Clock(nn.Module):
    def forward(s, x): return x * (1 + (time.time() % 1 if C.FAULT else 0.5))  # FAULT
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), Clock(), nn.ReLU(), nn.Linear(32, 1)); o = torch.optim.SGD(m.parameters(), 0.01)
for C.STEP in range(6):
    m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish([])
