# opts: --check again:every=1
# truth: no hardware; forward augments its input with numpy's default_rng of the file (a generator of the script's own that is not torch's)
# source: albumentations/timm mixup inside of the model's call: numpy's Generator
import flips as C, torch, numpy as np
from torch import nn
R = np.random.default_rng(5)
class Mix(nn.Module):
    def forward(s, x):
        lam = float(R.beta(0.4, 0.4)) if C.FAULT else float(np.random.beta(0.4, 0.4))
        return lam * x + (1 - lam) * x.flip(0)  # FAULT
np.random.seed(0); torch.manual_seed(0); m = nn.Sequential(Mix(), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)); o = torch.optim.SGD(m.parameters(), 0.01)
for C.STEP in range(6):
    m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m)
