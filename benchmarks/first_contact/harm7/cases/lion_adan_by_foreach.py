"""Own multi-tensor optimizers (Adan, Lion, LAMB) written with torch._foreach on .data and on views must give the same weights, states and versions."""
# PRELUDE
class Multi(torch.optim.Optimizer):
    def __init__(self, params, kind, lr=1e-2):
        super().__init__(params, dict(lr=lr))
        self.kind = kind

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            ps = [p for p in group["params"] if p.grad is not None]
            gs = [p.grad for p in ps]
            for p in ps:
                if not self.state[p]:
                    self.state[p].update(m=torch.zeros_like(p.data), v=torch.zeros_like(p.data), d=torch.zeros_like(p.data), prev=p.grad.clone(), t=0)
            st = [self.state[p] for p in ps]
            ms, vs, ds, pre = ([s[k] for s in st] for k in ("m", "v", "d", "prev"))
            for s in st:
                s["t"] += 1
            lr = group["lr"]
            if self.kind == "lion":
                u = torch._foreach_mul(ms, 0.9)
                torch._foreach_add_(u, gs, alpha=0.1)
                torch._foreach_sign_(u)
                torch._foreach_mul_([p.data for p in ps], 1 - lr * 0.01)
                torch._foreach_add_(ps, u, alpha=-lr)
                torch._foreach_lerp_(ms, gs, 0.01)
            elif self.kind == "adan":
                diff = torch._foreach_sub(gs, pre)
                torch._foreach_mul_(ms, 0.98)
                torch._foreach_add_(ms, gs, alpha=0.02)
                torch._foreach_lerp_(ds, diff, 0.08)
                upd = torch._foreach_add(gs, diff, alpha=0.92)
                torch._foreach_mul_(vs, 0.99)
                torch._foreach_addcmul_(vs, upd, upd, 0.01)
                den = torch._foreach_sqrt(vs)
                torch._foreach_add_(den, 1e-8)
                torch._foreach_addcdiv_([p.view(-1) for p in ps], [a.view(-1) for a in ms], [b.view(-1) for b in den], -lr)
                torch._foreach_addcdiv_(ps, ds, den, value=-lr * 0.92)
                torch._foreach_div_(ps, 1 + lr * 0.02)
                torch._foreach_copy_(pre, gs)
            else:
                torch._foreach_lerp_(ms, gs, 0.1)
                torch._foreach_mul_(vs, 0.999)
                torch._foreach_addcmul_(vs, gs, gs, [0.001] * len(ps))
                u = torch._foreach_div(ms, torch._foreach_add(torch._foreach_sqrt(vs), 1e-6))
                wn, un = torch._foreach_norm(ps), torch._foreach_norm(u)
                ratio = [torch.where(a > 0, torch.where(b > 0, a / b, 1.0), 1.0) for a, b in zip(wn, un)]
                torch._foreach_mul_(u, ratio)
                mx = torch._foreach_maximum(torch._foreach_abs(u), 1e-12)
                torch._foreach_minimum_(u, [5.0] * len(u))
                torch._foreach_add_(ps, u, alpha=-lr)
                print("max", H(torch._foreach_max(mx)), H(torch._foreach_reciprocal(mx)), H(torch._foreach_pow(mx, 2)), H(torch._foreach_sigmoid(u)))


for kind in ("lion", "adan", "lamb"):
    m = net(7)
    W(m)
    opt = Multi(m.parameters(), kind)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5)
    for s in range(5):
        print(kind, s, train(m, opt, 1, s))
        sched.step()
        print(kind, s, M(m), H(opt.state_dict()["state"]), [p._version for p in m.parameters()], [t._version for v in opt.state.values() for t in v.values() if torch.is_tensor(t)])
