"""From ifzhang/FairMOT issue 19.
Wrong: the task uncertainties s_det and s_id are parameters of the loss module, and the optimizer has model.parameters() only.
Could know: yes, parameters with gradients that no optimizer has.
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.body = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); self.det = nn.Linear(64, 4); self.reid = nn.Linear(64, 10)
    def forward(self, x): h = self.body(x); return self.det(h), self.reid(h)
class MotLoss(nn.Module):
    def __init__(self):
        super().__init__(); self.s_det = nn.Parameter(-1.85 * torch.ones(1)); self.s_id = nn.Parameter(-1.05 * torch.ones(1))
    def forward(self, out, box, ident):
        d, i = F.smooth_l1_loss(out[0], box), F.cross_entropy(out[1], ident)
        return (0.5 * (torch.exp(-self.s_det) * d + torch.exp(-self.s_id) * i + self.s_det + self.s_id)).squeeze()
class ModleWithLoss(nn.Module):
    def __init__(self, model, loss): super().__init__(); self.model = model; self.loss = loss
    def forward(self, x, b, i): return self.loss(self.model(x), b, i)
model = Net(); loss_fn = MotLoss(); full = ModleWithLoss(model, loss_fn); W = torch.randn(12, 14)
opt = torch.optim.Adam((full if H else model).parameters(), lr=2e-3)
for step in range(150):
    x = torch.randn(64, 12); y = x @ W
    loss = full(x, y[:, :4], y[:, 4:].argmax(1)); opt.zero_grad(); loss.backward(); opt.step()
    if step % 25 == 0: print(step, round(loss.item(), 4))
print("check: s_det, s_id", loss_fn.s_det.item(), loss_fn.s_id.item(), "(begin: -1.85, -1.05)")
