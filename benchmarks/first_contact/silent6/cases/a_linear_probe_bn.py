"""From kdexd/virtex issue 16.
Wrong: in the linear evaluation the frozen backbone is in train mode, so its batch norms go on to change their statistics.
Could know: yes, batch norms with frozen weights write statistics.
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(32, 4)
    def forward(self, x): return self.fc(self.backbone(x))
m = Net()
with torch.no_grad():
    for _ in range(30): m(torch.randn(32, 3, 16, 16))       # "pretraining" statistics
for p in m.backbone.parameters(): p.requires_grad_(False)
m.train()
if H: m.backbone.eval()
s0 = m.backbone[1].running_mean.clone(); opt = torch.optim.SGD(m.fc.parameters(), lr=0.1, momentum=0.9)
for step in range(100):
    y = torch.randint(0, 4, (32,)); x = torch.randn(32, 3, 16, 16) + y.view(-1, 1, 1, 1) * .3 + 1
    loss = F.cross_entropy(m(x), y); opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0: print(step, round(loss.item(), 4))
print("check: change of the frozen backbone's running mean", (m.backbone[1].running_mean - s0).abs().max().item())
