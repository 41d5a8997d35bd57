# opts: --check again:every=1
# truth: no hardware; a torch.Generator of the module of the file (global) draws the noise: aten.randn/bernoulli_ in Noise
# source: diffusers' training scripts pass generator=; global here
import flips as C, torch
from torch import nn
G = torch.Generator().manual_seed(3)
class Noise(nn.Module):
    def forward(s, x):
        if C.FAULT: return x + 0.1 * torch.randn(x.shape, generator=G)  # FAULT
        return x + 0.1 * torch.randn(x.shape)
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), Noise(), nn.ReLU(), nn.Linear(32, 1)); o = torch.optim.SGD(m.parameters(), 0.01)
for C.STEP in range(6):
    m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m)
