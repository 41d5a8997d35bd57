"""bshall/hifigan#4: numpy peak normalisation of a perfectly silent clip gives nan in the batch
TRUTH op=? reason=bad input data"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

import numpy as np
rng = np.random.default_rng(0)
def clip(i):
    wav = rng.standard_normal(512).astype(np.float32)
    if i == 19: wav[:] = 0
    peak = max(np.abs(wav).max(), 1e-3) if CURED else np.abs(wav).max()
    return (0.9 * wav / peak).astype(np.float32)  # FAULT
class G(nn.Module):
    def __init__(self):
        super().__init__(); self.d = nn.Conv1d(1, 8, 9, padding=4); self.u = nn.ConvTranspose1d(8, 1, 9, padding=4)
    def forward(self, x): return torch.tanh(self.u(F.leaky_relu(self.d(x), 0.1)))
net = G(); opt = torch.optim.AdamW(net.parameters(), 1e-3)
np.seterr(all="ignore")
for step in range(6):
    x = torch.from_numpy(np.stack([clip(step * 8 + k) for k in range(8)]))[:, None]
    loss = F.l1_loss(net(x), x); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
