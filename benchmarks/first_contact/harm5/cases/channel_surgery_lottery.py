"""Structured surgery in mid-training: parameters replaced by narrower ones, optimizer state cut to match, batch-norm buffers too, layers folded (conv and bn fused), net2net widening, then a lottery-ticket rewind with masks by hooks; hessian trace scores."""
# PRELUDE
from torch.nn.utils.fusion import fuse_conv_bn_eval
m = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
def go(n, f):
    for s in range(f, f + n):
        g = torch.Generator().manual_seed(s)
        x, y = torch.randn(4, 3, 6, 6, generator=g), torch.randint(0, 4, (4,), generator=g)
        opt.zero_grad()
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        opt.step()
    return float(loss.detach()).hex()
init = {k: v.clone() for k, v in m.state_dict().items()}
print(go(3, 0))
def cut(mod, name, keep, dim):
    p = getattr(mod, name)
    q = nn.Parameter(p.detach().index_select(dim, keep).clone())
    q.grad = p.grad.index_select(dim, keep)
    setattr(mod, name, q)
    st = opt.state.pop(p)
    opt.state[q] = {k: v.index_select(dim, keep).clone() if torch.is_tensor(v) and v.shape == p.shape else v for k, v in st.items()}
    for g in opt.param_groups:
        g["params"] = [q if z is p else z for z in g["params"]]
score = (m[0].weight * m[0].weight.grad).abs().sum((1, 2, 3))
keep = score.topk(7)[1].sort()[0]
for mod, n, d in ((m[0], "weight", 0), (m[0], "bias", 0), (m[1], "weight", 0), (m[1], "bias", 0), (m[3], "weight", 1)):
    cut(mod, n, keep, d)
for n in ("running_mean", "running_var"):
    setattr(m[1], n, getattr(m[1], n)[keep])
m[0].out_channels = m[1].num_features = m[3].in_channels = 7
print(go(3, 10), keep.tolist(), M(m))
m.eval()
m[0] = fuse_conv_bn_eval(m[0], m[1])
m[1] = nn.Identity()
m.train()
opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
print(go(3, 20), M(m))
new = nn.Linear(8, 6)
with torch.no_grad():
    new.weight[:4], new.bias[:4] = m[7].weight, m[7].bias
m[7] = new
opt = torch.optim.SGD(m.parameters(), 0.05)
print(go(2, 30))
masks = {n: (p.abs() > p.abs().median()).float() for n, p in m.named_parameters() if p.dim() > 1}
hs = [p.register_hook(lambda g, k=masks[n]: g * k) for n, p in m.named_parameters() if n in masks]
with torch.no_grad():
    m[3].bias.copy_(init["3.bias"])
    for n, p in m.named_parameters():
        if n in masks:
            p.mul_(masks[n])
print(go(4, 40))
for h in hs:
    h.remove()
loss = F.cross_entropy(m(torch.ones(2, 3, 6, 6)), torch.tensor([0, 1]))
ps = list(m.parameters())
g = torch.autograd.grad(loss, ps, create_graph=True)
v = [torch.randint(0, 2, p.shape).float() * 2 - 1 for p in ps]
hv = torch.autograd.grad(g, ps, v)
print(H([(a * b).sum() for a, b in zip(hv, v)]), M(m), R())
