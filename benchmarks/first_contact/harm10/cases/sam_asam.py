#: what: sharpness-aware minimization: two backwards per step, weights climbed and restored, batch-norm frozen in the second pass, a wrapped base optimizer sharing param_groups
#: source: https://github.com/FieeFlip/nlp
# PRELUDE
class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, adaptive=True, **kw):
        super().__init__(params, dict(rho=rho, adaptive=adaptive, **kw))
        self.base = base(self.param_groups, **kw)
        self.param_groups = self.base.param_groups
        self.defaults.update(self.base.defaults)
    def norm(self):
        return torch.norm(torch.stack([((p.abs() if g["adaptive"] else 1.0) * p.grad).norm(2) for g in self.param_groups for p in g["params"] if p.grad is not None]), 2)
    @torch.no_grad()
    def climb(self):
        n = self.norm()
        for g in self.param_groups:
            s = g["rho"] / (n + 1e-12)
            for p in g["params"]:
                if p.grad is None: continue
                self.state[p]["old"] = p.data.clone()
                p.add_((p.pow(2) if g["adaptive"] else 1.0) * p.grad * s)
        self.zero_grad()
    @torch.no_grad()
    def descend(self):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None: continue
                p.data = self.state[p]["old"]
        self.base.step(); self.zero_grad()
    def step(self, closure=None):
        closure = torch.enable_grad()(closure)
        self.climb(); closure(); self.descend()
model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(32, 4))
watch(model)
opt = SAM(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-3)
sched = torch.optim.lr_scheduler.StepLR(opt, 5, 0.5)
def bn(m, on):
    for k in m.modules():
        if isinstance(k, nn.BatchNorm2d):
            if on: k.momentum = k.backup
            else: k.backup, k.momentum = k.momentum, 0
losses = []
for step in range(15):
    x, y = torch.randn(16, 1, 8, 8), torch.randint(4, (16,))
    bn(model, True) if step else None
    loss = F.cross_entropy(model(x), y, label_smoothing=0.1); loss.backward(); losses.append(loss.item())
    bn(model, False)
    opt.step(lambda: F.cross_entropy(model(x), y, label_smoothing=0.1).backward())
    sched.step()
print(sha(losses), losses[-1]); show(model, opt, sched.get_last_lr())
torch.save({"m": model.state_dict(), "o": opt.state_dict()}, "sam.pt")
