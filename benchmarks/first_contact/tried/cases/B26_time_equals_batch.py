# source: B08 with as many time steps as samples: a nan in one sample, time x batch
# planted rows: sample 1 of 6 (dimension 1), at time 4 (dimension 0)
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(3, 8), nn.Linear(8, 1)
    def forward(self, x, y):
        h, _ = self.gru(x)
        return F.mse_loss(self.head(h[-1]).squeeze(-1), y)
model = Net()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    x, y = torch.randn(6, 6, 3), torch.randn(6)
    if step == 2:
        x[4, 1, 1] = float("nan")
    # BATCH 1: x / 0: y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
