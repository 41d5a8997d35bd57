"""Fine-tuning from a checkpoint with a new learning rate: optimizer.load_state_dict puts the old rate back.
Source: https://github.com/mapbox/robosat/issues/169 (also pytorch/examples issue 816)
Truth: rate in use (1e-4 was asked for).
Could a tool know: partly. load_state_dict changes the rate that the constructor was given; most resumes want that.
"""
import sys, io, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
def make(): return nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 2, 1))
def batch(): x = F.avg_pool2d(torch.randn(6, 3, 14, 14), 3, 1); return x, (x.sum(1) > 0).long()
def train(net, opt, n):
    for _ in range(n):
        x, y = batch(); loss = F.cross_entropy(net(x), y); opt.zero_grad(); loss.backward(); opt.step()
    return loss.item()
net = make(); opt = torch.optim.Adam(net.parameters(), 1e-2); train(net, opt, 70)
f = io.BytesIO(); torch.save({"state_dict": net.state_dict(), "optimizer": opt.state_dict()}, f); f.seek(0)
ckpt = torch.load(f); net = make(); net.load_state_dict(ckpt["state_dict"]); opt = torch.optim.Adam(net.parameters(), 1e-4); opt.load_state_dict(ckpt["optimizer"])
if HEALTHY:
    for g in opt.param_groups: g["lr"] = 1e-4
loss = train(net, opt, 70)
print(f"TRUTH rate in use {opt.param_groups[0]['lr']} loss {loss:.3f}")
