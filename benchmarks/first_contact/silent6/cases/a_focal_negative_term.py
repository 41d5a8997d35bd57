"""From yqyao/SSD_Pytorch issue 32.
Wrong: the sigmoid focal loss weights negatives by (1 - P)^gamma instead of P^gamma: easy negatives count most.  Could know: no.
"""
import sys, torch, torch.nn as nn
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 1))
nn.init.constant_(net[-1].bias, -2.0)
def batch(n=16):
    t = (torch.rand(n, 1, 12, 12) < 0.03).float(); return t * 1.5 + torch.randn(n, 1, 12, 12) * .5, t
opt = torch.optim.Adam(net.parameters(), lr=2e-3); gamma, alpha = 2.0, 0.25; w_easy = w_all = 0.
for step in range(120):
    x, t = batch(); P = torch.sigmoid(net(x)).clamp(1e-6, 1 - 1e-6)
    pos = -(1 - P) ** gamma * torch.log(P) * t * alpha
    w = P if H else 1 - P
    neg = -w ** gamma * torch.log(1 - P) * (1 - t) * (1 - alpha)
    loss = (pos + neg).sum() / t.sum().clamp(min=1)
    opt.zero_grad(); loss.backward(); opt.step()
    e = (t == 0) & (P < .2); w_easy += neg[e].sum().item(); w_all += (pos + neg).sum().item()
    if step % 20 == 0: print(step, round(loss.item(), 4))
print("check: share of the loss that easy negatives (P < 0.2) have", w_easy / w_all)
