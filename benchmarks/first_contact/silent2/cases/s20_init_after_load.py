"""Resuming: weights are loaded, and then the model's init function runs over them.
Source: https://github.com/huggingface/picotron/issues/32
Truth: loss of the first step after resuming, next to the loss at the checkpoint.
Could a tool know: partly. What load_state_dict wrote is overwritten before the first forward.
"""
import sys, copy, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
def build(): return nn.Sequential(nn.Linear(10, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 5))
def init(m):
    if isinstance(m, nn.Linear): nn.init.xavier_uniform_(m.weight); nn.init.zeros_(m.bias)
W = torch.randn(10, 5)
def batch(): x = torch.randn(64, 10); return x, (x @ W).argmax(1)
def train(net, opt, n):
    out = []
    for _ in range(n):
        x, y = batch(); loss = F.cross_entropy(net(x), y); opt.zero_grad(); loss.backward(); opt.step(); out.append(loss.item())
    return out
net = build(); net.apply(init); opt = torch.optim.AdamW(net.parameters(), 3e-3); a = train(net, opt, 100)
ckpt = copy.deepcopy({"model": net.state_dict(), "opt": opt.state_dict()})
net2 = build()
if HEALTHY: net2.apply(init)
net2.load_state_dict(ckpt["model"])
if not HEALTHY: net2.apply(init)
opt2 = torch.optim.AdamW(net2.parameters(), 3e-3); opt2.load_state_dict(ckpt["opt"]); b = train(net2, opt2, 100)
print(f"TRUTH loss at the checkpoint {a[-1]:.3f}, first after resuming {b[0]:.3f}")
