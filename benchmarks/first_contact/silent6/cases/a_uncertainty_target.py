"""From ENSTA-U2IS-AI/LDU issue 10.
Wrong: the uncertainty head's target is the task loss, not detached, so the task is also trained to have the loss that the head predicts.
Could know: yes, the target of a loss has a gradient into the weights that make the prediction.
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class M(nn.Module):
    def __init__(self):
        super().__init__(); self.f = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()); self.y = nn.Linear(64, 1); self.u = nn.Linear(64, 1)
    def forward(self, x): h = self.f(x); return self.y(h), F.softplus(self.u(h))
m = M(); opt = torch.optim.Adam(m.parameters(), lr=3e-3); cos = 0.
for step in range(200):
    x = torch.randn(128, 6); y = torch.sin(2 * x[:, :1]) + .5 * x[:, 1:2].abs() * torch.randn(128, 1)
    p, u = m(x); loss_task = (p - y) ** 2
    loss_u = F.mse_loss(u, loss_task.detach() if H else loss_task)
    loss = loss_task.mean() + 5 * loss_u
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 25 == 0: print(step, round(loss.item(), 4), round(loss_task.mean().item(), 4))
with torch.no_grad():
    x = torch.randn(4000, 6); print("check: error of the noiseless part", ((m(x)[0] - torch.sin(2 * x[:, :1])) ** 2).mean().item())
