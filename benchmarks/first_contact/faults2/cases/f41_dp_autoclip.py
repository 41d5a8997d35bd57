"""arXiv 2206.07136 (automatic clipping, AUTO-V without its gamma): per-sample gradients by torch.func, one of them zero
TRUTH op=aten.div|aten.reciprocal|aten.mul reason=division by zero"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

from torch.func import functional_call, grad, vmap
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)); opt = torch.optim.SGD(net.parameters(), 0.05)
def loss_fn(params, x, y): return F.relu(1 - y * functional_call(net, params, (x[None],)).squeeze())   # hinge
per = vmap(grad(loss_fn), in_dims=(None, 0, 0))
for step in range(4):
    x = torch.randn(8, 6); y = torch.sign(x[:, 0])
    with torch.no_grad(): out = net(x).squeeze(1)
    if step == 2: y[3] = 1000 * torch.sign(out[3])
    gs = per({k: v.detach() for k, v in net.named_parameters()}, x, y)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gs.values()]).norm(dim=0)
    scale = 1.0 / (norms + (0.01 if CURED else 0.0))  # FAULT
    for k, p in net.named_parameters():
        p.grad = torch.einsum("b,b...->...", scale, gs[k]) / len(x) + 1e-3 * torch.randn_like(p)
    opt.step(); print(step, norms.min().item())
done(norms, net)
