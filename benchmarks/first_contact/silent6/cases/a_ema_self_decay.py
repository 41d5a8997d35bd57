"""From huggingface/diffusers issue 1864.
Wrong: step() overwrites self.decay with the step's own decay and uses it in the next min(): the average forgets everything in some steps.
Could know: partly (the copy is nearly the model itself at each look).
"""
import sys, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class EMAModel:
    def __init__(self, model, decay=0.9999): self.averaged_model = copy.deepcopy(model).eval().requires_grad_(False); self.decay = decay; self.optimization_step = 0
    @torch.no_grad()
    def step(self, model):
        self.optimization_step += 1; value = (1 + self.optimization_step) / (10 + self.optimization_step)
        if H: one_minus = 1 - min(self.decay, value)
        else: self.decay = 1 - min(self.decay, value); one_minus = self.decay
        for e, p in zip(self.averaged_model.parameters(), model.parameters()): e.sub_(one_minus * (e - p))
        return one_minus
net = nn.Sequential(nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2)); ema = EMAModel(net); opt = torch.optim.AdamW(net.parameters(), lr=5e-3)
for step in range(200):
    x0 = torch.randn(32, 2) * .1 + torch.randint(0, 2, (32, 2)).mul(2).sub(1).float(); t = torch.rand(32, 1); e = torch.randn_like(x0)
    loss = F.mse_loss(net(torch.cat([x0 * (1 - t) + e * t, t], 1)), e - x0); opt.zero_grad(); loss.backward(); opt.step(); k = ema.step(net)
    if step % 25 == 0: print(step, round(loss.item(), 4), round(k, 4))
d = sum((a - b).norm() ** 2 for a, b in zip(ema.averaged_model.parameters(), net.parameters())) ** .5
print("check: share of the model taken at the last step", k, "distance average-model", d.item())
