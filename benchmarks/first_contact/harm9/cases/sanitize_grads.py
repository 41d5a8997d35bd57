"""Gradients of nan are repaired where the optimizer steps: a step pre-hook (nan_to_num), a step of a subclass that masks them, OLMo's factor that skips a step."""
# PRELUDE
seed(114)


class Masked(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is not None and not p.grad.isfinite().all():
                    p.grad = torch.where(p.grad.isfinite(), p.grad, 0.0)
        return super().step(closure)


class SkipStep(torch.optim.Optimizer):
    def __init__(self, ps, lr):
        super().__init__(ps, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        ps = [p for g in self.param_groups for p in g["params"] if p.grad is not None]
        ok = torch.stack([p.grad.isfinite().all() for p in ps]).all()
        for p in ps:
            p.add_(torch.where(ok, -0.05 * p.grad, torch.zeros_like(p)))


for kind in ("hook", "masked", "skip", "zeroed"):
    net = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 2))
    watch(net)
    opt = {"hook": torch.optim.Adam, "masked": Masked, "skip": SkipStep, "zeroed": torch.optim.SGD}[kind](net.parameters(), lr=1e-2)
    if kind == "hook":
        opt.register_step_pre_hook(lambda o, a, k: [p.grad.nan_to_num_(0, 0, 0) for g in o.param_groups for p in g["params"] if p.grad is not None] and None)
    for step in range(10):
        x = torch.randn(8, 5)
        o = net(x)
        d = (o - o.detach() * (1.0 if step % 4 == 2 else 0.0)).pow(2).sum(1)
        loss = d.sqrt().mean()
        opt.zero_grad(); loss.backward()
        if kind == "zeroed":
            for p in net.parameters():
                p.grad[p.grad.isnan()] = 0
        opt.step()
        print(kind, step, dig(loss, dict(net.state_dict())))
    end(net, opt)
