# source: torch.empty weight left uninitialized / a failed load (whole tensor nan)
# planted: all of fc.weight
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(6, 8), nn.Linear(8, 2)
    def forward(self, x, y):
        return F.cross_entropy(self.head(torch.tanh(self.fc(x))), y)
model = Net()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
with torch.no_grad():
    model.fc.weight.fill_(float("nan"))
# WEIGHT
for step in range(9):
    x, y = torch.randn(8, 6), torch.randint(0, 2, (8,))
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
