# source: detection with 2 images a GPU, one image broken, BatchNorm: a batch of one is refused by BatchNorm1d
# planted rows: 1 of 2, but a batch without it raises an error
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.bn, self.head = nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)
    def forward(self, x, y):
        return F.mse_loss(self.head(self.bn(self.fc(x))).squeeze(-1), y)
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.rand(2, 5), torch.rand(2)
    if step == 2:
        x[1] = float("nan")
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
