# source: pytorch forum: frozen BatchNorm with running_var below 0 after averaging checkpoints (SWA/EMA)
# planted: element 2 of bn.running_var (a buffer)
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.bn, self.head = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
    def forward(self, x, y):
        return F.cross_entropy(self.head(self.bn(self.fc(x))), y)
model = Net()  # MODEL
model.bn.eval()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
model.bn.running_var[2] = -0.5
# WEIGHT
for step in range(9):
    x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
