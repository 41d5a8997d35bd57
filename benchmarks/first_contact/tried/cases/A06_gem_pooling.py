# source: filipradenovic/cnnimageretrieval-pytorch GeM without clamp(min=eps)
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class GeM(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.p, self.head = nn.Conv2d(3, 8, 3), nn.Parameter(torch.tensor(3.0)), nn.Linear(8, 5)
    def forward(self, x, y):
        h = F.relu(self.conv(x))
        h = h.pow(self.p).mean((2, 3)).pow(1 / self.p)
        return F.cross_entropy(self.head(h), y)
model = GeM()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.rand(6, 3, 8, 8), torch.randint(0, 5, (6,))
    if step == 2:
        with torch.no_grad():
            model.conv.bias[2] = -9.0  # a dead channel: its mean is 0
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
