#: what: PCGrad: a backward per task with retain_graph, gradients flattened, projected in a random order (python's random), written back to .grad
#: source: https://github.com/WeiChengTseng/Pytorch-PCGrad
# PRELUDE
import copy
class PCGrad:
    def __init__(self, opt): self._optim = opt
    @property
    def optimizer(self): return self._optim
    def zero_grad(self): return self._optim.zero_grad(set_to_none=True)
    def step(self): return self._optim.step()
    def pc_backward(self, objs):
        gs, sh, hs = [], [], []
        for o in objs:
            self._optim.zero_grad(set_to_none=True); o.backward(retain_graph=True)
            g = [(p.grad.clone() if p.grad is not None else torch.zeros_like(p)) for gr in self._optim.param_groups for p in gr["params"]]
            has = [p.grad is not None for gr in self._optim.param_groups for p in gr["params"]]
            gs.append(torch.cat([q.flatten() for q in g])); hs.append(torch.cat([torch.full((q.numel(),), float(h)) for q, h in zip(g, has)])); sh = [q.shape for q in g]
        pc = copy.deepcopy(gs)
        for gi in pc:
            random.shuffle(gs)
            for gj in gs:
                d = torch.dot(gi, gj)
                if d < 0: gi -= d * gj / (gj.norm() ** 2)
        shared = torch.stack(hs).prod(0).bool(); m = torch.zeros_like(pc[0]); m[shared] = torch.stack([q[shared] for q in pc]).mean(0); m[~shared] = torch.stack([q[~shared] for q in pc]).sum(0)
        i = 0
        for gr in self._optim.param_groups:
            for p in gr["params"]: p.grad = m[i:i + p.numel()].view_as(p); i += p.numel()
class M(nn.Module):
    def __init__(self): super().__init__(); self.t = nn.Linear(6, 12); self.a, self.b = nn.Linear(12, 2), nn.Linear(12, 4)
    def forward(self, x): z = self.t(x).relu(); return self.a(z), self.b(z)
m = M(); watch(m); opt = PCGrad(torch.optim.Adam(m.parameters(), 1e-2))
for step in range(25):
    x = torch.randn(16, 6); a, b = m(x); opt.pc_backward([F.mse_loss(a, x[:, :2]), F.mse_loss(b, -x[:, 2:])]); opt.step()
print(random.random()); show(m, opt.optimizer)
