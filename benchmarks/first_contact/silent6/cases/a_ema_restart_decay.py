"""From Peterande/D-FINE issue 331.
Wrong: ema.decay -= ... in the second stage; update() uses decay_fn, a closure over the first value, so nothing changes.
Could know: partly (an attribute is set that nothing reads).
"""
import sys, copy, math, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class ModelEMA:
    def __init__(self, model, decay=0.999, warmups=20):
        self.module = copy.deepcopy(model).eval(); self.decay, self.warmups, self.updates = decay, warmups, 0
        self.decay_fn = (lambda x: self.decay * (1 - math.exp(-x / warmups))) if H else (lambda x: decay * (1 - math.exp(-x / warmups)))
        for p in self.module.parameters(): p.requires_grad_(False)
    @torch.no_grad()
    def update(self, model):
        self.updates += 1; d = self.decay_fn(self.updates); msd = model.state_dict()
        for k, v in self.module.state_dict().items():
            if v.dtype.is_floating_point: v.mul_(d).add_(msd[k], alpha=1 - d)
net = nn.Sequential(nn.Linear(12, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4)); ema = ModelEMA(net); w = torch.randn(12, 4); opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
for step in range(180):
    if step == 90: ema.decay -= 0.3; print("Refresh EMA at step 90 with decay", ema.decay)
    x = torch.randn(64, 12); loss = F.cross_entropy(net(x), (x @ w).argmax(1)); opt.zero_grad(); loss.backward(); opt.step(); ema.update(net)
    if step % 20 == 0: print(step, round(loss.item(), 4))
print("check: decay wanted", ema.decay, "in use", ema.decay_fn(10 ** 6))
