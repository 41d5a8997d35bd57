# source: pytorch/pytorch#6394, #2421 (gradient of sqrt/norm at zero in a siamese loss)
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    def forward(self, a, b, same):
        d = ((self.net(a) - self.net(b)) ** 2).sum(-1)
        d = torch.sqrt(d)
        return (same * d ** 2 + (1 - same) * F.relu(1 - d) ** 2).mean()
model = Siamese()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    x, b, y = torch.randn(10, 8), torch.randn(10, 8), torch.randint(0, 2, (10,)).float()
    if step == 2:
        b[6], y[6] = x[6], 0.0
    # BATCH 0: x, b, y
    loss = model(x, b, y)
    opt.zero_grad(); loss.backward(); opt.step()
