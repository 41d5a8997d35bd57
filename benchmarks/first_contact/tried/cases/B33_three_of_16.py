# source: as B10 with three zero rows of 16
# planted rows: 0, 7, 15 of 16
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 8, bias=False)
    def forward(self, x, y):
        h = self.fc(x)
        h = h / h.norm(dim=-1, keepdim=True)
        return (h - y).square().mean()
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.randn(16, 6), torch.randn(16, 8)
    if step == 2:
        x[[0, 7, 15]] = 0
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
