"""From PennyLaneAI/pennylane issue 1928 (its documented rule).
Wrong: a hand-written Adam corrects the bias twice: in the moments, and again in the step size.  Could know: no (a rule of updates alone; the
first step is smaller by sqrt(1-b2)/(1-b1) = 0.32).
"""
import sys, math, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class MyAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8): super().__init__(params, dict(lr=lr, b1=b1, b2=b2, eps=eps))
    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                s = self.state[p]
                if not s: s.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                s["t"] += 1; s["m"].mul_(g["b1"]).add_(p.grad, alpha=1 - g["b1"]); s["v"].mul_(g["b2"]).addcmul_(p.grad, p.grad, value=1 - g["b2"])
                c1, c2 = 1 - g["b1"] ** s["t"], 1 - g["b2"] ** s["t"]
                lr = g["lr"] if H else g["lr"] * math.sqrt(c2) / c1
                p.sub_(lr * (s["m"] / c1) / ((s["v"] / c2).sqrt() + g["eps"]))
net = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 1)); opt = MyAdam(net.parameters(), lr=3e-3); w = torch.randn(10, 1); first = net[0].weight.detach().clone()
for step in range(120):
    x = torch.randn(64, 10); loss = F.mse_loss(net(x), torch.tanh(x @ w)); opt.zero_grad(); loss.backward(); opt.step()
    if step == 0: print("check: first step / learning rate", ((net[0].weight - first).abs().max() / 3e-3).item())
    if step % 20 == 0: print(step, round(loss.item(), 4))
