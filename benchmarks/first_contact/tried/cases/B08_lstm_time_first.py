# source: pytorch forum: sensor series with a gap (nan) in one sequence, LSTM, time x batch
# planted rows: 7 of 12 along dimension 1
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(3, 8), nn.Linear(8, 1)
    def forward(self, x, y):
        h, _ = self.lstm(x)
        return F.mse_loss(self.head(h[-1]).squeeze(-1), y)
model = Net()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    x, y = torch.randn(9, 12, 3), torch.randn(12)
    if step == 2:
        x[4, 7, 1] = float("nan")
    # BATCH 1: x / 0: y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
