"""Optimizers of the script's own: one that never calls super().step, one without any base class, one that wraps another (Lookahead).

Source: https://github.com/HomebrewML/HeavyBall/issues/10
"""
# PRELUDE
class Sign(torch.optim.Optimizer):
    def __init__(self, ps, lr):
        super().__init__(ps, dict(lr=lr))
    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is not None:
                    p.add_(p.grad.sign(), alpha=-g["lr"])
        return loss
class Plain:
    def __init__(self, ps): self.ps = list(ps)
    def step(self):
        for p in self.ps:
            p.data -= 0.01 * p.grad
    def zero_grad(self):
        for p in self.ps:
            p.grad = None
class Lookahead(torch.optim.Optimizer):
    def __init__(self, base):
        self.base, self.param_groups, self.state, self.k = base, base.param_groups, base.state, 0
        self.slow = [p.detach().clone() for g in base.param_groups for p in g["params"]]
    def zero_grad(self): self.base.zero_grad()
    def step(self):
        self.base.step(); self.k += 1
        if self.k % 2 == 0:
            for s, p in zip(self.slow, (p for g in self.param_groups for p in g["params"])):
                s.add_(p.detach() - s, alpha=0.5); p.data.copy_(s)
for make in (lambda p: Sign(p, 1e-3), Plain, lambda p: Lookahead(torch.optim.Adam(p, 1e-2))):
    m = net(); W(m)
    print(train(m, make(m.parameters()), 6), M(m))
