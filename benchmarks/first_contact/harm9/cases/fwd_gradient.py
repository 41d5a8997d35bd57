"""Gradients without backpropagation: forward-mode duals through the model, p.grad set by hand, torch.optim steps; jvp by functional_call; nan in evaluation."""
# PRELUDE
import torch.autograd.forward_ad as fw
from torch.func import functional_call, jvp, vmap, grad, stack_module_state
seed(97)
net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 2))
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.02)
for step in range(14):
    x, y = torch.randn(16, 5), torch.randint(0, 2, (16,))
    opt.zero_grad()
    if step % 2:
        ps = {n: p.detach() for n, p in net.named_parameters()}
        vs = {n: torch.randn_like(p) for n, p in ps.items()}
        loss, d = jvp(lambda q: F.cross_entropy(functional_call(net, q, (x,)), y), (ps,), (vs,))
        for n, p in net.named_parameters():
            p.grad = d * vs[n]
    else:
        with fw.dual_level(), torch.no_grad():
            vs, old = {}, {}
            for m in (net[0], net[2]):
                for n in ("weight", "bias"):
                    p = old[m, n] = getattr(m, n)
                    vs[p] = torch.randn_like(p)
                    del m._parameters[n]
                    setattr(m, n, fw.make_dual(p.detach(), vs[p]))
            l = F.cross_entropy(net(x), y)
            loss, d = fw.unpack_dual(l)
            for (m, n), p in old.items():
                delattr(m, n)
                m.register_parameter(n, p)
                p.grad = d * vs[p]
    opt.step()
    per = vmap(grad(lambda q, a, b: F.cross_entropy(functional_call(net, q, (a[None],)), b[None])), (None, 0, 0))({n: p.detach() for n, p in net.named_parameters()}, x, y)
    with torch.no_grad():
        e = net(x / 0)
    print(step, dig(loss, d, per, e))
true = F.cross_entropy(net(x), y)
true.backward()
opt.step()
end(net, opt)
