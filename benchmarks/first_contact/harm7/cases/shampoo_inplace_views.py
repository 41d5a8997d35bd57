"""A Shampoo optimizer that transposes gradients in place, powers preconditioners by SVD and writes results into gradient views must keep bits, versions and strides."""
# PRELUDE
def power(mat, p):
    u, s, v = torch.svd(mat.cpu())
    return (u @ s.pow_(p).diag() @ v.t())


class Shampoo(torch.optim.Optimizer):
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                grad, order, size = p.grad.data, p.grad.data.ndimension(), p.grad.data.size()
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["momentum_buffer"] = grad.clone()
                    for d, n in enumerate(size):
                        state[f"precond_{d}"] = 1e-4 * torch.eye(n)
                        state[f"inv_precond_{d}"] = torch.zeros(n, n)
                grad.mul_(0.9).add_(state["momentum_buffer"], alpha=0.1)
                grad.add_(p.data, alpha=1e-3)
                for d, n in enumerate(size):
                    pre, inv = state[f"precond_{d}"], state[f"inv_precond_{d}"]
                    grad = grad.transpose_(0, d).contiguous()
                    tsize = grad.size()
                    grad = grad.view(n, -1)
                    gt = grad.t()
                    pre.add_(grad @ gt)
                    if state["step"] % 2 == 0:
                        inv.copy_(power(pre, -1 / order))
                    if d == order - 1:
                        grad = (gt @ inv).view(size)
                    else:
                        grad = (inv @ grad).view(tsize)
                state["step"] += 1
                state["momentum_buffer"] = grad
                p.data.add_(grad, alpha=-group["lr"])


torch.manual_seed(3)
m = nn.Sequential(nn.Conv1d(3, 5, 3), nn.Tanh(), nn.Flatten(), nn.Linear(30, 4))
W(m)
opt = Shampoo(m.parameters(), dict(lr=0.05))
for s in range(5):
    g = torch.Generator().manual_seed(s)
    x, y = torch.randn(6, 3, 8, generator=g), torch.randn(6, 4, generator=g)
    opt.zero_grad()
    loss = F.mse_loss(m(x), y)
    loss.backward()
    before = [(p.grad.stride(), p.grad._version) for p in m.parameters()]
    opt.step()
    print(s, float(loss.detach()).hex(), M(m), before, [(tuple(p.grad.shape), p.grad.stride(), p.grad._version, p._version) for p in m.parameters()])
    print(s, H([v for st in opt.state.values() for v in st.values()]), [v._version for st in opt.state.values() for v in st.values() if torch.is_tensor(v)])
