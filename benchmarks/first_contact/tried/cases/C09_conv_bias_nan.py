# source: pytorch forum: one element of a conv bias nan in a pretrained file
# planted: element 4 of conv.bias
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 3)
    def forward(self, x, y):
        return F.cross_entropy(self.head(F.relu(self.conv(x)).mean((2, 3))), y)
model = Net()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
with torch.no_grad():
    model.conv.bias[4] = float("nan")
# WEIGHT
for step in range(9):
    x, y = torch.rand(4, 3, 8, 8), torch.randint(0, 3, (4,))
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
