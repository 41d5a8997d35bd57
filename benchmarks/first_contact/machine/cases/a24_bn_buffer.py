# opts: --check again:every=1
# truth: bit 22 of running_mean of bn after batch norm wrote it, step 4 (a buffer, no output)
# source: torchvision resnet's layers; fault as arXiv 2102.11245
import flips as C, torch
from torch import nn
class BN(nn.BatchNorm1d):
    def forward(s, x):
        y = super().forward(x)  # FAULT
        C.poke(s.running_mean, 5, 22, what="running_mean"); return y
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), BN(32), nn.ReLU(), nn.Linear(32, 1)); o = torch.optim.SGD(m.parameters(), 0.01)
for C.STEP in range(8):
    m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m, o)
