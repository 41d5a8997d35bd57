# opts: --check again:every=1
# truth: no hardware; torch.empty is read (a padded row that nobody writes); reading op is cat/mul in Pad
# source: pytorch issues on uninitialized memory (torch.empty in padding); utils.deterministic.fill_uninitialized_memory docs
import flips as C, torch, ctypes
from torch import nn
class Pad(nn.Module):
    def forward(s, x):
        y = (torch.empty if C.FAULT else torch.zeros)(x.shape[0] + 4, x.shape[1])
        y[:-4] = x
        return y.clamp(-1, 1) * 0.5  # FAULT
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), Pad(), nn.Linear(32, 1)); o = torch.optim.SGD(m.parameters(), 0.01)
for C.STEP in range(8):
    junk = [torch.randn(12, 32) for _ in range(20)]; del junk
    m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish([])
