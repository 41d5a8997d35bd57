"""bfloat16 model with float32 master copies by hand (prep_param_lists, flat master, static loss scale), stochastic rounding in the copy back, then Sophia with a Gauss-Newton-Bartlett estimate from sampled labels, lookahead around it, gradient noise."""
# PRELUDE
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
m = net(2).to(torch.bfloat16)
W(m)
mp = [p for p in m.parameters()]
master = nn.Parameter(_flatten_dense_tensors([p.data for p in mp]).float())
opt = torch.optim.SGD([master], 0.05, momentum=0.9)
for s in range(6):
    x, y = batch(s)
    loss = F.mse_loss(m(x.bfloat16()).float(), y)
    m.zero_grad()
    (loss * 128).backward()
    master.grad = _flatten_dense_tensors([p.grad.data for p in mp]).float() / 128
    nn.utils.clip_grad_norm_([master], 1.0)
    opt.step()
    for p, d in zip(mp, _unflatten_dense_tensors(master.data, [p.data for p in mp])):
        if s % 2:
            b = d.contiguous().view(torch.int32)
            d = ((b + torch.randint(0, 1 << 16, b.shape, dtype=torch.int32)) & ~0xFFFF).view(torch.float32)
        p.data.copy_(d)
    print(s, float(loss.detach()).hex(), H(master))
class Sophia(torch.optim.Optimizer):
    def __init__(self, ps): super().__init__(ps, dict(lr=1e-2, rho=0.04))
    @torch.no_grad()
    def update_hessian(self):
        for g in self.param_groups:
            for p in g["params"]:
                st = self.state[p]
                st.setdefault("m", torch.zeros_like(p)), st.setdefault("h", torch.zeros_like(p))
                st["h"].mul_(0.95).addcmul_(p.grad, p.grad, value=0.05)
    @torch.no_grad()
    def step(self, bs=6):
        for g in self.param_groups:
            for p in g["params"]:
                st = self.state[p]
                st["m"].mul_(0.9).add_(p.grad, alpha=0.1)
                p.addcmul_(st["m"].sign(), (st["m"].abs() / (g["rho"] * bs * st["h"] + 1e-15)).clamp(None, 1), value=-g["lr"])
n = net(3)
W(n)
so = Sophia(n.parameters())
slow = [p.detach().clone() for p in n.parameters()]
for s in range(8):
    x, _ = batch(s)
    y = torch.randint(0, 4, (6,))
    if s % 2 == 0:
        lg = n(x)
        F.cross_entropy(lg, torch.distributions.Categorical(logits=lg).sample()).backward()
        so.update_hessian()
        so.zero_grad()
    loss = F.cross_entropy(n(x), y)
    loss.backward()
    with torch.no_grad():
        for p in n.parameters():
            p.grad += torch.randn_like(p) * 1e-3
    so.step()
    so.zero_grad(set_to_none=True)
    if s % 4 == 3:
        with torch.no_grad():
            for a, p in zip(slow, n.parameters()):
                a += 0.5 * (p - a)
                p.copy_(a)
print(float(loss.detach()).hex(), M(n), M(m), R())
