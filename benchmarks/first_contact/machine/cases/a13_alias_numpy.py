# opts: --check again:every=1
# truth: no hardware; the script refills the batch's numpy buffer (torch.from_numpy) between forward and backward at each step, so wgrad of 0.weight is of the wrong batch
# source: pytorch docs of from_numpy (shared memory); pytorch forum on reused DataLoader buffers
import flips as C, torch, numpy as np
from torch import nn
rng = np.random.default_rng(0); buf = rng.standard_normal((8, 16)).astype("float32"); x = torch.from_numpy(buf)
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)); o = torch.optim.SGD(m.parameters(), 0.01)
for C.STEP in range(8):
    loss = m(x).square().mean()
    if C.FAULT: buf[:] = rng.standard_normal((8, 16))  # FAULT: "prefetch"
    loss.backward(); o.step(); o.zero_grad()
    buf[:] = rng.standard_normal((8, 16))
C.finish(m)
