#: what: training by forward gradients: dual numbers on the parameters via functional_call, a random tangent per step, no backward at all
#: source: https://github.com/pytorch/tutorials/pull/1746
# PRELUDE
import torch.autograd.forward_ad as fw; from torch.func import functional_call
m = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 2)); watch(m)
for s in range(15):
    x = torch.randn(16, 4); y = (x[:, 0] > 0).long()
    with torch.no_grad(), fw.dual_level():
        tang = {n: torch.randn_like(p) for n, p in m.named_parameters()}; d = {n: fw.make_dual(p.detach(), tang[n]) for n, p in m.named_parameters()}; l = F.cross_entropy(functional_call(m, d, (x,)), y); v, g = fw.unpack_dual(l)
    with torch.no_grad():
        for n, p in m.named_parameters(): p -= 0.02 * g * tang[n]
    print(s, v.item(), g.item())
opt = torch.optim.SGD(m.parameters(), 0.1)
for s in range(5): l = F.cross_entropy(m(x), y); opt.zero_grad(); l.backward(); opt.step(); print(l.item())
show(m, opt)
