# source: LAION-AI/Open-Assistant#2438-like bad sample; tabular nan row with BatchNorm1d (pytorch forum)
# planted rows: 17 of 32
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    def forward(self, x, y):
        return F.mse_loss(self.net(x).squeeze(-1), y)
model = Net()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    x, y = torch.randn(32, 6), torch.randn(32)
    if step == 2:
        x[17, 3] = float("nan")
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
